"""Cells with vacuum: the same energy and forces as without a cell, and a virial that belongs to them."""

import numpy as np

from equibayes.simulate.vacuum_cell import VacuumCell
from tests.samples import slab, water
from tests.simulate.posteriors import random_posterior

POSTERIOR = random_posterior()


def test_a_molecule_does_not_see_its_images() -> None:
    alone, make = water(), VacuumCell(POSTERIOR.network.r_max)
    skewed = np.array([[1.0, 0.0, 0.0], [0.4, 1.0, 0.0], [0.1, -0.3, 1.0]])
    boxed = make(alone.numbers, alone.positions, skewed, np.zeros(3, dtype=bool), "")
    one, other = POSTERIOR.predict(alone), POSTERIOR.predict(boxed)
    np.testing.assert_allclose(other.forces, one.forces, rtol=0, atol=1e-12)
    virial = -abs(np.linalg.det(boxed.cell)) * other.stress
    np.testing.assert_allclose(virial, np.einsum("ni,nj->ij", alone.positions, one.forces), rtol=0, atol=1e-10)


def test_periodic_directions_are_kept() -> None:
    alone = slab()
    boxed = VacuumCell(POSTERIOR.network.r_max)(alone.numbers, alone.positions, alone.cell, alone.pbc, "")
    np.testing.assert_array_equal(boxed.cell[:2], alone.cell[:2])
    np.testing.assert_allclose(POSTERIOR.predict(boxed).forces, POSTERIOR.predict(alone).forces, rtol=0, atol=1e-12)


def test_the_cell_stays_while_atoms_move_and_grows_when_they_leave() -> None:
    alone, make, none = water(), VacuumCell(5.0), np.zeros(3, dtype=bool)
    first = make(alone.numbers, alone.positions, np.eye(3), none, "").cell
    np.testing.assert_array_equal(make(alone.numbers, 1.5 * alone.positions, np.eye(3), none, "").cell, first)
    positions = alone.positions + np.array([[30.0, 0, 0], [0, 0, 0], [0, 0, 0]])
    far = make(alone.numbers, positions, np.eye(3), none, "").cell
    assert far[0, 0] > np.ptp(positions[:, 0]) + 5
    np.testing.assert_array_equal(far[1:], first[1:])
