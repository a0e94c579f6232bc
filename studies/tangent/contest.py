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
from studies.tangent.rivals import gaussian_process, rigidity

METHODS = ("posterior", "refined", "last-layer", "ensemble-4", "ensemble-8")
"""Of these the second defines the processor time that ensembles, dropout and point get; the first is what it begins
with."""
OTHERS = ("ensemble-refined", "dropout", "point", "llpr", "gp")


@dataclass
class Contest:
    """found: of each method that was measured."""

    system: str
    case: Case
    config: SampleConfig
    save: Callable[[dict[str, Any]], None]
    limits: dict[str, int | None]
    found: dict[str, Any] = field(default_factory=dict)
    plain: Posterior | None = None
    point: Posterior | None = None

    def run(self, method: str) -> None:
        """Train, measure, save."""
        self.found[method] = self._measured(method)
        self.save(self.found)
        first = next(iter(self.found[method]["tests"].values()))
        numbers = {key: first[key] for key in ("mae", "ln_p", "rescaled_ln_p", "in_68", "auc", "energy_mae")}
        words = {key: value and round(value, 3) for key, value in numbers.items()}
        print(method, f"{self.found[method]['seconds']:.1f} s", words, flush=True)

    def _measured(self, method: str) -> dict[str, Any]:
        """Seconds, settings and numbers of a method."""
        if method == "gp":
            return gaussian_process(self.system, self.case)
        if method == "llpr":
            assert self.point is not None
            found = rigidity(self.point, self.case)
            return found | {"seconds": self.found["point"]["seconds"] + found["seconds"]}
        begun = time.process_time()
        posterior, about = self._made(method)
        seconds = time.process_time() - begun
        if method == "posterior":
            self.plain = posterior
        if method == "point":
            self.point = posterior
        if method in ("refined", "last-layer") or method.startswith("limits-"):
            about["refining_seconds"] = seconds
            seconds += self.found["posterior"]["seconds"]
        about |= {"seconds": seconds, "tests": measured(posterior, self.case.held, self.case.tests)}
        if posterior.tangent is not None:
            about["tangent"] = posterior.verdict["tangent"]
        return about

    @property
    def budget(self) -> float:
        """Seconds of processor time for every method: those of `refined`."""
        return self.found["refined"]["seconds"]

    @property
    def step(self) -> float:
        """Seconds of one step of one network."""
        return self.found["posterior"]["seconds"] / (self.config.chains * self._steps)

    @property
    def _steps(self) -> int:
        return self.config.schedule(len(self.case.train)).total_steps

    def _made(self, method: str) -> tuple[Posterior, dict[str, Any]]:
        train_frames, held = self.case.train, self.case.held
        if method == "posterior":
            made = sample(train_frames, self.config, validation=held, run=Run(device="cpu"))
            return made, {"networks": self.config.chains, "steps": self._steps}
        if method in ("refined", "last-layer"):
            assert self.plain is not None
            last = method == "last-layer"
            return refine(self.plain, train_frames, held, last_layer=last, **self.limits), {
                "networks": self.config.chains
            }
        if method.startswith("limits-"):
            assert self.plain is not None
            labels, directions = (int(word) for word in method.split("-")[1:])
            made = refine(self.plain, train_frames, held, labels=labels, directions=directions)
            return made, {"networks": self.config.chains, "labels": labels, "directions": directions}
        if method == "ensemble-refined":
            made = self._baseline("ensemble", self.config.chains, self._steps)
            return refine(made, train_frames, held, **self.limits), {"networks": self.config.chains}
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


def settings(network: str, mass: str, seed: int, chains: int, steps: int) -> SampleConfig:
    """Chains of the preset `quick` with a sample each; nothing is held back from the given frames."""
    return sample_config(
        "quick",
        network,
        {
            "chains": chains,
            "samples": chains,
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
