"""Frames of a simulation as extended xyz, σ per atom included.

| key                  | where  | unit      |                                                            |
|----------------------|--------|-----------|------------------------------------------------------------|
| step, time           | info   | fs        |                                                            |
| energy, forces, stress | results | eV, Å   | of the trajectory alone: predictions are no labels         |
| energy_std           | info   | eV        | σ of the energy                                            |
| forces_std           | arrays | eV/Å      | σ of every force component                                 |
| atom_sigma           | arrays | eV/Å      | one number an atom, to colour it                           |
| momenta              | arrays | ASE's     |                                                            |
| max_devi_f           | info   | eV/Å      | of a candidate: why it is one                              |
"""

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.extxyz import read_xyz, write_xyz

from equibayes.simulate.trust import Deviation, atom_sigma


def trajectory_frame(atoms: Atoms, results: dict[str, Any], step: int, time_fs: float) -> str:
    """One frame with predictions and their σ."""
    frame = _geometry(atoms, results, step, time_fs)
    frame.set_momenta(atoms.get_momenta())
    frame.info["energy_std"] = results["energy_uncertainty"]
    frame.set_array("forces_std", results["forces_uncertainty"])
    means = {name: results[name] for name in ("energy", "forces", "stress") if name in results}
    frame.calc = SinglePointCalculator(frame, **means)
    return _text(frame)


def read_frames(path: str | Path) -> list[Atoms]:
    """All frames of a trajectory that was written by the above."""
    with Path(path).open(encoding="utf-8") as file:
        return list(read_xyz(file, slice(None)))


def candidate_frame(
    atoms: Atoms, results: dict[str, Any], deviation: Deviation, step: int, time_fs: float, file: str
) -> str:
    """One frame to be labelled: no energy and no forces, which somebody might take for labels."""
    frame = _geometry(atoms, results, step, time_fs)
    frame.info |= {"max_devi_f": deviation.largest, "max_devi_atom": deviation.atom, "from": file}
    return _text(frame)


def _geometry(atoms: Atoms, results: dict[str, Any], step: int, time_fs: float) -> Atoms:
    frame = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
    frame.info |= {"step": step, "time": round(time_fs, 6)}
    frame.set_array("atom_sigma", np.asarray(atom_sigma(results["forces_uncertainty"])))
    return frame


def _text(frame: Atoms) -> str:
    buffer = StringIO()
    write_xyz(buffer, [frame])
    return buffer.getvalue()
