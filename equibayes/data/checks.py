"""Checks that a structure can be used: each failure is a one-line `InputError` with file, frame and remedy."""

from collections.abc import Sequence

import numpy as np

from equibayes.data.geometry import coincident_pair, periodic_heights
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.plural import counted

FARTHEST = 1e6
"""Å.  Coordinates beyond it are damage or a wrong unit, and float32 would have lost them anyway."""
LOWEST_CELL = 0.1
"""Å.  A periodic cell lower than this is flat: an atom would coincide with its own image."""


def check_geometry(structure: Structure) -> None:
    """Stop unless neighbours can be searched: atoms that exist, finite positions within reach, a cell with a volume."""
    where = structure.source or "structure"
    _check_elements(structure, where)
    _check_finite(structure, where)
    _check_cell(structure, where)


def check_structures(structures: Sequence[Structure]) -> None:
    """Stop at the first structure that cannot be used."""
    for structure in structures:
        check_geometry(structure)
        pair = coincident_pair(structure)
        if pair is not None:
            raise InputError(f"{structure.source}: atoms {pair[0]} and {pair[1]} (from 0) coincide; correct the frame")


def _check_elements(structure: Structure, where: str) -> None:
    if not len(structure):
        raise InputError(f"{where}: has no atoms; remove the frame")
    bad = np.flatnonzero((structure.numbers < 1) | (structure.numbers > 118))
    if bad.size:
        raise InputError(f"{where}: atom {bad[0]} (from 0) has atomic number {structure.numbers[bad[0]]}: correct it")


def _check_finite(structure: Structure, where: str) -> None:
    """NaN and infinity, as failed calculations leave them."""
    named = (("positions", structure.positions), ("cell", structure.cell), ("energy", structure.energy))
    for what, value in (*named, ("forces", structure.forces), ("stress", structure.stress)):
        if value is None or np.isfinite(value).all():
            continue
        atom = f" on atom {np.argwhere(~np.isfinite(value))[0][0]} (from 0)" if what in ("positions", "forces") else ""
        raise InputError(f"{where}: {what} not finite (NaN or inf){atom}; recompute or remove the frame")
    if np.abs(structure.positions).max() > FARTHEST or np.abs(structure.cell).max() > FARTHEST:
        raise InputError(f"{where}: coordinates beyond {FARTHEST:.0e} Å; check length_unit (--length-unit)")


def _check_cell(structure: Structure, where: str) -> None:
    if not structure.pbc.any():
        return
    lowest = periodic_heights(structure).min()
    if lowest < LOWEST_CELL:
        raise InputError(
            f'{where}: periodic, but its cell has no volume (height {lowest:.2g} Å); give the cell or set pbc="F F F"'
        )


def check_labels(structures: Sequence[Structure], found: dict[str, str], hints: dict[str, str], file: str) -> None:
    """Stop unless every structure has an energy and forces.

    `found` is the key under which a label was found, `hints` a sentence about one that was not found.
    """
    n = len(structures)
    for label in ("energy", "forces"):
        missing = [s.source.rpartition(" ")[2] for s in structures if getattr(s, label) is None]
        if not missing:
            continue
        if label not in found:
            alone = "equibayes info shows what the file holds"
            remedy = hints.get(label) or f"name their key with {label}_key=… (--{label}-key); {alone}"
            raise InputError(f"{file}: no {label} label in any of {counted(n, 'frame')}; {remedy}")
        first = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise InputError(
            f"{file}: {label} missing under '{found[label]}' in {len(missing)} of {counted(n, 'frame')} "
            f"(frame {first}, from 0); label or remove them"
        )


def check_forces(structures: Sequence[Structure]) -> None:
    """Stop at the first structure without forces: the likelihood would take them for 0."""
    for number, structure in enumerate(structures):
        if structure.forces is None:
            where = structure.source or f"frame {number} (from 0)"
            raise InputError(f"{where}: has no forces to learn from; label the frame or leave it out")
