"""Distances used by the checks, against a sum over many images."""

import itertools

import numpy as np
import pytest
from ase.build import bulk

from equibayes.data import Structure
from equibayes.data.geometry import coincident_pair, nearest_distances, periodic_heights

SKEWED = np.array([[4.0, 0.0, 0.0], [1.9, 3.5, 0.0], [-1.2, 0.8, 5.0]])


def structure(positions: np.ndarray, cell: np.ndarray | None = None, pbc: tuple[bool, ...] = (True,) * 3) -> Structure:
    n = len(positions)
    if cell is None:
        return Structure(np.ones(n, int), positions)
    return Structure(np.ones(n, int), positions, cell, np.array(pbc))


@pytest.mark.parametrize("pbc", list(itertools.product([True, False], repeat=3)))
def test_nearest_distances_against_many_images(pbc: tuple[bool, ...]) -> None:
    positions = np.random.default_rng(0).uniform(-8, 8, size=(7, 3))  # far outside the cell, too
    frame = structure(positions, SKEWED, pbc)
    ranges = [range(-9, 10) if periodic else (0,) for periodic in pbc]
    images = np.array([np.array(shift) @ SKEWED for shift in itertools.product(*ranges)])
    distance = np.linalg.norm(positions[:, None, None] - positions[None, :, None] - images, axis=3)
    distance[distance < 1e-9] = np.inf
    np.testing.assert_allclose(nearest_distances(frame, np.arange(7)), distance.min(axis=(1, 2)), rtol=1e-10)


def test_heights() -> None:
    volume = abs(np.linalg.det(SKEWED))
    a, b, c = SKEWED
    expected = [volume / np.linalg.norm(np.cross(*pair)) for pair in ((b, c), (c, a), (a, b))]
    np.testing.assert_allclose(periodic_heights(structure(np.zeros((1, 3)), SKEWED)), expected)
    # Along one direction only the length of its vector counts, whatever the others are.
    only = structure(np.zeros((1, 3)), np.array([[0, 0, 0], [1.9, 3.5, 0], [0, 0, 0]]), (False, True, False))
    np.testing.assert_allclose(periodic_heights(only), [np.hypot(1.9, 3.5)])
    flat = structure(np.zeros((1, 3)), np.array([[1.0, 0, 0], [2.0, 0, 0], [0, 0, 1.0]]))
    assert periodic_heights(flat).min() < 1e-6


def test_coincident_atoms_in_a_molecule() -> None:
    positions = np.random.default_rng(1).normal(size=(30, 3))
    assert coincident_pair(structure(positions)) is None
    positions[17] = positions[4] + 0.0005
    assert coincident_pair(structure(positions)) == (4, 17)
    positions[17] = positions[4] + 0.0012 / np.sqrt(3)
    assert coincident_pair(structure(positions)) is None


@pytest.mark.parametrize("shift", [(1, 0, 0), (0, -1, 0), (3, -2, 1), (0, 0, 0)])
@pytest.mark.parametrize("corner", [0.0, 1e-5, 0.3], ids=["at the corner", "near it", "inside"])
def test_coincident_atoms_across_the_boundary(shift: tuple[int, ...], corner: float) -> None:
    place = corner * SKEWED.sum(0)
    positions = np.array([place, [2.0, 2.0, 2.0], place + np.array(shift) @ SKEWED - 0.0004])
    assert coincident_pair(structure(positions, SKEWED)) == (0, 2)
    if any(shift):
        assert coincident_pair(structure(positions, SKEWED, (False,) * 3)) is None


def test_perfect_crystal_has_no_coincident_atoms() -> None:
    atoms = bulk("Si", cubic=True) * (4, 4, 4)
    assert coincident_pair(Structure.from_atoms(atoms)) is None
    atoms.positions[300] = atoms.positions[7] + atoms.cell[0]
    assert coincident_pair(Structure.from_atoms(atoms)) == (7, 300)
