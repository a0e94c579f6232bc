"""From LAMMPS' box and atoms to a `Structure`: elements of types, images, cells, and atoms of all ranks in the order of their IDs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from equibayes.data.elements import atomic_number, symbol
from equibayes.data.structures import BoolArray, FloatArray, IntArray, Structure
from equibayes.errors import InputError
from equibayes.simulate.roomy import RoomyCell


def elements_of_types(lmp: Any, elements: Sequence[str] | None, known: Sequence[int]) -> IntArray:
    """[types] atomic numbers of LAMMPS' atom types 1, 2, …: as the user says, else from the labels of the types.

    known: atomic numbers that the posterior knows
    """
    types = lmp.extract_setting("ntypes")
    if elements:
        numbers = [atomic_number(name) for name in elements]
        if len(numbers) != types:
            raise InputError(
                f"--elements {' '.join(elements)}: {len(numbers)} elements for {types} atom types; name one for each, in order"
            )
    else:
        numbers = _labelled(lmp, types, known)
    unknown = [symbol(z) for z in numbers if z not in known]
    if unknown:
        raise InputError(
            f"element {', '.join(unknown)} is unknown to this posterior, which knows {', '.join(map(symbol, sorted(known)))}"
        )
    return np.array(numbers, dtype=np.int64)


def _labelled(lmp: Any, types: int, known: Sequence[int]) -> list[int]:
    """Elements from a `labelmap` whose labels are element symbols."""
    found = {_type_labelled(lmp, symbol(z)): z for z in known}
    missing = [str(i) for i in range(1, types + 1) if i not in found]
    if missing:
        raise InputError(
            f"which element is atom type {', '.join(missing)}? say so with --elements, one for each type in order, such as "
            "--elements O H, or in the script with: labelmap atom 1 O 2 H"
        )
    return [found[i] for i in range(1, types + 1)]


def _type_labelled(lmp: Any, label: str) -> int | None:
    """The atom type with a label; asking for one that is not there would be an error to LAMMPS."""

    def ask(function: str) -> int:
        lmp.command(f"variable equibayes_label equal {function}(atom,{label})")
        return int(lmp.extract_variable("equibayes_label"))

    try:
        return ask("label2type") if ask("is_typelabel") else None
    except Exception:  # no labels at all
        return None
    finally:
        lmp.command("variable equibayes_label delete")


def looks_swapped(lmp: Any, numbers: IntArray) -> str | None:
    """Words about a type whose mass is that of another type's element, where masses are given by type."""
    from ase.data import atomic_masses

    masses = lmp.extract_atom("mass")
    if not masses:
        return None
    for i, z in enumerate(numbers):
        mass = masses[i + 1]
        nearest = min(numbers.tolist(), key=lambda other: abs(atomic_masses[other] - mass))
        if mass > 0 and nearest != z:
            return (
                f"atom type {i + 1} is {symbol(z)} but has the mass {mass:g}, nearest to {symbol(nearest)}; "
                "is the order of the elements right?"
            )
    return None


class LocalAtoms:
    """Reads this rank's atoms: rows of (ID, type, x, y, z), float64, positions unwrapped.

    Positions that run on through the images of the cell change little from step to step, so that the neighbour list lasts.
    """

    def __init__(self, lmp: Any) -> None:
        self.lmp = lmp
        self.mask, self.zero, self.bits, self.bits2 = (
            lmp.extract_setting(name) for name in ("IMGMASK", "IMGMAX", "IMGBITS", "IMG2BITS")
        )

    def rows(self, count: int, tag: Any, x: Any) -> FloatArray:
        rows = np.empty((count, 5))
        if count:
            cell, periodic = self.box()
            image = np.asarray(self.lmp.numpy.extract_atom("image"))[:count]
            turns = (
                np.stack([image & self.mask, (image >> self.bits) & self.mask, image >> self.bits2], axis=1) - self.zero
            )
            rows[:, 0], rows[:, 1] = tag[:count], np.asarray(self.lmp.numpy.extract_atom("type"))[:count]
            rows[:, 2:] = x[:count] + (turns * periodic) @ cell
        return rows

    def box(self) -> tuple[FloatArray, BoolArray]:
        """Lattice vectors as rows, Å, and along which of them the box is periodic."""
        low, high, xy, yz, xz, periodic, _ = self.lmp.extract_box()
        (lx, ly, lz) = np.subtract(high, low)
        return np.array([[lx, 0, 0], [xy, ly, 0], [xz, yz, lz]], dtype=np.float64), np.array(periodic, dtype=bool)


class StructureBuilder:
    """Structures out of rows of all ranks.  Atoms stand in the order of their IDs, whatever rank they live on."""

    def __init__(self, numbers_of_types: IntArray, reach: float) -> None:
        """reach: Å up to which atoms may see each other."""
        self.numbers_of_types, self.with_room = numbers_of_types, RoomyCell(reach)

    def build(self, rows: FloatArray, cell: FloatArray, periodic: BoolArray) -> tuple[IntArray, Structure]:
        """IDs in ascending order, and the structure."""
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        numbers = self.numbers_of_types[rows[:, 1].astype(np.int64) - 1]
        return rows[:, 0].astype(np.int64), self.with_room(numbers, rows[:, 2:].copy(), cell, periodic, "LAMMPS")
