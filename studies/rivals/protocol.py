"""Frames and metrics of all rivals, those of `equibayes compare bundled:ethanol@train --test bundled:ethanol@test`.

1000 frames of the bundled split `train`, of which 30 are held back; with `frames` = N the first N + 30 of them, as in
studies/rmd17.  Test frames are always the same, and only the metrics use their labels.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data import Dataset, read
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.metrics import OUTLIER_THRESHOLD
from equibayes.evaluation.tables import measure
from equibayes.run.prepare import hold_back
from equibayes.run.settings import SampleConfig, sample_config
from studies.shared.results import provenance, save_json

TRAIN, TEST = "bundled:ethanol@train", "bundled:ethanol@test"


@dataclass(frozen=True, eq=False)
class Frames:
    """together: learned and held_back frames, which training splits in the same way; config: settings of the
    networks."""

    together: Dataset
    learned: Dataset
    held_back: Dataset
    test: Dataset
    config: SampleConfig


def frames_of(count: int | None, *, seed: int = 0, test: int | None = None) -> Frames:
    """count: training frames (None: all but those held back); test: number of test frames (None: all)."""
    config = sample_config("quick", None, {"seed": seed})
    whole = read(TRAIN)
    together = whole if count is None else whole[: count + config.data.validation]
    return Frames(together, *hold_back(together, config.data.validation, seed), read(TEST)[:test], config)


@dataclass
class Clock:
    """Seconds by name: `wall` time, and `cpu` time summed over threads, which other programs disturb less."""

    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.monotonic(), time.process_time()
        yield
        self.wall[name], self.cpu[name] = time.monotonic() - began[0], time.process_time() - began[1]


def begin(parser: argparse.ArgumentParser, frames: int | None = None) -> tuple[argparse.Namespace, Frames, Clock]:
    """The options that trained rivals share, their frames and a clock; frames: default of --frames (None: 970)."""
    words = f"training frames (default {frames or 970})"
    parser.add_argument("--frames", type=int, default=frames, metavar="N", help=words)
    parser.add_argument("--folder", type=Path, required=True, help="keeps the networks, in FOLDER/970 or FOLDER/N")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the results")
    parser.add_argument("--seed", type=int, default=0, help="seed of networks and held-back frames (default 0)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    return options, frames_of(options.frames, seed=options.seed), Clock()


def arrays_of(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions [n, a, 3] Å, forces [n, a, 3] eV/Å and energies [n] eV of frames of one molecule."""
    if any(s.forces is None or s.energy is None for s in data):
        raise ValueError(f"{data.name}: every frame needs energy and forces")
    names = ("positions", "forces", "energy")
    positions, forces, energy = (np.array([getattr(s, name) for s in data], dtype=np.float64) for name in names)
    return positions, forces, energy


def evaluated(
    data: Dataset,
    energy: tuple[np.ndarray, np.ndarray, float],
    forces: tuple[np.ndarray, np.ndarray, float],
) -> Evaluated:
    """Predictions of n frames in the form that the metrics need.

    energy, forces: mean, epistemic σ (both [n] eV, and [n, a, 3] eV/Å) and one aleatoric σ for all
    """
    shape = {"energy": (-1,), "force": (-1, 3)}
    arrays: dict[str, np.ndarray] = {}
    for name, (mean, epistemic, aleatoric) in (("energy", energy), ("force", forces)):
        mean, epistemic = mean.reshape(shape[name]), epistemic.reshape(shape[name])
        noise = np.full_like(epistemic, aleatoric)
        arrays |= {f"{name}_mean": mean, f"{name}_epistemic": epistemic, f"{name}_aleatoric": noise}
        arrays[f"{name}_sigma"] = np.hypot(epistemic, noise)
    _, true_forces, true_energy = arrays_of(data)
    return Evaluated(
        name=data.name,
        k=1,
        structures=data.structures,
        energy_true=true_energy,
        force_true=true_forces.reshape(-1, 3),
        number=np.concatenate([s.numbers for s in data]),
        frame=np.repeat(np.arange(len(data)), data.n_atoms),
        **arrays,
    )


def scale_of(error: np.ndarray, sigma: np.ndarray) -> float:
    """The factor on σ of largest Gaussian likelihood: √ of the mean of (error/σ)²."""
    return float(np.sqrt(np.mean(np.square(error / sigma))))


def held_back_factors(held: Evaluated) -> tuple[float, float]:
    """Factors on force and energy σ from the held-back frames."""
    return scale_of(held.force_error, held.force_sigma), scale_of(held.energy_error, held.energy_sigma)


def scaled(result: Evaluated, forces: float, energy: float) -> Evaluated:
    """The same with every σ multiplied."""
    parts = ("sigma", "epistemic", "aleatoric")
    changed = {f"force_{part}": forces * getattr(result, f"force_{part}") for part in parts}
    changed |= {f"energy_{part}": energy * getattr(result, f"energy_{part}") for part in parts}
    return replace(result, **changed)


def write(path: Path, frames: Frames, methods: dict[str, Evaluated], clock: Clock, **about: Any) -> None:
    """Metrics of each method (or variant) on the test frames, with settings and provenance."""
    content = {
        "data": {"train": TRAIN, "test": TEST},
        "frames": {name: len(getattr(frames, name)) for name in ("learned", "held_back", "test")},
        "fingerprints": {name: getattr(frames, name).fingerprint() for name in ("learned", "held_back", "test")},
        "seed": frames.config.seed,
        **about,
        "seconds": {"wall": clock.wall, "cpu": clock.cpu},
        "units": {"energy": "eV", "force": "eV/Å", "seconds": "s"},
        "provenance": provenance(),
        "methods": {name: measure(result, OUTLIER_THRESHOLD) for name, result in methods.items()},
    }
    save_json(path, content)
    for name, values in content["methods"].items():
        print(summary(name, values), flush=True)


def summary(name: str, values: dict[str, Any]) -> str:
    """One line for the screen."""
    auc = "–" if values["force_auc"] is None else f"{values['force_auc']:.3f}"
    return (
        f"{name}: force error {1e3 * values['force_mae']:.1f} meV/Å (RMS {1e3 * values['force_rmse']:.1f}), ln likelihood "
        f"{values['force_mll']:.3f}, AUC {auc}, in 68 % {100 * values['force_coverage_68']:.1f}, in 95 % "
        f"{100 * values['force_coverage_95']:.1f}, energy error {1e3 * values['energy_mae']:.1f} meV"
    )
