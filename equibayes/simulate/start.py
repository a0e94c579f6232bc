"""What a simulation takes from its start, and which starts an ensemble accepts."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
from ase import Atoms

from equibayes.data.graph import check_species
from equibayes.data.read import read
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior

LARGEST_GAP = 8.0
"""Å; a layer without atoms that is thicker is vacuum, whose volume is not that of the material."""


def start_structure(name: str, posterior: Posterior, **options: Any) -> Structure:
    """The first frame of any file that ASE reads, whose species the posterior must know."""
    frames = read(name, require_labels=False, other_formats=True, **options)
    if not len(frames):
        raise InputError(f"{name}: contains no structure to start from")
    check_species(frames[0], posterior.species_of)
    return frames[0]


def moving_part(start: Atoms) -> Structure:
    """What a simulation takes from its start: geometry, masses, constraints, and velocities if there are any."""
    taken = Structure.from_atoms(start.copy())  # a copy has no calculator, whose results would be labels
    return replace(taken, config_type="", momenta=taken.momenta if has_velocities(start) else None)


def start_digest(start: Structure) -> str:
    """Identifies a start: its geometry alone, where there is nothing else."""
    geometry = start.geometry_digest()
    if start.masses is None and start.momenta is None and not start.constraints:
        return geometry.hex()
    digest = hashlib.sha256(geometry)
    for array in (start.masses, start.momenta):
        digest.update(b"-" if array is None else b"+" + array.astype("<f8").tobytes())
    digest.update(repr([each.todict() for each in start.constraints]).encode())
    return digest.hexdigest()


def has_velocities(atoms: Atoms) -> bool:
    """Whether the atoms bring velocities of their own; all zero counts as none."""
    return bool(atoms.has("momenta") and atoms.get_momenta().any())


def free_degrees(atoms: Atoms) -> int:
    """3n without those that the constraints remove."""
    try:
        degrees = int(atoms.get_number_of_degrees_of_freedom())
    except (AttributeError, NotImplementedError) as cause:
        kinds = ", ".join(sorted({type(each).__name__ for each in atoms.constraints}))
        raise InputError(f"constraints {kinds}: degrees of freedom unknown; use others, such as FixAtoms") from cause
    if degrees < 1:
        raise InputError("the constraints of the start structure leave nothing to move; remove some")
    return degrees


def check_pressure(atoms: Atoms, ensemble: str) -> None:
    """An `InputError` for structures whose volume means nothing, or is not free to change."""
    others = "use nve, langevin or bussi"
    periodic = int(atoms.pbc.sum())
    if not periodic:
        raise InputError(f"ensemble {ensemble}: a structure without a cell has no pressure; {others}")
    if periodic < 3:
        raise InputError(
            f"ensemble {ensemble}: periodic in {periodic} of 3 directions; the volume of a slab or a wire is not "
            f"defined, and so it has no pressure; {others}"
        )
    gap, axis = max((gap, name) for gap, name in zip(_gaps(atoms), "abc"))
    if gap > LARGEST_GAP:
        raise InputError(
            f"ensemble {ensemble}: {gap:.1f} Å of vacuum along {axis}; a slab in vacuum has no pressure, and its cell "
            f"would collapse; {others}"
        )
    if atoms.constraints:
        raise InputError(f"ensemble {ensemble}: constraints do not go with a changing cell; {others}, or remove them")
    angles = atoms.cell.angles()
    if ensemble == "npt-anisotropic" and np.abs(angles - 90).max() > 1e-3:
        raise InputError(
            f"ensemble {ensemble}: cell angles {angles.round(2).tolist()}; needs right angles: use a supercell with "
            "such, or npt"
        )


def _gaps(atoms: Atoms) -> list[float]:
    """Å, the thickest layer without atoms along each of a, b, c."""
    places = np.sort(atoms.get_scaled_positions(wrap=True), axis=0)
    gaps = np.diff(places, axis=0, append=places[:1] + 1).max(axis=0)
    return list(gaps / np.linalg.norm(atoms.cell.reciprocal().array, axis=1))
