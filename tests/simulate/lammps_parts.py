"""LAMMPS for tests: data files of ASE atoms, a quiet LAMMPS with atoms in it, several ranks, thermo tables of logs."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.data import atomic_masses, atomic_numbers

from equibayes.simulate.lammps_library import open_lammps


def in_standard_form(atoms: Atoms) -> Atoms:
    """Turned so that the cell is lower triangular, as LAMMPS wants it."""
    cell, _ = atoms.cell.standard_form()
    turned = atoms.copy()
    turned.set_cell(cell, scale_atoms=True)
    return turned


def write_data(path: Path, atoms: Atoms, elements: Sequence[str], room: float = 20.0) -> str:
    """A data file with all digits; `room` Å of box around what has no cell.  Returns its name."""
    cell, low = atoms.cell.array.copy(), np.zeros(3)
    for d in np.flatnonzero(~atoms.pbc):
        low[d] = atoms.positions[:, d].min() - room
        cell[d] = np.eye(3)[d] * (np.ptp(atoms.positions[:, d]) + 2 * room)
    lines = ["made for a test", "", f"{len(atoms)} atoms", f"{len(elements)} atom types"]
    for d, axis in enumerate("xyz"):
        lines.append(f"{low[d]:.17g} {low[d] + cell[d, d]:.17g} {axis}lo {axis}hi")
    lines.append(f"{cell[1, 0]:.17g} {cell[2, 0]:.17g} {cell[2, 1]:.17g} xy xz yz")
    lines += ["", "Masses", ""]
    lines += [f"{i + 1} {atomic_masses[atomic_numbers[name]]}" for i, name in enumerate(elements)]
    lines += ["", "Atoms # atomic", ""]
    for i, atom in enumerate(atoms):
        x, y, z = atom.position
        lines.append(f"{i + 1} {list(elements).index(atom.symbol) + 1} {x:.17g} {y:.17g} {z:.17g}")
    path.write_text("\n".join(lines) + "\n")
    return path.name


def head(data: str, atoms: Atoms, units: str = "metal") -> str:
    """The first lines of a script: units, boundaries, atoms."""
    boundary = " ".join("p" if periodic else "f" for periodic in atoms.pbc)
    return f"units {units}\nboundary {boundary}\natom_style atomic\nbox tilt large\nread_data {data}\n"


def quiet_lammps(folder: Path, atoms: Atoms, elements: Sequence[str], units: str = "metal") -> Any:
    """LAMMPS with these atoms; types are the elements in order."""
    lmp = open_lammps(["-log", "none", "-screen", "none"])
    write_data(folder / "atoms.data", atoms, elements)
    lmp.commands_string(head(str(folder / "atoms.data"), atoms, units))
    return lmp


def mpirun(ranks: int, words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A program on several ranks, one thread each."""
    start = [str(Path(sys.executable).parent / "mpirun"), "-launcher", "fork", "-n", str(ranks)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([*start, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def by_id(lmp: Any, name: str) -> np.ndarray:
    """An array of the atoms, in the order of their IDs (one rank)."""
    count = lmp.extract_setting("nlocal")
    order = np.argsort(np.array(lmp.numpy.extract_atom("id"))[:count])
    return np.array(lmp.numpy.extract_atom(name))[:count][order]


def thermo(log: Path) -> list[dict[str, np.ndarray]]:
    """Columns by name of each run in a log."""
    runs: list[dict[str, np.ndarray]] = []
    names: list[str] | None = None
    rows: list[list[float]] = []
    for line in log.read_text().splitlines():
        words = line.split()
        if words[:1] == ["Step"]:
            names, rows = words, []
        elif names is not None and len(words) == len(names) and words[0].lstrip("-").isdigit():
            rows.append([float(word) for word in words])
        elif names is not None and rows and (line.startswith("Loop time") or not words):
            runs.append({name: np.array(column) for name, column in zip(names, zip(*rows))})
            names = None
    return runs
