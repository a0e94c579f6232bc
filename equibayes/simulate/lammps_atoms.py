"""The box and atoms of LAMMPS: elements of the atom types, unwrapped positions, lattice vectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from equibayes.data.elements import atomic_number, symbol
from equibayes.data.structures import BoolArray, FloatArray, IntArray
from equibayes.errors import InputError


def elements_of_types(lmp: Any, elements: Sequence[str] | None, known: Sequence[int]) -> IntArray:
    """[types] atomic numbers of atom types 1, 2, …: from `elements`, else from the type labels.

    known: atomic numbers known to the posterior
    """
    types = lmp.extract_setting("ntypes")
    if elements:
        numbers = [atomic_number(name) for name in elements]
        if len(numbers) != types:
            raise InputError(
                f"--elements {' '.join(elements)}: {len(numbers)} elements for {types} atom types; "
                "give one per type, in order"
            )
    else:
        numbers = _labelled(lmp, types, known)
    unknown = [symbol(z) for z in numbers if z not in known]
    if unknown:
        raise InputError(
            f"element {', '.join(unknown)} is unknown to this posterior, "
            f"which knows {', '.join(map(symbol, sorted(known)))}"
        )
    return np.array(numbers, dtype=np.int64)


def _labelled(lmp: Any, types: int, known: Sequence[int]) -> list[int]:
    """Elements from a `labelmap` whose labels are element symbols."""
    found = {_type_labelled(lmp, symbol(z)): z for z in known}
    missing = [str(i) for i in range(1, types + 1) if i not in found]
    if missing:
        raise InputError(
            f"which element is atom type {', '.join(missing)}? give --elements, one per type in order, such as "
            "--elements O H, or in the script with: labelmap atom 1 O 2 H"
        )
    return [found[i] for i in range(1, types + 1)]


def _type_labelled(lmp: Any, label: str) -> int | None:
    """The atom type with a label, if any; a direct query for a missing label is an error in LAMMPS."""

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
    """A warning if a type has the mass of the element of another type, None otherwise."""
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
                "check the order of the elements"
            )
    return None


class LocalAtoms:
    """Reads the atoms of this rank: rows of (ID, type, x, y, z), float64, positions unwrapped.

    Unwrapped positions change little from step to step, so that the neighbour list remains valid.
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
        """Lattice vectors as rows, Å, and the periodic directions."""
        low, high, xy, yz, xz, periodic, _ = self.lmp.extract_box()
        (lx, ly, lz) = np.subtract(high, low)
        return np.array([[lx, 0, 0], [xy, ly, 0], [xz, yz, lz]], dtype=np.float64), np.array(periodic, dtype=bool)
