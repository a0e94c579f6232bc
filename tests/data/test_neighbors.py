"""Neighbour lists against ASE's, on cells of every kind."""

import numpy as np
import pytest
from ase import Atoms
from ase.neighborlist import neighbor_list as ase_neighbor_list
from hypothesis import given, settings
from hypothesis import strategies as st

from equibayes.data.neighbors import NeighborList, neighbor_list


def as_set(receiver, sender, vector) -> list[tuple]:
    """Edges in a comparable order, vectors rounded to 1e-6 Å."""
    return sorted((int(i), int(j), *np.round(v + 0.0, 6) + 0.0) for i, j, v in zip(receiver, sender, vector))


def assert_equals_ase(positions, cell, pbc, r_max) -> NeighborList:
    ours = neighbor_list(positions, cell, pbc, r_max)
    i, j, vector = ase_neighbor_list(
        "ijD", Atoms(numbers=[1] * len(positions), positions=positions, cell=cell, pbc=pbc), r_max
    )
    assert as_set(ours.receiver, ours.sender, ours.vector) == as_set(i, j, vector)
    assert_sound(ours, len(positions), r_max)
    return ours


def assert_sound(edges: NeighborList, atoms: int, r_max: float) -> None:
    """Sorted by receiver; opposite edges are opposite, and each other's opposite."""
    assert np.all(np.diff(edges.receiver) >= 0)
    assert edges.receiver.dtype == edges.sender.dtype == edges.reverse.dtype == np.int64
    assert np.all(np.linalg.norm(edges.vector, axis=1) <= r_max)
    np.testing.assert_array_equal(edges.reverse[edges.reverse], np.arange(len(edges.reverse)))
    np.testing.assert_array_equal(edges.receiver[edges.reverse], edges.sender)
    np.testing.assert_array_equal(edges.sender[edges.reverse], edges.receiver)
    np.testing.assert_allclose(edges.vector[edges.reverse], -edges.vector, atol=1e-12)


def random_cell(rng: np.random.Generator, skew: float) -> np.ndarray:
    """Lattice vectors of 2 to 5 Å, skewed, volume not too small."""
    while True:
        cell = np.diag(rng.uniform(2, 5, 3)) + skew * rng.normal(size=(3, 3))
        lengths = np.linalg.norm(cell, axis=1)
        if abs(np.linalg.det(cell)) > 0.15 * lengths.prod():
            return cell


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    atoms=st.integers(1, 6),
    skew=st.sampled_from([0.0, 0.5, 1.5]),
    pbc=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    r_max=st.floats(1.0, 5.0),
)
def test_random_cells(seed, atoms, skew, pbc, r_max):
    """Triclinic, skewed, mixed boundary conditions, atoms outside the cell, cells smaller than the cutoff."""
    rng = np.random.default_rng(seed)
    cell = random_cell(rng, skew)
    positions = rng.uniform(-1.5, 2.5, size=(atoms, 3)) @ cell
    assert_equals_ase(positions, cell, np.array(pbc), r_max)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), atoms=st.integers(1, 12), r_max=st.floats(0.5, 6.0))
def test_molecules_without_a_cell(seed, atoms, r_max):
    positions = np.random.default_rng(seed).uniform(-4, 4, size=(atoms, 3))
    assert_equals_ase(positions, np.zeros((3, 3)), np.zeros(3, dtype=bool), r_max)


def test_self_images():
    """One atom in a cube of 2 Å: 6 images at 2 Å, 12 at 2√2 Å, 8 at 2√3 Å."""
    edges = assert_equals_ase(np.zeros((1, 3)), 2.0 * np.eye(3), np.ones(3, dtype=bool), 3.5)
    counts = np.unique(np.round(np.linalg.norm(edges.vector, axis=1), 6), return_counts=True)
    np.testing.assert_allclose(counts[0], [2, 2 * np.sqrt(2), 2 * np.sqrt(3)], atol=1e-6)
    assert counts[1].tolist() == [6, 12, 8]
    assert set(edges.sender.tolist()) == {0}


def test_direction_is_from_receiver_to_sender():
    edges = neighbor_list(np.array([[0.0, 0, 0], [1.0, 0, 0]]), np.zeros((3, 3)), np.zeros(3, dtype=bool), 2.0)
    assert edges.receiver.tolist() == [0, 1]
    assert edges.sender.tolist() == [1, 0]
    np.testing.assert_allclose(edges.vector, [[1, 0, 0], [-1, 0, 0]])


@pytest.mark.parametrize("count", [0, 1])
def test_nobody_near(count):
    edges = neighbor_list(np.zeros((count, 3)), np.zeros((3, 3)), np.zeros(3, dtype=bool), 4.0)
    assert len(edges.receiver) == len(edges.sender) == len(edges.reverse) == 0
    assert edges.vector.shape == (0, 3)


def test_partly_periodic_without_full_cell():
    """A chain along x whose cell has no other vectors, as ASE allows."""
    cell = np.zeros((3, 3))
    cell[0, 0] = 2.5
    edges = neighbor_list(np.array([[0.1, 0.2, 0.3]]), cell, np.array([True, False, False]), 6.0)
    assert sorted(np.round(edges.vector[:, 0], 6).tolist()) == [-5.0, -2.5, 2.5, 5.0]
    assert_sound(edges, 1, 6.0)
