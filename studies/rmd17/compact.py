"""A small posterior file for the repository: two samples in half precision."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data import Dataset
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.metrics import OUTLIER_THRESHOLD
from equibayes.evaluation.tables import measure
from equibayes.posterior.file import Posterior, load
from studies.rmd17.testing import Frames

NOTE = "half-precision.json"
KEPT = 2
FRAMES = 1000
"""Test frames on which files are compared."""
# diagnostics that only make the file large
LEFT_OUT = ("probes", "kinetic_by_group", "configurational_by_group")


def write_compact(
    path: Path, calibrated: Posterior, held_back: Dataset, test: Dataset, device: torch.device
) -> dict[str, Any]:
    """Write the file.  Returns the effect of half precision on all members, and the metrics of the stored ones."""
    frames = Frames(held_back, test[:FRAMES], device)
    rounded = replace(calibrated, samples=calibrated.samples.half().to(calibrated.samples.dtype))
    before, after = (frames.ask(posterior)[1][-1] for posterior in (calibrated, rounded))
    few, _ = frames.ask(spread_out(rounded, KEPT))
    replace(few, history=shortened(few)).save(path, half_precision=True)
    stored = frames.ask(load(path))[1][-1]
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "members": len(calibrated),
        "frames": len(frames.test),
        **change(before, after),
        "stored": {"members": stored.k, **accuracy(stored)},
        "units": {"force": "eV/Å", "energy": "eV"},
    }


def spread_out(posterior: Posterior, count: int) -> Posterior:
    """So many samples, evenly spaced over chains and steps: the first and the last of two."""
    rows = np.linspace(0, len(posterior) - 1, min(count, len(posterior))).round().astype(int).tolist()
    return replace(posterior, samples=posterior.samples[rows], chain=posterior.chain[rows], step=posterior.step[rows])


def shortened(posterior: Posterior) -> list[dict[str, Any]]:
    """Records with a validation, without diagnostics that users of a posterior do not need."""
    kept = [record for record in posterior.history if "validation_force_mae" in record]
    return [{name: value for name, value in record.items() if name not in LEFT_OUT} for record in kept]


def change(before: Evaluated, after: Evaluated) -> dict[str, float]:
    """Of predictions by rounding, and the accuracy before and after."""
    moved, sigma = after.force_mean - before.force_mean, after.force_sigma / before.force_sigma - 1
    accuracies = {"before": accuracy(before), "after": accuracy(after)}
    return {
        "force_change_rms": float((moved**2).mean() ** 0.5),
        "force_change_max": float(abs(moved).max()),
        "energy_change_rms": float(((after.energy_mean - before.energy_mean) ** 2).mean() ** 0.5),
        "sigma_relative_change_rms": float((sigma**2).mean() ** 0.5),
        "sigma_relative_change_max": float(abs(sigma).max()),
        **{f"{name}_{when}": value for when, own in accuracies.items() for name, value in own.items()},
    }


def accuracy(result: Evaluated) -> dict[str, float]:
    """Force error (eV/Å) and mean ln likelihood of forces, not recalibrated."""
    values = measure(result, OUTLIER_THRESHOLD)
    return {name: values[name] for name in ("force_mae", "force_mll")}
