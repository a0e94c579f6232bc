"""σ of predicted stress and pressure: the mixture of the samples, in every orientation and cell, calibrated."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from equibayes.bayes.likelihood import STRESS_COMPONENTS
from equibayes.data import Dataset, Structure
from equibayes.data.reference import EnergyReference
from equibayes.errors import InputError
from equibayes.posterior.calibrate import calibrate, residuals_of
from equibayes.posterior.calibration import Calibrated, Calibration, Rescaling
from equibayes.posterior.file import Posterior
from equibayes.posterior.prediction import Prediction
from equibayes.posterior.stress import six_elements
from tests.models import graph, small_model
from tests.periodic import repeat
from tests.physics import random_rotation
from tests.samples import SPECIES_OF, salt, silicon, slab, water

REFERENCE = EnergyReference("given", {z: -10.0 * z for z in SPECIES_OF})


def random_posterior(k: int = 4, **network: object) -> Posterior:
    model, weights = small_model(k, **network)
    return Posterior(weights, torch.arange(k), torch.zeros(k, dtype=torch.int64), model.config, REFERENCE)


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    return random_posterior(stress_head=True)


def distorted(structure: Structure, seed: int = 0) -> Structure:
    """Without the symmetry that would make elements of the stress equal or zero."""
    rng = np.random.default_rng(seed)
    strain = np.eye(3) + 0.05 * rng.normal(size=(3, 3))
    positions = structure.positions @ strain + 0.05 * rng.normal(size=structure.positions.shape)
    return replace(structure, positions=positions, cell=structure.cell @ strain)


CRYSTAL = distorted(salt())


def test_mean_and_variance_are_those_of_the_mixture(posterior: Posterior) -> None:
    """Of all nine elements, and of the pressure as the mean of three with independent noise."""
    output = posterior.model(posterior.samples, graph(CRYSTAL))
    members, sigma = output.stress[:, 0].numpy(), output.sigma_stress[:, 0].numpy()
    found = posterior.predict(CRYSTAL, members=True)
    noise = np.sqrt(np.square(sigma).mean()) * np.array(STRESS_COMPONENTS)
    np.testing.assert_allclose(found.stress, members.mean(0), rtol=1e-9)
    np.testing.assert_allclose(found.stress_epistemic, members.std(0), rtol=1e-9)
    np.testing.assert_allclose(found.stress_aleatoric, noise, rtol=1e-9)
    np.testing.assert_allclose(found.stress_std, np.hypot(members.std(0), noise), rtol=1e-9)
    np.testing.assert_array_equal(found.stress_uncertainty, found.stress_std)
    pressures = -members.trace(axis1=1, axis2=2) / 3
    assert found.pressure == pytest.approx(pressures.mean())
    assert found.pressure_epistemic == pytest.approx(pressures.std())
    assert found.pressure_aleatoric == pytest.approx(noise[0, 0] / np.sqrt(3))
    assert found.pressure_std == pytest.approx(np.hypot(pressures.std(), noise[0, 0] / np.sqrt(3)))
    np.testing.assert_allclose(found.members["stress"], members, rtol=1e-9)
    np.testing.assert_allclose(found.stress_interval(0.9), 1.6448536 * found.stress_std, rtol=1e-6)


@pytest.mark.parametrize("structure", [water(), slab()], ids=["molecule", "slab"])
def test_without_a_volume_there_is_none(posterior: Posterior, structure: Structure) -> None:
    found = posterior.predict(structure, members=True)
    names = [f"{what}_{part}" for what in ("stress", "pressure") for part in ("std", "epistemic", "aleatoric")]
    assert [getattr(found, name) for name in ("stress", "pressure", *names)] == [None] * 8
    assert found.stress_interval(0.9) is None
    assert "stress" not in found.members


def test_where_stress_was_not_learned_there_is_no_noise() -> None:
    found = random_posterior().predict(CRYSTAL)
    assert not found.stress_aleatoric.any()
    np.testing.assert_array_equal(found.stress_std, found.stress_epistemic)
    assert found.pressure_std == found.pressure_epistemic > 0


def test_a_rotated_crystal_has_the_rotated_stress_and_the_same_sigma(posterior: Posterior) -> None:
    matrix = random_rotation(np.random.default_rng(0))
    turned = replace(CRYSTAL, positions=CRYSTAL.positions @ matrix.T, cell=CRYSTAL.cell @ matrix.T)
    one, other = posterior.predict(CRYSTAL, members=True), posterior.predict(turned, members=True)
    np.testing.assert_allclose(other.stress, matrix @ one.stress @ matrix.T, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(
        other.members["stress"], matrix @ one.members["stress"] @ matrix.T, rtol=1e-8, atol=1e-12
    )
    np.testing.assert_allclose(other.stress_aleatoric, one.stress_aleatoric, rtol=1e-8)
    for name in ("pressure", "pressure_std", "pressure_epistemic", "pressure_aleatoric"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-8)
    # an element by itself has another direction now; all nine together do not
    assert np.square(other.stress_std).sum() == pytest.approx(np.square(one.stress_std).sum(), rel=1e-8)
    assert np.abs(other.stress_epistemic / one.stress_epistemic - 1).max() > 0.01


def test_stress_is_the_derivative_by_strain(posterior: Posterior) -> None:
    h = 1e-5
    found = posterior.predict(CRYSTAL)
    for i, j in ((0, 0), (1, 2), (0, 1)):
        strain = np.zeros((3, 3))
        strain[i, j] = strain[j, i] = h / 2 if i != j else h
        energies = []
        for sign in (1, -1):
            move = np.eye(3) + sign * strain
            moved = replace(CRYSTAL, positions=CRYSTAL.positions @ move, cell=CRYSTAL.cell @ move)
            energies.append(posterior.predict(moved).energy)
        assert found.stress[i, j] == pytest.approx(
            (energies[0] - energies[1]) / (2 * h) / CRYSTAL.volume, rel=1e-6, abs=1e-9
        )


@pytest.mark.parametrize("counts", [(2, 1, 1), (2, 2, 2)])
@pytest.mark.parametrize("refined", [False, True])
def test_supercells_agree(posterior: Posterior, counts: tuple[int, int, int], refined: bool) -> None:
    """Energy per atom, forces, stress and the σ of forces, stress and pressure are those of one cell.

    σ of the energy belongs to the total: the samples' spread grows with the cell, the noise is that of one.
    """
    cells = int(np.prod(counts))
    if refined:
        moves = torch.randn(posterior.samples.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        posterior = replace(posterior, tangent=0.01 * moves)
    one, many = posterior.predict(CRYSTAL), posterior.predict(repeat(CRYSTAL, counts))
    options = {
        "rtol": 1e-8,
        "atol": 1e-9 if refined else 1e-12,
    }  # a difference of networks is less exact than a network
    np.testing.assert_allclose(many.energy / cells, one.energy, **options)
    for name in ("forces", "forces_std", "forces_epistemic", "forces_aleatoric"):
        np.testing.assert_allclose(getattr(many, name), np.tile(getattr(one, name), (cells, 1)), **options)
    for name in ("stress", "stress_std", "stress_epistemic", "stress_aleatoric", "pressure_std", "pressure_aleatoric"):
        np.testing.assert_allclose(getattr(many, name), getattr(one, name), **options)
    assert many.energy_epistemic == pytest.approx(cells * one.energy_epistemic, rel=1e-8)
    assert many.energy_aleatoric == pytest.approx(one.energy_aleatoric, rel=1e-8)


def with_errors(posterior: Posterior, count: int, factor: float) -> Dataset:
    """Cells whose labels lie `factor` times the predicted σ from the prediction; every fifth has no stress."""
    rng, cells = np.random.default_rng(3), []
    for number in range(count):
        cell = distorted(silicon() if number % 2 else salt(), number)
        found = posterior.predict(cell)
        noise = rng.normal(size=(3, 3))
        label = found.stress + factor * found.stress_std * (np.triu(noise) + np.triu(noise, 1).T)
        forces = found.forces + found.forces_std * rng.normal(size=found.forces.shape)
        energy = found.energy + found.energy_std * rng.normal()
        stress = None if number % 5 == 4 else label
        cells.append(replace(cell, energy=energy, forces=forces, stress=stress, source=f"cells, frame {number}"))
    return Dataset(cells, "cells")


def test_residuals_are_those_of_six_elements(posterior: Posterior) -> None:
    data = with_errors(posterior, 6, 1.0)
    predictions = [posterior.predict(s) for s in data]
    found = residuals_of("stress", data, predictions, 4)
    assert found.frame.tolist() == np.repeat([0, 1, 2, 3, 5], 6).tolist()
    np.testing.assert_allclose(found.error[:6], six_elements(predictions[0].stress - data[0].stress))
    np.testing.assert_allclose(found.sigma.total[:6], six_elements(predictions[0].stress_std), rtol=1e-12)


def test_calibration(posterior: Posterior) -> None:
    """Errors three times too wide: σ of stress and pressure grow by that, and intervals hold their share."""
    data, fresh = with_errors(posterior, 75, 3.0), with_errors(random_posterior(stress_head=True), 100, 3.0)[75:]
    after = calibrate(posterior, data, method="scale", device="cpu")
    calibration = Calibration.from_dict(after.calibration)
    stress = calibration.stress
    assert list(calibration.parts()) == ["forces", "energies", "stress"]
    assert stress.choice["frames"] == 60
    assert stress.choice["components"] == 360
    assert stress.choice["coverage_before"]["68"] < 0.35 < 0.6 < stress.choice["coverage_after"]["68"] < 0.76
    before: Prediction = posterior.predict(fresh[0])
    now: Prediction = after.predict(fresh[0])
    scale = stress.by_k[4]
    np.testing.assert_allclose(now.stress_aleatoric, scale.factor * before.stress_aleatoric, rtol=1e-9)
    np.testing.assert_allclose(now.stress_epistemic, scale.factor * scale.spread * before.stress_epistemic, rtol=1e-9)
    assert now.pressure_aleatoric == pytest.approx(scale.factor * before.pressure_aleatoric)
    assert now.pressure_std == pytest.approx(np.hypot(now.pressure_epistemic, now.pressure_aleatoric))
    inside = []
    for structure in fresh:
        if structure.stress is not None:
            found = after.predict(structure)
            width = stress.quantiles[4][0.9] * posterior.predict(structure).stress_std
            np.testing.assert_allclose(found.stress_interval(0.9), width, rtol=1e-9)
            inside.append(six_elements(np.abs(found.stress - structure.stress) <= width))
    assert np.mean(inside) > 0.8


@pytest.mark.parametrize("method", ["parts", "species", "monotone", "none"])
def test_every_method(posterior: Posterior, method: str) -> None:
    after = calibrate(posterior, with_errors(posterior, 30, 2.0), method=method, device="cpu")
    found = Calibration.from_dict(after.calibration).stress
    assert found.method == method
    ratio = np.square(after.predict(CRYSTAL).stress_std).sum() / np.square(posterior.predict(CRYSTAL).stress_std).sum()
    assert (1.0 if method == "none" else 2.0) == pytest.approx(np.sqrt(ratio), rel=1e-12 if method == "none" else 0.35)


def test_too_few_labels_leave_it_alone(posterior: Posterior) -> None:
    data = with_errors(posterior, 20, 2.0)
    few = Dataset([replace(s, stress=None) if i > 5 else s for i, s in enumerate(data)], "cells")
    found = Calibration.from_dict(calibrate(posterior, few, device="cpu").calibration).stress
    assert (found.method, found.choice["reason"]) == ("none", "5 labelled frames, 10 are needed to calibrate on")
    assert np.isnan(calibrate(posterior, few, device="cpu").predict(CRYSTAL).stress_interval(0.9)).all()
    bare = Dataset([replace(s, energy=None, forces=None, stress=None) for s in data], "bare")
    with pytest.raises(InputError, match=r"bare: forces: no labelled frames, .*; energies: no labelled frames"):
        calibrate(posterior, bare, device="cpu")


def test_the_pressure_follows_the_elements(posterior: Posterior) -> None:
    """With a factor that depends on σ, that of the pressure is the factor of the diagonal, not of its own smaller σ."""
    rising = Rescaling(knots=(np.log([1e-6, 1.0]), np.log([0.1, 10.0])))
    none = Calibrated("none", {4: Rescaling()})
    calibration = Calibration(none, none, {"name": "x", "frames": 1}, Calibrated("monotone", {4: rising}))
    before, now = posterior.predict(CRYSTAL), replace(posterior, calibration=calibration.to_dict()).predict(CRYSTAL)
    diagonal = np.sqrt(np.square(before.stress_std.diagonal()).mean())
    factor = float(rising.ratio(np.array([diagonal]), None)[0])
    assert now.pressure_std == pytest.approx(factor * before.pressure_std)
