"""Phonon bands by finite displacements in a supercell, with phonopy; the path is ASE's for the Bravais lattice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms

from equibayes.data.structures import FloatArray
from equibayes.solids.measurement import Bench
from equibayes.solids.members import Job
from equibayes.solids.quantity import Quantity

WHAT = "phonons"
DISPLACEMENT = 0.01
"""Å."""
POINTS = 151
"""q-points along the path."""
IMAGINARY = -0.1
"""THz; a frequency below this is imaginary, not the rounding of an acoustic mode at Γ."""


@dataclass(frozen=True, eq=False)
class Bands:
    """Frequencies along a path; imaginary ones are negative.

    frequencies  [M, points, bands] THz, in rising order at each point
    distance     [points] 1/Å along the path, for drawing
    q_points     [points, 3] in units of the primitive reciprocal lattice
    ticks        positions along `distance` and names of the special points
    supercell    repetitions of the primitive cell
    stable       share of the members without imaginary frequencies
    """

    frequencies: Quantity
    distance: FloatArray
    q_points: FloatArray
    ticks: list[tuple[float, str]]
    supercell: tuple[int, int, int]
    stable: float


def measure(bench: Bench, length: float) -> tuple[dict[str, Quantity], Bands]:
    """All symmetry-inequivalent displacements of every member, in one list."""
    counts = bench.crystal.supercell(length)
    prepared = {member: _prepare(own.atoms, counts) for member, own in bench.relaxed.items()}
    jobs: list[Job] = [
        (member, _atoms(cell)) for member, own in prepared.items() for cell in own.supercells_with_displacements
    ]
    states = iter(bench.evaluate(WHAT, jobs))
    path = bench.crystal.primitive.cell.bandpath(npoints=POINTS)
    found: dict[int, FloatArray] = {}
    for member, own in prepared.items():
        forces = [next(states).forces for _ in own.supercells_with_displacements]
        frequencies = _frequencies(own, forces, path.kpts)
        if np.isfinite(frequencies).all():
            found[member] = frequencies
        else:
            bench.leave_out(WHAT, member, "its frequencies are not finite")
    distance, places, names = path.get_linear_kpoint_axis()
    numbers = {
        "highest_frequency": bench.quantity({member: own.max() for member, own in found.items()}, "THz"),
        "lowest_frequency": bench.quantity({member: own.min() for member, own in found.items()}, "THz"),
    }
    stable = float(np.mean([own.min() > IMAGINARY for own in found.values()])) if found else 0.0
    return numbers, Bands(bench.quantity(found, "THz"), distance, path.kpts, _ticks(places, names), counts, stable)


def _prepare(atoms: Atoms, counts: Sequence[int]) -> Any:
    from phonopy import Phonopy
    from phonopy.structure.atoms import PhonopyAtoms

    cell = PhonopyAtoms(cell=atoms.cell.array, scaled_positions=atoms.get_scaled_positions(), numbers=atoms.numbers)
    phonon = Phonopy(cell, supercell_matrix=np.diag(counts), primitive_matrix=np.eye(3))
    phonon.generate_displacements(distance=DISPLACEMENT)
    return phonon


def _frequencies(phonon: Any, forces: list[FloatArray], q_points: FloatArray) -> FloatArray:
    """[points, bands] THz."""
    phonon.forces = forces
    phonon.produce_force_constants(show_drift=False)
    phonon.symmetrize_force_constants(show_drift=False)  # exact sum rules: acoustic modes are 0 at Γ
    return np.asarray(phonon.run_qpoints(q_points).frequencies)


def _atoms(cell: Any) -> Atoms:
    return Atoms(cell=cell.cell, scaled_positions=cell.scaled_positions, numbers=cell.numbers, pbc=True)


def _ticks(places: FloatArray, names: list[str]) -> list[tuple[float, str]]:
    """One tick for each place; two names where the path jumps."""
    ticks: list[tuple[float, str]] = []
    for place, name in zip(places.tolist(), names):
        own = "Γ" if name == "G" else name
        if ticks and abs(ticks[-1][0] - place) < 1e-9:
            if own != ticks[-1][1]:
                ticks[-1] = (place, f"{ticks[-1][1]}|{own}")
        else:
            ticks.append((place, own))
    return ticks
