"""Predictions as extended xyz, for ASE, OVITO and whoever reads text.

| key                                                  | where      | unit   |                                                        |
|------------------------------------------------------|------------|--------|--------------------------------------------------------|
| energy, forces, stress                               | results    | eV, Å  | means; where ASE's get_potential_energy() … look       |
| energy_std, energy_epistemic, energy_aleatoric       | info       | eV     | standard deviations                                    |
| forces_std, forces_epistemic, forces_aleatoric       | arrays     | eV/Å   | for every component                                    |
| atom_sigma                                           | arrays     | eV/Å   | one number an atom, to colour it: √ mean of forces_std² |
| stress_std                                           | info       | eV/Å³  | 3 × 3; the spread of the samples, no calibration       |
| energy_interval, forces_interval, interval_coverage  | on request |        | half widths that hold the truth with this probability  |
| energy_ensemble, forces_ensemble, stress_ensemble    | on request |        | of each sample, samples last: [k], [n, 3·k], [9·k]     |
| energy_up_to_a_constant                              | info       |        | T where the energy reference does not know the formula |
| REF_energy, REF_forces, REF_stress                   | as usual   |        | labels that the input had                              |

Columns have eight decimals, as ASE writes them.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from equibayes.data.structures import Structure, full_to_voigt
from equibayes.errors import InputError
from equibayes.files import write_atomically
from equibayes.posterior.predict import Prediction

if TYPE_CHECKING:
    from ase import Atoms


def write_predictions(
    path: str | Path, predicted: Iterable[tuple[Structure, Prediction]], *, level: float | None = None
) -> int:
    """Write one after the other, in constant memory; returns how many.  The file is whole or not there.

    level  probability of the intervals to write, or None
    """
    from ase.io.extxyz import write_xyz

    written = 0

    def write(temporary: Path) -> None:
        nonlocal written
        with temporary.open("w", encoding="utf-8") as file:
            for structure, prediction in predicted:
                write_xyz(file, [to_atoms(structure, prediction, level=level)])
                written += 1
        if not written:
            raise InputError(f"{path}: not written, since the data hold no frames to predict")

    write_atomically(path, write)
    return written


def to_atoms(structure: Structure, prediction: Prediction, *, level: float | None = None) -> "Atoms":
    """ASE atoms that carry a prediction as in the table above."""
    from ase import Atoms
    from ase.calculators.singlepoint import SinglePointCalculator

    atoms = Atoms(numbers=structure.numbers, positions=structure.positions, cell=structure.cell, pbc=structure.pbc)
    info, arrays = _labels(structure)
    results: dict[str, Any] = {"energy": prediction.energy, "forces": prediction.forces}
    for name in ("std", "epistemic", "aleatoric"):
        info[f"energy_{name}"] = getattr(prediction, f"energy_{name}")
        arrays[f"forces_{name}"] = getattr(prediction, f"forces_{name}")
    arrays["atom_sigma"] = np.sqrt(np.square(prediction.forces_std).mean(1))
    if prediction.stress is not None:
        results["stress"] = full_to_voigt(prediction.stress)
        info["stress_std"] = prediction.stress_std
    if not prediction.energy_known:
        info["energy_up_to_a_constant"] = True
    if level is not None:
        _add_intervals(prediction, level, info, arrays)
    if prediction.members is not None:
        _add_members(prediction.members, info, arrays)
    atoms.info.update(info)
    for name, values in arrays.items():
        atoms.set_array(name, values)
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def _labels(structure: Structure) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the input said, under names that nobody takes for a prediction."""
    info: dict[str, Any] = {"config_type": structure.config_type} if structure.config_type else {}
    if structure.energy is not None:
        info["REF_energy"] = structure.energy
    if structure.stress is not None:
        info["REF_stress"] = structure.stress
    return info, {} if structure.forces is None else {"REF_forces": structure.forces}


def _add_intervals(prediction: Prediction, level: float, info: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    energy, forces = prediction.interval(level)
    info["interval_coverage"] = level
    if np.isfinite(energy):  # a calibration may know of one of them alone
        info["energy_interval"] = energy
    if np.isfinite(forces).all():
        arrays["forces_interval"] = forces


def _add_members(members: dict[str, np.ndarray], info: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    info["energy_ensemble"] = members["energy"]
    arrays["forces_ensemble"] = np.moveaxis(members["forces"], 0, -1).reshape(len(members["forces"][0]), -1)
    if "stress" in members:
        info["stress_ensemble"] = np.moveaxis(members["stress"], 0, -1).ravel()
