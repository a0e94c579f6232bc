"""Small runs that tests of the chain runner share: bundled ethanol, the tiny network, a few dozen steps."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from equibayes.config import merge
from equibayes.data import Dataset, read
from equibayes.posterior.sample import make_runner
from equibayes.run.loop import ChainRunner
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.progress import Silent
from equibayes.run.settings import SampleConfig, sample_config

SMALL: dict[str, Any] = {
    "chains": 2,
    "samples": 4,
    "data": {"validation": 4},
    # all of the schedule, so that nothing here changes when a preset is tuned
    "burn_in": {
        "steps": 40,
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
"""20 frames, 16 to learn from: burn-in of 40 steps, then one cycle of 24 (whole epochs of 4 steps, half a cycle at a time)."""


def ethanol_frames(count: int = 20) -> Dataset:
    return read(f"bundled:ethanol@0:{count}")


def small_config(*changes: dict[str, Any]) -> SampleConfig:
    """The tiny network, `SMALL`, and changes to it, as nested values."""
    return sample_config("quick", "tiny", merge(SMALL, *changes))


def runner_of(
    data: Dataset,
    config: SampleConfig,
    *,
    identities: Sequence[int] | None = None,
    folder: Path | None = None,
    prepared: Prepared | None = None,
    display: Any = None,
) -> ChainRunner:
    """A runner on the CPU; `identities` runs those of the chains alone."""
    ready = prepared or prepare(data, config)
    if identities is not None:
        count = len(identities)
        per_chain = -(-config.samples // config.chains)
        ready = replace(ready, config=replace(ready.config, chains=count, samples=per_chain * count))
    runner = make_runner(ready, data, torch.device("cpu"), display or Silent(), identities)
    runner.folder = folder
    return runner


class Listener(Silent):
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.records: list[dict[str, Any]] = []

    def say(self, message: str) -> None:
        self.messages.append(message)

    def show(self, record: dict[str, Any]) -> None:
        self.records.append(record)
