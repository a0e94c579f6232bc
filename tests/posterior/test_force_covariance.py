"""Covariances of predicted forces: against the members, the laws of mechanics, and what was drawn from a known one."""

from dataclasses import replace

import numpy as np
import pytest

from equibayes.data.rigid import rigid_directions_of
from equibayes.errors import InputError
from equibayes.posterior import force_noise
from equibayes.posterior.calibration import Calibrated, Calibration, Rescaling
from equibayes.posterior.force_covariance import (
    conditioned,
    net_force,
    shrinkage,
    shrunk,
    stretching,
    torque,
)
from equibayes.simulate.calculator import Calculator
from tests.samples import ethanol, salt
from tests.simulate.posteriors import random_posterior

K = 6


def anisotropic(covariance, k=K, **more):
    """Weights large enough for correlations."""
    noise = {"rigid_noise": 0.002} if covariance == "pair" else {}
    posterior = random_posterior(k, covariance=covariance, **noise, **more)
    samples = posterior.samples.clone()
    samples[:, posterior.model.layout.groups["covariance_head"]] *= 4
    return replace(posterior, samples=samples)


def quantities(structure):
    """By name, weights [m, n, 3] of derived quantities."""
    positions = structure.positions
    return {
        "stretching": stretching(positions, 0, 1)[None],
        "net force": net_force(len(structure), [0, 3, 4, 5]),
        "torque": torque(positions, [0, 3, 4, 5]),
    }


def test_derived_quantities_equal_the_spread_of_the_members():
    structure, k = ethanol(), 4
    members = np.random.default_rng(0).normal(size=(k, 9, 3))
    plain = shrunk(members, np.eye(27), weight=0.0).reshape(9, 3, 9, 3)
    for name, weights in quantities(structure).items():
        expected = np.einsum("mia,kia->km", weights, members).std(0)
        variance = np.einsum("mia,iajb,mjb->m", weights, plain, weights)
        np.testing.assert_allclose(np.sqrt(variance), expected, err_msg=name)
    arms = structure.positions[[0, 3, 4, 5]] - structure.positions[[0, 3, 4, 5]].mean(0)
    by_hand = np.cross(arms, members[0, [0, 3, 4, 5]]).sum(0)
    np.testing.assert_allclose(np.einsum("mia,ia->m", torque(structure.positions, [0, 3, 4, 5]), members[0]), by_hand)
    away = structure.positions[1] - structure.positions[0]
    pull = (members[0, 1] - members[0, 0]) @ away / np.linalg.norm(away) / 2
    assert np.sum(stretching(structure.positions, 0, 1) * members[0]) == pytest.approx(pull)


def test_shrinkage_finds_the_covariance_that_samples_were_drawn_from():
    """Nearer to it than the samples alone and than their independence, for few samples and for many."""
    rng, structure = np.random.default_rng(0), ethanol()
    rigid = rigid_directions_of(structure).reshape(27, 6)
    mixed = rng.normal(size=(27, 27)) / 9 + np.diag(rng.uniform(0.5, 1.5, 27))
    truth = conditioned(mixed @ mixed.T, rigid, 1e-3)
    root = np.linalg.cholesky(truth + 1e-12 * np.eye(27))
    for k in (4, 8, 32, 512):
        members = (rng.normal(size=(k, 27)) @ root.T).reshape(k, 9, 3)
        target = conditioned(np.diag(members.reshape(k, 27).var(0)), rigid, 1e-3)
        found, alone, independent = (
            np.linalg.norm(shrunk(members, target, weight) - truth) for weight in (None, 0.0, 1.0)
        )
        assert found < 1.05 * min(alone, independent), k
        if k < 512:
            assert found < 0.9 * alone
    assert shrinkage(members.reshape(512, 27), target) < 0.3
    assert shrinkage(members[:2].reshape(2, 27), target) == 1.0


def test_conditioned_covariances_have_no_net_force():
    rigid = rigid_directions_of(ethanol()).reshape(27, 6)
    variances = np.random.default_rng(1).uniform(0.5, 2, 27)
    found = conditioned(np.diag(variances), rigid, 1e-3)
    assert np.sqrt(np.diag(rigid.T @ found @ rigid)).max() < 1.3e-3
    assert np.trace(found) == pytest.approx(variances.sum())
    assert np.linalg.eigvalsh(found).min() > 0
    np.testing.assert_allclose(conditioned(found, rigid, 1e-3), found, atol=1e-5)
    assert not conditioned(np.zeros((27, 27)), rigid, 1e-3).any()


@pytest.mark.parametrize("covariance", ["isotropic", "atom", "pair"])
def test_predictions_of_molecules(covariance):
    posterior = random_posterior(K) if covariance == "isotropic" else anisotropic(covariance)
    structure = ethanol()
    prediction = posterior.predict(structure, covariance=True)
    found = prediction.forces_covariance
    assert found.total.shape == (9, 3, 9, 3)
    np.testing.assert_allclose(np.trace(found.total.reshape(27, 27)), np.square(prediction.forces_std).sum())
    assert np.linalg.eigvalsh(found.total.reshape(27, 27)).min() > 0
    np.testing.assert_allclose(found.atoms[4], found.total[4, :, 4])
    whole = list(range(9))
    for part in ("epistemic", "aleatoric"):
        assert found.sigma(net_force(9, whole), part).max() < 0.01
        assert found.sigma(torque(structure.positions, whole), part).max() < 0.05
        assert found.sigma(net_force(9, [0, 1]), part).max() > 0.1, "of a fragment there is one"
    assert prediction.forces_aleatoric.std(1).max() > 1e-3 or covariance == "isotropic"
    assert posterior.predict(structure).forces_covariance is None


def test_calibration_and_floor():
    """Uneven factors of atoms leave a molecule without net force, and variances as they are reported."""
    posterior, structure = anisotropic("pair"), ethanol()
    errors = Calibrated("species", {K: Rescaling(1.5, 1.2, {1: 0.5, 6: 2.0, 8: 3.0})})
    calibrated = replace(posterior, calibration=Calibration(errors, errors).to_dict())
    prediction = calibrated.predict(structure, covariance=True)
    found = prediction.forces_covariance
    np.testing.assert_allclose(np.trace(found.total.reshape(27, 27)), np.square(prediction.forces_std).sum(), rtol=0.05)
    own, reported = np.einsum("iaia->i", found.total), np.square(prediction.forces_std).sum(1)
    assert np.abs(np.log(own / reported)).max() < 1.0
    assert found.sigma(net_force(9, range(9))).max() < 0.02
    rest = np.linalg.svd(rigid_directions_of(structure).reshape(27, 6))[0][:, 6:]
    inner = rest.T @ found.total.reshape(27, 27) @ rest
    assert np.linalg.eigvalsh(inner).min() > 1e-3 * np.linalg.eigvalsh(inner).max(), "no other direction is exact"


def test_a_crystal_is_isotropic_where_the_model_is():
    found = random_posterior(K).predict(salt(), covariance=True)
    np.testing.assert_allclose(
        found.forces_covariance.aleatoric.reshape(24, 24), np.diag(np.square(found.forces_aleatoric).ravel())
    )


@pytest.mark.parametrize("covariance", ["atom", "pair"])
def test_sigma_of_components_and_the_first_samples(covariance):
    """The diagonal is the same without the matrix, for single frames and in a batch, for all and the first samples."""
    posterior, structure = anisotropic(covariance), ethanol()
    alone = posterior.predict(structure)
    both = posterior.predict([salt(), structure], covariance=True)[1]
    np.testing.assert_allclose(alone.forces_aleatoric, both.forces_aleatoric, rtol=1e-5)
    first = posterior.subset(2).predict(structure, covariance=True)
    assert np.abs(first.forces_aleatoric - alone.forces_aleatoric).max() > 1e-3


def test_large_structures_with_a_covariance_per_atom_are_exact(monkeypatch):
    posterior, structure = anisotropic("atom"), ethanol()
    expected = posterior.predict(structure, covariance=True).forces_aleatoric
    monkeypatch.setattr(force_noise, "MOST_ATOMS", 3)
    np.testing.assert_allclose(posterior.predict(structure).forces_aleatoric, expected)


def test_large_structures_use_random_vectors(monkeypatch):
    posterior, structure = anisotropic("pair"), ethanol()
    exact = posterior.predict(structure).forces_aleatoric
    monkeypatch.setattr(force_noise, "MOST_ATOMS", 3)
    monkeypatch.setattr(force_noise, "PROBES", 1024)
    found = posterior.predict(structure).forces_aleatoric
    np.testing.assert_allclose(found, exact, rtol=0.2)
    assert not np.array_equal(found, exact)


def test_too_large_for_a_matrix(monkeypatch):
    monkeypatch.setattr("equibayes.posterior.force_covariance.MOST_ATOMS", 8)
    with pytest.raises(InputError, match="up to 8 atoms, not 9; ask for it in a smaller structure"):
        random_posterior(2).predict(ethanol(), covariance=True)


@pytest.mark.parametrize("covariance", ["isotropic", "pair"])
def test_calculator(covariance):
    """The same numbers, at every step of atoms that move."""
    posterior = random_posterior(2) if covariance == "isotropic" else anisotropic(covariance, 2)
    atoms = ethanol().to_atoms()
    atoms.calc = Calculator(posterior, device="cpu", covariance=True)
    for _ in range(2):
        atoms.get_forces()
        expected = posterior.predict(atoms, covariance=True)
        np.testing.assert_allclose(
            atoms.calc.results["forces_covariance"], expected.forces_covariance.total, rtol=1e-4, atol=1e-7
        )
        np.testing.assert_allclose(atoms.calc.results["forces_std"], expected.forces_std, rtol=1e-4)
        atoms.positions[0] += 0.05
    assert "forces_covariance" in atoms.calc.implemented_properties
