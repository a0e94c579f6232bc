"""Frames to learn from and to judge by, and the settings with which they are learned."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data import Dataset, read
from studies.presets.frames import frames as preset_frames

FOLDER = Path(os.environ.get("SHARED", "../shared")) / "data"


@dataclass(frozen=True)
class Case:
    """frames to learn from, of which `held` are held back; `judged` others; settings beyond the preset `quick`."""

    frames: int
    held: int
    judged: int
    settings: dict[str, Any]

    def config(self, steps: int | None) -> dict[str, Any]:
        values = {name: dict(value) for name, value in self.settings.items()}
        values["data"] = {"validation": self.held}
        if steps is not None:
            values["burn_in"] = values.get("burn_in", {}) | {"steps": steps}
            values["cycles"] = values.get("cycles", {}) | {"length": max(2, steps // 10)}
        return values


def _steps(steps: int, batch: int = 4) -> dict[str, Any]:
    return {
        "sampler": {"mass": "matrix"},
        "burn_in": {"steps": steps, "batch_size": batch},
        "cycles": {"length": steps // 10, "batch_size": batch},
    }


CASES = {
    "ethanol": Case(300, 30, 100, _steps(4000)),
    "aspirin": Case(300, 30, 60, _steps(2500)),
    "3bpa": Case(300, 30, 60, _steps(2000)),
    "silicon": Case(150, 20, 24, _steps(2000, 2)),
    "water": Case(100, 12, 10, _steps(1500, 1)),
}


def frames(name: str) -> tuple[Dataset, Dataset]:
    """Frames to learn from, those that are held back included, and frames to judge by."""
    case = CASES[name]
    if name == "3bpa":
        learned = read(FOLDER / "3bpa" / "train_300K.xyz.gz")
        others = read(FOLDER / "3bpa" / "test_300K.xyz.gz")
        chosen = np.linspace(0, len(others) - 1, case.judged).astype(int)
        return learned.subset(range(case.frames + case.held)), others.subset(chosen)
    if name == "water":
        data = read(FOLDER / "periodic" / "water_pbe0ts_deepmd.npz")
        order = np.random.default_rng(0).permutation(len(data))
        count = case.frames + case.held
        return data.subset(order[:count]), data.subset(order[count : count + case.judged])
    learned, judged = preset_frames(name, None, FOLDER)
    return learned.subset(range(case.frames + case.held)), judged.subset(range(min(case.judged, len(judged))))
