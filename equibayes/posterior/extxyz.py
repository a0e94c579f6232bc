"""Predictions as extended xyz, for ASE, OVITO and any program that reads text.

| key                                                 | where      | unit  |                                      |
|-----------------------------------------------------|------------|-------|--------------------------------------|
| energy, forces, stress                              | results    | eV, Å | means, where ASE expects them        |
| energy_std, energy_epistemic, energy_aleatoric      | info       | eV    | standard deviations                  |
| forces_std, forces_epistemic, forces_aleatoric      | arrays     | eV/Å  | per component                        |
| atom_sigma                                          | arrays     | eV/Å  | per atom: √ mean forces_std²         |
| novelty                                             | arrays     |       | per atom: 1 is the edge of the known |
| stress_std, stress_epistemic, stress_aleatoric      | info       | eV/Å³ | 3 × 3                                |
| pressure_std                                        | info       | eV/Å³ | σ of −(Sxx + Syy + Szz)/3            |
| energy_, forces_, stress_interval, interval_coverage | on request |      | half widths at this coverage         |
| energy_ensemble, forces_ensemble, stress_ensemble   | on request |       | samples last: [k], [n, 3·k], [9·k]   |
| energy_up_to_a_constant                             | info       |       | T if the reference lacks the formula |
| REF_energy, REF_forces, REF_stress                  | as usual   |       | labels of the input                  |

Columns have eight decimals, as ASE writes them.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data.extxyz import frame_text, labels_of
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import write_atomically
from equibayes.posterior.prediction import Prediction


def write_predictions(
    path: str | Path,
    predicted: Iterable[tuple[Structure, Prediction]],
    *,
    level: float | None = None,
    sigma: bool = True,
) -> int:
    """Write predictions one by one, in constant memory; returns how many.  The file is complete or absent.

    level  probability of the intervals to write, or None
    sigma  False: means alone
    """
    written = 0

    def write(temporary: Path) -> None:
        nonlocal written
        with temporary.open("w", encoding="utf-8") as file:
            for structure, prediction in predicted:
                file.write(_frame(structure, prediction, level, sigma=sigma))
                written += 1
        if not written:
            raise InputError(f"{path}: not written, since the data hold no frames to predict")

    write_atomically(path, write)
    return written


def _frame(structure: Structure, prediction: Prediction, level: float | None, *, sigma: bool) -> str:
    """One frame with the keys of the table above."""
    info, arrays = labels_of(structure)
    if sigma:
        _add_sigma(prediction, info, arrays)
    if not prediction.energy_known:
        info["energy_up_to_a_constant"] = True
    if level is not None:
        _add_intervals(prediction, level, info, arrays)
    if prediction.members is not None:
        _add_members(prediction.members, info, arrays)
    info["energy"], arrays["forces"] = prediction.energy, prediction.forces
    if prediction.stress is not None:
        info["stress"] = prediction.stress
    return frame_text(structure, info, arrays)


def _add_sigma(prediction: Prediction, info: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    for name in ("std", "epistemic", "aleatoric"):
        info[f"energy_{name}"] = getattr(prediction, f"energy_{name}")
        arrays[f"forces_{name}"] = getattr(prediction, f"forces_{name}")
    arrays["atom_sigma"] = np.sqrt(np.square(prediction.forces_std).mean(1))
    if prediction.novelty is not None:
        arrays["novelty"] = prediction.novelty
    if prediction.stress is not None:
        names = [*(f"stress_{name}" for name in ("std", "epistemic", "aleatoric")), "pressure_std"]
        info |= {name: getattr(prediction, name) for name in names}


def _add_intervals(prediction: Prediction, level: float, info: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    energy, forces = prediction.interval(level)
    info["interval_coverage"] = level
    if np.isfinite(energy):  # a calibration may cover only one of them
        info["energy_interval"] = energy
    if np.isfinite(forces).all():
        arrays["forces_interval"] = forces
    stress = prediction.stress_interval(level)
    if stress is not None and np.isfinite(stress).all():
        info["stress_interval"] = stress


def _add_members(members: dict[str, np.ndarray], info: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    info["energy_ensemble"] = members["energy"]
    arrays["forces_ensemble"] = np.moveaxis(members["forces"], 0, -1).reshape(len(members["forces"][0]), -1)
    if "stress" in members:
        info["stress_ensemble"] = np.moveaxis(members["stress"], 0, -1).ravel()
