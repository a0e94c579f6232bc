"""The cases of the study: sizes, questions and settings."""

from dataclasses import dataclass, replace

from equibayes.run.settings import SampleConfig, sample_config

RECORDS = 30
"""Records of a run, each with an evaluation of the held-back frames."""


@dataclass(frozen=True)
class Plan:
    """Sizes that all cases share; steps are per chain."""

    network: str = "small"
    chains: int = 8
    draws: int = 8
    train: int = 1_000
    held_back: int = 30
    test: int = 1_000
    # steps
    burn_in: int = 16_000
    cycle: int = 1_000
    pilot: int = 1_000

    def config(self, case: "Case") -> SampleConfig:
        values = {
            "seed": case.seed,
            "chains": self.chains,
            "samples": self.chains * self.draws,
            "data": {"validation": self.held_back},
            "sampler": {"integrator": case.integrator, "temperature": case.temperature, "mass": "matrix"},
            "burn_in": {"steps": max(1, round(case.burn_in * self.burn_in)), "initial": case.initial},
            "cycles": {"length": max(1, round(case.cycle * self.cycle))},
            "output": {"records": RECORDS, "validations": RECORDS},
        }
        return sample_config("standard", self.network, values)

    def single(self, case: "Case", pace: float) -> SampleConfig:
        """One chain with `pace` times the steps of each of the many, for 8 draws."""
        config = self.config(case)
        many = config.schedule(self.train - self.held_back)
        steps = pace * many.total_steps
        if case.stretched:
            burn_in, cycle = pace * many.burn_in_steps, pace * many.cycle_steps
        else:
            burn_in = min(many.burn_in_steps, steps / 2)
            cycle = (steps - burn_in) / (self.draws - 1)
        return replace(
            config,
            chains=1,
            samples=self.draws,
            burn_in=replace(config.burn_in, steps=round(burn_in)),
            cycles=replace(config.cycles, length=max(1, round(cycle))),
        )


QUICK = Plan("tiny", chains=2, draws=4, burn_in=24, cycle=8, pilot=20, train=24, held_back=10, test=10)


@dataclass(frozen=True)
class Case:
    """One run.  `asks` is its question; burn_in and cycle are multiples of the plan's; initial is a learning rate.

    equal      '' for many chains; a single chain: as many `seconds` or as much `work` (evaluations)
    stretched  whether a single chain also has a longer burn-in, or longer cycles only, as in the paper
    """

    asks: str
    seed: int = 0
    burn_in: float = 1.0
    cycle: float = 1.0
    temperature: float = 1.0
    integrator: str = "baoa"
    initial: float = 3e-2
    equal: str = ""
    stretched: bool = False
    long: bool = False


CASES: dict[str, Case] = {
    "many": Case("chains"),
    "one": Case("chains", equal="seconds"),
    "one-stretched": Case("chains", equal="seconds", stretched=True),
    "one-work": Case("chains", equal="work", stretched=True, long=True),
    "many-seed1": Case("scatter", seed=1),
    "many-seed2": Case("scatter", seed=2),
    "burn-in-16th": Case("burn-in", burn_in=1 / 16),
    "burn-in-8th": Case("burn-in", burn_in=1 / 8),
    "burn-in-4th": Case("burn-in", burn_in=1 / 4),
    "burn-in-half": Case("burn-in", burn_in=1 / 2),
    "burn-in-double": Case("burn-in", burn_in=2),
    "cycle-4th": Case("cycle", cycle=1 / 4),
    "cycle-half": Case("cycle", cycle=1 / 2),
    "cycle-double": Case("cycle", cycle=2),
    "cycle-fourfold": Case("cycle", cycle=4),
    "temperature-0.3": Case("temperature", temperature=0.3),
    "temperature-0.1": Case("temperature", temperature=0.1),
    "temperature-0.03": Case("temperature", temperature=0.03),
    "temperature-0.01": Case("temperature", temperature=0.01),
    "temperature-0": Case("temperature", temperature=0.0),
    "paper": Case("integrator", integrator="paper"),
    "baoa-slow": Case("integrator", initial=1e-2),
    "paper-slow": Case("integrator", integrator="paper", initial=1e-2),
    "baoa-fast": Case("integrator", initial=6e-2),
    "paper-fast": Case("integrator", integrator="paper", initial=6e-2),
}


def about(plan: Plan, case: Case) -> str:
    """Chains and steps of a case, in words."""
    chains = "1 chain" if case.equal else f"{plan.chains} chains"
    if case.equal == "seconds":
        return f"{chains}, as many seconds as many chains"
    config = plan.single(case, plan.chains) if case.equal else plan.config(case)
    return f"{chains}, {config.schedule(plan.train - plan.held_back).total_steps} steps{', long' if case.long else ''}"
