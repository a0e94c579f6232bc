"""Frames of a simulation as extended xyz, including σ of each atom.

| key                    | where   | unit  |                                                    |
|------------------------|---------|-------|----------------------------------------------------|
| step, time             | info    | fs    |                                                    |
| energy, forces, stress | results | eV, Å | trajectory only: predictions are not labels        |
| energy_std             | info    | eV    | σ of the energy                                    |
| forces_std             | arrays  | eV/Å  | σ of each force component                          |
| stress_std, …          | info    | eV/Å³ | σ of the stress, 3 × 3 (trajectory of a crystal)   |
| pressure_std           | info    | eV/Å³ | σ of the pressure (trajectory of a crystal)        |
| atom_sigma             | arrays  | eV/Å  | one number per atom, to colour it by               |
| momenta                | arrays  | ASE   |                                                    |
| masses, move_mask      | arrays  | u     | only where the start has masses or fixed atoms     |
| max_devi_f             | info    | eV/Å  | candidates only: the deviation that made it one    |
"""

from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.constraints import FixAtoms
from ase.io.extxyz import read_xyz

from equibayes.data.extxyz import frame_text
from equibayes.data.stress import voigt_to_full
from equibayes.data.structures import Structure
from equibayes.simulate.trust import Deviation, atom_deviations


def trajectory_frame(atoms: Atoms, results: dict[str, Any], step: int, time_fs: float) -> str:
    """One frame with predictions and their σ."""
    info, arrays = _common(results, step, time_fs)
    info |= {"energy_std": results["energy_std"], "energy": results["energy"]}
    if "stress" in results:
        names = ("stress_std", "stress_epistemic", "stress_aleatoric", "stress")
        info |= {name: voigt_to_full(results[name]) for name in names} | {"pressure_std": results["pressure_std"]}
    arrays |= {"momenta": atoms.get_momenta(), "forces_std": results["forces_std"], "forces": results["forces"]}
    if atoms.has("masses"):
        arrays["masses"] = atoms.get_masses()
    held = [each.index for each in atoms.constraints if isinstance(each, FixAtoms)]
    if held:
        arrays["move_mask"] = ~np.isin(np.arange(len(atoms)), np.concatenate(held))
    return frame_text(_geometry(atoms), info, arrays)


def candidate_frame(
    atoms: Atoms, results: dict[str, Any], deviation: Deviation, step: int, time_fs: float, file: str
) -> str:
    """One frame to be labelled, without energy and forces, which could be mistaken for labels."""
    info, arrays = _common(results, step, time_fs)
    info |= {"max_devi_f": deviation.largest, "max_devi_atom": deviation.atom, "from": file}
    return frame_text(_geometry(atoms), info, arrays)


def read_frames(path: str | Path) -> list[Atoms]:
    """All frames of a trajectory written by `trajectory_frame`."""
    with Path(path).open(encoding="utf-8") as file:
        return list(read_xyz(file, slice(None)))


def _geometry(atoms: Atoms) -> Structure:
    return Structure(atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc)


def _common(results: dict[str, Any], step: int, time_fs: float) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    sigma = np.asarray(atom_deviations(results["forces_std"]))
    return {"step": step, "time": round(time_fs, 6)}, {"atom_sigma": sigma}
