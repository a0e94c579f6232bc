"""Structures: shapes, digests, the way to ASE and back."""

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms

from equibayes.data import Structure
from equibayes.errors import InputError
from tests.data.water_frames import water


def test_to_atoms_and_back_changes_nothing() -> None:
    first = Structure.from_atoms(water(0, periodic=True), source="x, frame 0")
    second = Structure.from_atoms(first.to_atoms())
    assert first.geometry_digest() == second.geometry_digest()
    assert first.label_digest() == second.label_digest()
    assert first.stress is not None
    assert first.stress.shape == (3, 3)
    np.testing.assert_array_equal(first.stress, first.stress.T)


def test_stress_keeps_voigt_order() -> None:
    atoms = Atoms("He", cell=[3, 3, 3], pbc=True)
    atoms.calc = SinglePointCalculator(atoms, stress=np.arange(1.0, 7.0))  # xx yy zz yz xz xy
    stress = Structure.from_atoms(atoms).stress
    np.testing.assert_array_equal(stress, [[1, 6, 5], [6, 2, 4], [5, 4, 3]])
    np.testing.assert_array_equal(Structure.from_atoms(atoms).to_atoms().get_stress(), np.arange(1.0, 7.0))


def test_forces_on_constrained_atoms_are_kept() -> None:
    atoms = water(0)
    forces = atoms.get_forces().copy()
    atoms.set_constraint(FixAtoms([0, 1, 2]))
    assert not atoms.get_forces().any()  # what ASE would say
    np.testing.assert_array_equal(Structure.from_atoms(atoms).forces, forces)


def test_arrays_can_be_handed_to_torch_without_complaint() -> None:
    shared = np.broadcast_to(np.array([8, 1]), (5, 2))
    structure = Structure(shared[0], np.zeros((2, 3)))
    assert structure.numbers.flags.writeable
    assert structure.numbers.flags.c_contiguous


def test_composition_and_length() -> None:
    structure = Structure.from_atoms(water(0))
    assert len(structure) == 3
    assert structure.composition == ((1, 2), (8, 1))


@pytest.mark.parametrize("field", ["numbers", "positions", "cell", "pbc"])
def test_digest_sees_every_part_of_the_geometry(field: str) -> None:
    parts = {"numbers": np.array([1, 1]), "positions": np.zeros((2, 3)), "cell": np.eye(3), "pbc": np.zeros(3, bool)}
    changed = {**parts, field: parts[field].copy()}
    changed[field].flat[0] = parts[field].flat[0] + 1
    assert Structure(**parts).geometry_digest() != Structure(**changed).geometry_digest()


def test_digest_does_not_see_the_sign_of_zero() -> None:
    assert (
        Structure(np.array([1]), np.array([[0.0, 0, 0]])).geometry_digest()
        == Structure(np.array([1]), np.array([[-0.0, 0, 0]])).geometry_digest()
    )


def test_missing_label_differs_from_zero() -> None:
    atoms = (np.array([1]), np.zeros((1, 3)))
    assert Structure(*atoms).label_digest() != Structure(*atoms, energy=0.0).label_digest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": np.zeros((3, 3))}, r"here: positions: of shape \(3, 3\) where \(2, 3\)"),
        ({"forces": np.zeros((2, 2))}, r"here: forces: of shape \(2, 2\) where \(2, 3\)"),
        ({"energy": "low"}, "here: energy: not numbers"),
        ({"numbers": np.array([1.5, 1.0])}, "here: atomic numbers: not whole numbers"),
        ({"positions": np.array([["a", "b", "c"]] * 2)}, "here: positions: not numbers"),
    ],
)
def test_wrong_shapes_and_types(changes: dict, message: str) -> None:
    parts = {"numbers": np.array([1, 1]), "positions": np.zeros((2, 3)), "source": "here", **changes}
    with pytest.raises(InputError, match=message):
        Structure(**parts)


def test_atoms_that_move_on_leave_their_structure_alone() -> None:
    """EMT keeps its forces in one array."""
    atoms = bulk("Cu", cubic=True)
    atoms.calc = EMT()
    atoms.rattle(0.1, seed=0)
    atoms.get_forces()
    structure = Structure.from_atoms(atoms)
    before = structure.positions.copy(), structure.forces.copy(), structure.cell.copy()
    atoms.rattle(0.1, seed=1)
    atoms.cell *= 1.1
    atoms.get_forces()
    for kept, now in zip(before, (structure.positions, structure.forces, structure.cell)):
        np.testing.assert_array_equal(kept, now)
