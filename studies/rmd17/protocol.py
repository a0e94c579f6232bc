"""Training frames, test frames and methods: the paper's protocol on revised MD17.

1000 frames of the official split train_01, of which 30 are held back; all other frames of the file are test frames.
With fewer training frames (where uncertainty matters most) the test frames stay the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from equibayes.baselines.contestants import Contestant
from equibayes.data import Dataset, read
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load
from equibayes.run.prepare import hold_back
from equibayes.run.progress import Display
from equibayes.run.settings import SampleConfig, sample_config
from studies.shared.runs import contestant

METHODS = ("bayes", "single", "ensemble", "dropout", "point")
MEMBERS = 8
"""k of all tables."""

# of presets other than `standard`, which has them already
CHAINS = {"chains": MEMBERS, "samples": MEMBERS}
# half a minute on a CPU, to see that everything runs
QUICK: dict[str, Any] = {
    "data": {"validation": 10},
    "burn_in": {"steps": 40, "batch_size": 4},
    "cycles": {"length": 8, "batch_size": 4},
    "guard": {"interval": 10},
    "output": {"validations": 4},
}
QUICK_FRAMES, QUICK_TEST = 30, 40


@dataclass(frozen=True, eq=False)
class Case:
    """name: ethanol, or ethanol-50; learn: training and held-back frames; test: in neither, nor in train_01."""

    name: str
    molecule: str
    learn: Dataset
    test: Dataset
    config: SampleConfig

    @property
    def learned_from(self) -> int:
        return len(self.learn) - self.config.data.validation

    @property
    def held_back(self) -> Dataset:
        return hold_back(self.learn, self.config.data.validation, self.config.seed)[1]


def make_case(
    molecule: str,
    data: Path,
    *,
    train: int | None = None,
    preset: str = "standard",
    network: str | None = None,
    seed: int = 0,
    quick: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> Case:
    """Read the frames.  train: number of training frames (besides those held back) instead of all of train_01."""
    if molecule not in data.name:
        raise InputError(f"{data}: is not a file of {molecule}; give rmd17_{molecule}.npz with --data")
    own = {} if preset == "standard" else CHAINS, QUICK if quick else {}
    config = sample_config(preset, "tiny" if quick else network, *own, changes or {}, {"seed": seed})
    official = read(f"{data}@train_01")
    known = {structure.geometry_digest() for structure in official}
    whole = read(data)
    apart = [i for i, structure in enumerate(whole) if structure.geometry_digest() not in known]
    test = whole.subset(apart, f"{whole.name} without train_01")
    wanted = QUICK_FRAMES if quick and train is None else train
    count = len(official) if wanted is None else wanted + config.data.validation
    if count > len(official):
        raise InputError(f"--train {wanted}: with those held back {count} frames, but train_01 has {len(official)}")
    name = molecule if train is None else f"{molecule}-{train}"
    return Case(name, molecule, official[:count], test[:QUICK_TEST] if quick else test, config)


def compete(method: str, case: Case, folder: Path, device: torch.device | str, display: Display) -> Contestant:
    """The posterior of a method, sampled, continued or loaded; networks of rivals get as many steps as one chain."""
    config = case.config
    common: dict[str, Any] = {"device": device, "display": display}
    if method == "bayes":
        found = contestant("bayes", case.learn, config, folder, **common)
        return replace(found, posterior=last_of_each_chain(found.posterior))
    if method == "single":  # as in the paper: all samples from one chain, one per cycle
        one = replace(config, chains=1, samples=MEMBERS)
        return replace(contestant("bayes", case.learn, one, folder / "single", **common), method="single")
    # the preset takes two samples from every chain; rivals have as many networks as the tables show
    steps = config.schedule(case.learned_from).total_steps
    rival = replace(config, samples=MEMBERS, burn_in=replace(config.burn_in, steps=steps))
    return contestant(method, case.learn, rival, folder, **common)


def last_of_each_chain(posterior: Posterior) -> Posterior:
    """The last sample of every chain."""
    last = {int(chain): row for row, chain in enumerate(posterior.chain)}
    rows = torch.tensor([last[chain] for chain in sorted(last)])
    parts = {name: getattr(posterior, name)[rows] for name in ("samples", "chain", "step")}
    return replace(posterior, **parts)


def finished_elsewhere(file: Path, case: Case) -> tuple[Contestant, Dataset]:
    """A posterior sampled elsewhere on the frames of this case, and the frames that it held back."""
    posterior = load(file)
    settings = posterior.config
    learned, held_back = hold_back(case.learn, settings["data"]["validation"], settings["seed"])
    if posterior.data["fingerprint"] != learned.fingerprint():
        raise InputError(f"{file}: was trained on other frames than those of {case.name}; give the right molecule")
    steps = int(posterior.step.max()) + 1  # counted from 0
    return Contestant("paper-chain", posterior, settings["chains"], steps, None), held_back
