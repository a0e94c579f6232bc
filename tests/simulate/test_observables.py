"""Properties with their uncertainty over posterior samples."""

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, molecule

from equibayes.errors import InputError
from equibayes.posterior.file import load
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.observables import (
    bond_length,
    estimate,
    member_energies,
    radial_distribution,
)
from tests.simulate.member_trajectories import member_trajectories
from tests.simulate.posteriors import ETHANOL, ethanol_start


def test_estimate_of_known_numbers() -> None:
    """Samples with means 1 and 3: mean 2, spread 1 (ddof 0, as for every epistemic σ)."""
    found = estimate([np.full(10, 1.0), np.full(10, 3.0)])
    assert (found.mean, found.spread, found.sampling) == (2.0, 1.0, 0.0)
    np.testing.assert_array_equal(found.members, [1.0, 3.0])


def test_statistical_error_of_independent_draws() -> None:
    """4 samples of 1000 draws of N(0, 1): the error of the mean is 1/√4000, and blocks find it on average."""
    rng = np.random.default_rng(0)
    errors = [float(estimate(list(rng.normal(size=(4, 1000)))).sampling) for _ in range(50)]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(1 / np.sqrt(4000), rel=0.15)
    assert np.isnan(estimate([np.zeros(3)]).sampling), "too few frames to tell"
    with pytest.raises(InputError, match="at least one frame"):
        estimate([np.zeros(0)])


def test_mean_energy_over_members() -> None:
    frames = [ethanol_start() for _ in range(3)]
    for number, atoms in enumerate(frames):
        atoms.rattle(0.02, seed=number)
    values = member_energies(Calculator(ETHANOL, device="cpu", members=True), frames)
    assert np.shape(values) == (4, 3)
    predictions = load(ETHANOL).predict(frames)
    found = estimate(values)
    assert float(found.mean) == pytest.approx(np.mean([p.energy for p in predictions]), abs=1e-6)
    np.testing.assert_allclose(np.std(values, axis=0), [p.energy_epistemic for p in predictions], rtol=1e-6)
    with pytest.raises(InputError, match="members=True"):
        member_energies(Calculator(ETHANOL, device="cpu"), frames)


def test_bond_length() -> None:
    frames = [molecule("H2", positions=[[0, 0, 0], [0, 0, length]]) for length in (0.7, 0.8)]
    np.testing.assert_allclose(bond_length(frames, 0, 1), [0.7, 0.8])
    across = Atoms("H2", [[0.1, 0, 0], [4.9, 0, 0]], cell=[5, 5, 5], pbc=True)
    assert bond_length([across], 0, 1)[0] == pytest.approx(0.2)


def test_radial_distribution_of_a_gas_is_one() -> None:
    rng = np.random.default_rng(0)
    frames = [Atoms("H200O100", rng.uniform(0, 15, (300, 3)), cell=[15] * 3, pbc=True) for _ in range(10)]
    r, g = radial_distribution(frames, "H", "O", 6.0, bins=12)
    assert g.shape == (10, 12)
    assert r[0] == 0.25
    np.testing.assert_allclose(g.mean(0)[4:], 1.0, atol=0.05)


def test_radial_distribution_counts_neighbours() -> None:
    """Diamond: 4 neighbours at 2.35 Å, 12 at 3.84 Å, from the integral of g in a crystal and directly in a molecule."""
    atoms = bulk("Si", cubic=True)
    r, g = radial_distribution([atoms], "Si", "Si", 4.5, bins=450)
    shell = 4 * np.pi * r**2 * len(atoms) / atoms.get_volume() * 0.01 * g[0]
    assert shell[r < 3].sum() == pytest.approx(4.0)
    assert shell[(r > 3) & (r < 4)].sum() == pytest.approx(12.0)
    r, g = radial_distribution([molecule("CH4")], "C", "H", 2.0, bins=20)
    assert g.sum() * 0.1 == pytest.approx(4.0)
    with pytest.raises(InputError, match="no such pair in CH4"):
        radial_distribution([molecule("CH4")], "C", "O", 2.0)


def test_structure_over_members() -> None:
    """Every sample's own dynamics: they start alike, differ, and the spread of the bond length is theirs."""
    posterior = load(ETHANOL)
    runs = member_trajectories(
        posterior, ethanol_start(), Conditions("langevin", 300.0, seed=2), 60, every=5, discard=10
    )
    assert [len(frames) for frames in runs] == [10] * 4
    assert not np.array_equal(runs[0][-1].positions, runs[1][-1].positions)
    again = member_trajectories(
        posterior.subset(1), ethanol_start(), Conditions("langevin", 300.0, seed=2), 60, every=5
    )
    np.testing.assert_array_equal(again[0][-1].positions, runs[0][-1].positions)
    found = estimate([bond_length(frames, 0, 1) for frames in runs])
    assert 1.3 < float(found.mean) < 1.7, "a C–C bond, Å"
    assert 0 < float(found.spread) < 0.1
    np.testing.assert_allclose(found.members, [np.mean(bond_length(frames, 0, 1)) for frames in runs])
