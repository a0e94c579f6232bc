"""The crystal whose properties are asked for: read, checked, reduced to its primitive cell in standard orientation."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from equibayes.data.structures import FloatArray
from equibayes.errors import InputError

SYMPREC = 0.01
"""Å by which positions may differ from the symmetry that is looked for."""
VACUUM = 6.0
"""A layer without atoms that is thicker than this, in Å, belongs to a slab or a molecule in a box."""

_SYSTEMS = {2: "triclinic", 15: "monoclinic", 74: "orthorhombic", 142: "tetragonal", 167: "trigonal", 194: "hexagonal"}


@dataclass(frozen=True, eq=False)
class Crystal:
    """A perfect crystal and its symmetry.

    primitive     its primitive cell, in the standard orientation: cube axes along x, y and z, c of a hexagonal cell
                  along z
    conventional  [3, 3], rows: conventional lattice vectors in units of the primitive ones
    rotations     [R, 3, 3], the point group in Cartesian coordinates
    sites         one atom of the primitive cell for each set of equivalent atoms
    given         number of atoms in the structure that was given
    """

    primitive: Atoms
    conventional: FloatArray
    rotations: FloatArray
    sites: tuple[int, ...]
    space_group: str
    number: int
    system: str
    source: str
    given: int
    symprec: float

    @classmethod
    def of(cls, atoms: Atoms, source: str = "structure", symprec: float = SYMPREC) -> "Crystal":
        """Find the symmetry of a structure that is periodic in three directions."""
        check_packages()
        check_crystal(atoms, source)
        import spglib

        cell = (atoms.cell.array, atoms.get_scaled_positions(), atoms.numbers)
        found = _symmetry(spglib.standardize_cell, cell, source, to_primitive=True, no_idealize=False, symprec=symprec)
        primitive = Atoms(cell=found[0], scaled_positions=found[1], numbers=found[2], pbc=True)
        data = _symmetry(spglib.get_symmetry_dataset, found, source, symprec=symprec)
        return cls(
            primitive=primitive,
            conventional=np.linalg.inv(data.transformation_matrix).T,
            rotations=_cartesian(np.unique(data.rotations, axis=0), primitive.cell.array),
            sites=tuple(sorted(set(data.equivalent_atoms.tolist()))),
            space_group=data.international,
            number=int(data.number),
            system=next((name for last, name in _SYSTEMS.items() if data.number <= last), "cubic"),
            source=source,
            given=len(atoms),
            symprec=symprec,
        )

    def supercell(self, length: float) -> tuple[int, int, int]:
        """Repetitions of the primitive cell after which opposite faces are at least `length` Å apart."""
        counts = np.ceil(length / thickness(self.primitive) - 1e-6).astype(int)
        return int(counts[0]), int(counts[1]), int(counts[2])


def check_packages() -> None:
    """An `InputError` where phonopy, which brings spglib, is missing."""
    if any(find_spec(name) is None for name in ("phonopy", "spglib")):
        raise InputError("properties of crystals need phonopy; install it with: pip install 'equibayes[properties]'")


def read_crystal(name: str | Path) -> Atoms:
    """The first frame of any file that ASE reads; `file@5` is frame 5."""
    from ase.io import read

    path, _, frame = str(name).rpartition("@")
    whole = not path or Path(name).exists()
    path, frame = (str(name), "0") if whole else (path, frame)
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file; name a structure such as POSCAR, crystal.cif or crystal.xyz")
    if not frame.lstrip("+-").isdigit():
        raise InputError(f"{name}: one frame is needed, such as {path}@0")
    try:
        atoms = read(path, index=int(frame))
    except Exception as cause:  # each format of ASE fails in its own way
        told = " ".join(str(cause).split())[:100] or type(cause).__name__
        raise InputError(f"{name}: ASE cannot read it ({told}); give a POSCAR, CIF or extended xyz file") from cause
    assert isinstance(atoms, Atoms)  # not a list: one index was asked for
    _check_occupancy(atoms, str(name))
    return atoms


def check_crystal(atoms: Atoms, source: str) -> None:
    """An `InputError` for anything but a bulk crystal."""
    crystal = "properties are those of a bulk crystal"
    if not len(atoms):
        raise InputError(f"{source}: holds no atoms; {crystal}")
    if not atoms.pbc.all() or atoms.cell.rank < 3:
        raise InputError(
            f"{source}: not periodic in three directions; {crystal}: give its cell and pbc, as in a POSCAR or CIF file"
        )
    gaps = _gaps(atoms)
    if gaps.max() > VACUUM:
        raise InputError(
            f"{source}: no atoms in a layer of {gaps.max():.1f} Å along lattice vector {gaps.argmax() + 1}; {crystal}, "
            "not of a slab or of a molecule in a box"
        )


def thickness(atoms: Atoms) -> FloatArray:
    """[3] Å between opposite faces of the cell."""
    planes: FloatArray = 1 / np.linalg.norm(atoms.cell.reciprocal(), axis=1)
    return planes


def _gaps(atoms: Atoms) -> FloatArray:
    """[3] Å, the thickest layer without atoms along each lattice vector."""
    places = np.sort(atoms.get_scaled_positions(wrap=True), axis=0)
    steps = np.diff(places, axis=0, append=places[:1] + 1)
    return np.asarray(steps.max(axis=0) * thickness(atoms))


def _check_occupancy(atoms: Atoms, source: str) -> None:
    """CIF files list species and shares of each site; ASE keeps the first species of a shared one."""
    for shares in (atoms.info.get("occupancy") or {}).values():
        if len(shares) > 1 or any(share < 0.999 for share in shares.values()):
            raise InputError(
                f"{source}: sites are shared or partly occupied ({', '.join(shares)}); give an ordered structure"
            )


def _symmetry(function: Any, cell: Any, source: str, **options: Any) -> Any:
    """spglib raises or returns nothing, depending on its version."""
    problem = "no symmetry found"
    try:
        found = function(cell, **options)
        if found is not None:
            return found
    except Exception as cause:  # its own class is missing in older versions
        problem = str(cause)
    raise InputError(f"{source}: spglib cannot analyse it ({problem}); check positions and cell, or change --symprec")


def _cartesian(rotations: np.ndarray, cell: FloatArray) -> FloatArray:
    """[R, 3, 3] from fractional rotations, made exactly orthogonal."""
    turned = np.einsum("ji,rjk,kl->ril", cell, rotations, np.linalg.inv(cell).T)
    left, _, right = np.linalg.svd(turned)
    return np.asarray(left @ right)
