"""Small runs that tests share: bundled ethanol, the tiny network, a few dozen steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from equibayes.bayes.potential import Evaluation, Potential
from equibayes.config import merge
from equibayes.data import Dataset, read
from equibayes.engine.select import make_stepper
from equibayes.run.chains import Chains, make_chains
from equibayes.run.loop import run
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.progress import Silent
from equibayes.run.settings import SampleConfig, sample_config
from equibayes.run.state import RunState
from equibayes.run.store import FolderStore
from equibayes.sampling.schedule import Schedule

SMALL: dict[str, Any] = {
    "chains": 2,
    "samples": 4,
    "data": {"validation": 4},
    # all of the schedule, so that nothing here changes when a preset is tuned
    "sampler": {"mass": "diagonal"},
    "labels": {"noise": 1.0},
    "burn_in": {
        "steps": 40,
        "epochs": None,
        "batch_size": 4,
        "initial": 1e-2,
        "final": 1e-5,
        "decay": "exponential",
        "freeze_mass": 0.9,
        "noise_free": 0.1,
        "early": 0.0,
    },
    "cycles": {"kind": "rise_and_fall", "length": 20, "batch_size": 4, "peak": 1e-3},
    "guard": {"interval": 10},
}
"""20 frames, 16 to learn from: burn-in of 40 steps, then one cycle of 24 (whole epochs of 4 steps, half a cycle at a
time)."""


def ethanol_frames(count: int = 20) -> Dataset:
    return read(f"bundled:ethanol@0:{count}")


def small_config(*changes: dict[str, Any]) -> SampleConfig:
    """The tiny network, `SMALL`, and changes to it, as nested values."""
    return sample_config("quick", "tiny", merge(SMALL, *changes))


@dataclass
class Trial:
    """Chains on the CPU that a test runs, in a folder or without."""

    chains: Chains
    folder: Path | None = None
    display: Any = None

    @property
    def potential(self) -> Potential:
        return self.chains.potential

    @property
    def schedule(self) -> Schedule:
        return self.chains.course.schedule

    def run(self, *, resume: bool = False, stepper: Any = make_stepper) -> RunState:
        store = FolderStore(self.folder, resume=resume) if self.folder else None
        return run(self.chains, store, self.display, stepper=stepper)

    def watch(self, note: Callable[[torch.Tensor, torch.Tensor, Evaluation], None]) -> None:
        """Have `note(position, indices, evaluation)` called for every evaluation; it may spoil the gradient in
        place."""
        self.chains = replace(self.chains, potential=Watched(self.chains.potential, note))


class Watched(Potential):
    """A potential that shows each of its evaluations."""

    def __init__(self, inner: Potential, note: Callable[[torch.Tensor, torch.Tensor, Evaluation], None]) -> None:
        super().__init__(inner.model, inner.data, inner.prior, objective=inner.objective, dropout=inner.dropout)
        self.inner, self.note = inner, note

    @property
    def fusable(self) -> bool:
        """An engine would not call it."""
        return False

    def __call__(
        self,
        position: torch.Tensor,
        indices: torch.Tensor,
        feature_mask: torch.Tensor | None = None,
        balance: float = 0.0,
    ) -> Evaluation:
        evaluation = self.inner(position, indices, feature_mask, balance)
        self.note(position, indices, evaluation)
        return evaluation


def runner_of(
    data: Dataset,
    config: SampleConfig,
    *,
    identities: Sequence[int] | None = None,
    folder: Path | None = None,
    prepared: Prepared | None = None,
    display: Any = None,
) -> Trial:
    """Chains on the CPU; `identities` runs those of the chains alone."""
    ready = prepared or prepare(data, config)
    if identities is not None:
        count = len(identities)
        per_chain = -(-config.samples // config.chains)
        ready = replace(ready, config=replace(ready.config, chains=count, samples=per_chain * count))
    return Trial(make_chains(ready, data, "cpu", identities=identities), folder, display)


class Listener(Silent):
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.records: list[dict[str, Any]] = []

    def say(self, message: str) -> None:
        self.messages.append(message)

    def show(self, record: dict[str, Any]) -> None:
        self.records.append(record)
