"""All methods on one case, each with the same processor time: training and inference together."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from equibayes.baselines.train import train
from equibayes.data import Dataset
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample
from equibayes.posterior.tangent import refine
from equibayes.run import Run
from equibayes.run.settings import SampleConfig, sample_config
from studies.tangent.cases import Case
from studies.tangent.measures import measured

CHAINS = 4
METHODS = ("posterior", "refined", "ensemble-4", "ensemble-8", "ensemble-refined")
"""Of these the second defines the processor time that the others get; the first is what it begins with."""


@dataclass
class Contest:
    """budget: seconds of processor time of `refined`, once it is known;  step: of one step of one network."""

    case: Case
    config: SampleConfig
    save: Callable[[dict[str, Any]], None]
    directions: int | None = None
    budget: float | None = None
    step: float | None = None
    found: dict[str, Any] = field(default_factory=dict)
    plain: Posterior | None = None

    def run(self, method: str) -> None:
        """Train, measure, save."""
        begun = time.process_time()
        posterior, about = self._made(method)
        seconds = time.process_time() - begun
        if method == "posterior":
            self.plain, self.step = posterior, seconds / (CHAINS * self._steps)
        if method == "refined":
            assert self.plain is not None
            about["refining_seconds"] = seconds
            seconds += self.found["posterior"]["seconds"]
            self.budget = seconds
        about |= {"seconds": seconds, "tests": measured(posterior, self.case.held, self.case.tests)}
        if posterior.tangent is not None:
            about["tangent"] = posterior.verdict["tangent"]
        self.found[method] = about
        self.save(self.found)
        first = next(iter(about["tests"].values()))
        numbers = {key: first[key] for key in ("mae", "ln_p", "rescaled_ln_p", "in_68", "auc", "energy_mae")}
        print(
            method, f"{seconds:.1f} s", {key: value and round(value, 3) for key, value in numbers.items()}, flush=True
        )

    @property
    def _steps(self) -> int:
        return self.config.schedule(len(self.case.train)).total_steps

    def _made(self, method: str) -> tuple[Posterior, dict[str, Any]]:
        train_frames, held = self.case.train, self.case.held
        if method == "posterior":
            made = sample(train_frames, self.config, validation=held, run=Run(device="cpu"))
            return made, {"networks": CHAINS, "steps": self._steps}
        if method == "refined":
            assert self.plain is not None
            return refine(self.plain, train_frames, held, directions=self.directions), {"networks": CHAINS}
        if method.startswith("limits-"):
            assert self.plain is not None
            labels, directions = (int(word) for word in method.split("-")[1:])
            made = refine(self.plain, train_frames, held, labels=labels, directions=directions)
            return made, {"networks": CHAINS, "labels": labels, "directions": directions}
        if method == "ensemble-refined":
            made = self._baseline("ensemble", CHAINS, self._steps)
            return refine(made, train_frames, held, directions=self.directions), {"networks": CHAINS}
        assert self.budget is not None
        assert self.step is not None
        networks = int(method.split("-")[1]) if method.startswith("ensemble-") else 1
        steps = max(10, int(self.budget / self.step / networks))
        return self._baseline(method.split("-")[0], networks, steps), {"networks": networks, "steps": steps}

    def _baseline(self, kind: str, networks: int, steps: int) -> Posterior:
        config = replace(
            self.config,
            chains=networks,
            samples=8 if kind == "dropout" else networks,
            burn_in=replace(self.config.burn_in, steps=steps, epochs=None),
            cycles=replace(self.config.cycles, length=2),
        )
        return train(kind, self.case.train, config, validation=self.case.held, run=Run(device="cpu"))


def settings(network: str, mass: str, seed: int, steps: int, stress: bool = False) -> SampleConfig:
    """Four chains of the preset `quick` with a sample each; nothing is held back from the given frames."""
    return sample_config(
        "quick",
        network,
        {
            "chains": CHAINS,
            "samples": CHAINS,
            "seed": seed,
            "data": {"validation": 0},
            "sampler": {"mass": mass},
            "burn_in": {"steps": steps, "epochs": None, "noise_free": 0.9},
            "cycles": {"length": 2},
            "output": {"validations": 2},
        },
    )


def smaller(case: Case) -> Case:
    """A few frames, to see that the study runs."""
    few: Callable[[Dataset, int], Dataset] = lambda data, count: data.subset(range(min(count, len(data))))  # noqa: E731
    return Case(few(case.train, 10), few(case.held, 12), {name: few(data, 12) for name, data in case.tests.items()})
