"""What a calibration does to σ, and its way through the posterior file."""

import json
from math import sqrt

import numpy as np
import pytest

from equibayes.errors import InputError
from equibayes.posterior.calibration import (
    METHODS,
    Calibrated,
    Calibration,
    Intervals,
    Rescaling,
    gaussian_width,
    spread_of,
)
from equibayes.posterior.sigma import Sigma

SIGMA = Sigma(np.array([[0.3, 0.1, 0.0], [2.0, 1.0, 0.5]]), np.array([[0.4, 0.2, 0.1], [1.0, 1.0, 1.0]]))
KNOTS = Rescaling(1.3, 1.2, knots=(np.log([0.1, 1.0]), np.log([2.0, 0.5])))


def test_scale_multiplies_both_parts() -> None:
    after = Rescaling(factor=2.0).apply(SIGMA)
    np.testing.assert_allclose(after.total, 2 * SIGMA.total)
    np.testing.assert_allclose(after.epistemic, 2 * SIGMA.epistemic)


@pytest.mark.parametrize("rescaling", [Rescaling(), Rescaling(0.7, 3.0), Rescaling(1.1, 1.2, {1: 0.5, 8: 2.0}), KNOTS])
def test_squares_of_the_parts_still_add_up(rescaling: Rescaling) -> None:
    after = rescaling.apply(SIGMA, np.array([1, 6]))
    np.testing.assert_allclose(after.total**2, after.epistemic**2 + after.aleatoric**2)
    expected = rescaling.ratio(rescaling.base(SIGMA), np.array([1, 6])) * rescaling.base(SIGMA)
    np.testing.assert_allclose(after.total, expected)


def test_species_have_their_own_factor_and_others_that_of_all() -> None:
    after = Rescaling(1.5, 1.0, {1: 0.5}).apply(SIGMA, np.array([1, 6]))
    np.testing.assert_allclose(after.total[0], 0.5 * SIGMA.total[0])
    np.testing.assert_allclose(after.total[1], 1.5 * SIGMA.total[1])


def test_knots_interpolate_the_logarithm_and_are_constant_outside() -> None:
    values = np.array([0.0, 0.01, 0.1, sqrt(0.1), 1.0, 100.0])
    ratio = KNOTS.ratio(values, None)
    np.testing.assert_allclose(ratio, [2.0, 2.0, 2.0, 1.0, 0.5, 0.5])


def test_the_spread_of_few_samples_is_too_small_by_a_known_factor() -> None:
    """k draws and one more, the truth: mean squared error over mean squared spread (ddof 0) is (k+1)/(k−1).

    400 000 worlds: the standard error of the ratio is below 0.6 % (k = 2); 4 of them are allowed.
    """
    rng = np.random.default_rng(0)
    for k in (2, 4, 8):
        draws = rng.normal(size=(k + 1, 400_000))
        error, spread = draws[:k].mean(0) - draws[k], draws[:k].std(0)
        assert np.mean(error**2) / np.mean(spread**2) == pytest.approx(spread_of(k) ** 2, rel=0.024)
    assert spread_of(1) == 1, "one sample has no spread to correct"


def calibration() -> Calibration:
    """One of every method, energies, forces and stress apart."""
    energy = Calibrated("scale", {1: Rescaling(1.5), 4: Rescaling(2.0, 1.3)}, {1: {0.9: 3.0}, 4: {0.9: 2.0, 0.95: 2.5}})
    species = Rescaling(1.1, 1.2, {1: 0.5, 8: 2.0})
    forces = Calibrated("species", {1: species, 4: species}, {4: {0.9: 1.7}})
    return Calibration(energy, forces, {"name": "x"}, Calibrated("parts", {4: Rescaling(3.0, 0.5)}, {4: {0.9: 1.2}}))


def test_round_trip_through_json() -> None:
    before = calibration()
    text = json.dumps(before.to_dict(), allow_nan=False)
    again = Calibration.from_dict(json.loads(text))
    assert again.to_dict() == before.to_dict()
    numbers = np.array([1, 6])
    np.testing.assert_array_equal(
        again.forces.apply(SIGMA, 4, numbers).total, before.forces.apply(SIGMA, 4, numbers).total
    )
    knots = Calibrated.from_dict(json.loads(json.dumps(Calibrated("monotone", {2: KNOTS}).to_dict())))
    np.testing.assert_array_equal(knots.apply(SIGMA, 2).total, KNOTS.apply(SIGMA).total)


def test_every_number_of_samples_finds_its_own() -> None:
    energy, sigma = calibration().energy, Sigma(np.zeros(1), np.ones(1))
    assert [float(energy.apply(sigma, k).total[0]) for k in (1, 2, 3, 4, 100)] == [1.5, 1.5, 1.5, 2.0, 2.0]
    assert [energy.quantile(0.9, k) for k in (1, 3, 4, 9)] == [3.0, 3.0, 2.0, 2.0]


def test_none_leaves_sigma_alone() -> None:
    assert Calibrated("none", {8: Rescaling(1.0, 1.3)}).apply(SIGMA, 8) is SIGMA


def test_a_calibration_that_makes_no_sense_is_refused() -> None:
    good = calibration().to_dict()
    assert set(METHODS) >= {good["energy"]["method"], good["forces"]["method"]}
    for damage in (
        {"calibration_version": 3},
        {"energy": {**good["energy"], "method": "magic"}},
        {"energy": {"method": "scale"}},
        {"forces": {**good["forces"], "by_k": {"1": {"factor": "wide", "spread": 1.0}}}},
        {"forces": {**good["forces"], "by_k": {}}},
        {"forces": {**good["forces"], "by_k": {"1": {"factor": -1.0, "spread": 1.0}}}},
        {"forces": {**good["forces"], "by_k": {"1": {"factor": float("nan"), "spread": 1.0}}}},
        {"forces": {**good["forces"], "by_k": {"1": {"factor": 1.0, "spread": 1.0, "species": {"Xx": 1.0}}}}},
    ):
        with pytest.raises(InputError, match=r"makes no sense .* equibayes calibrate --remove"):
            Calibration.from_dict({**good, **damage})


def test_a_calibration_of_a_version_without_stress() -> None:
    old = calibration().to_dict()
    del old["stress"]
    found = Calibration.from_dict({**old, "calibration_version": 1})
    assert found.stress.method == "none"
    assert list(found.parts()) == ["forces", "energies"], "not shown where there were no labels"
    assert found.to_dict()["calibration_version"] == 2


@pytest.mark.parametrize(
    "method", [Rescaling(3.0, 0.5), Rescaling(spread=1.2, knots=KNOTS.knots)], ids=["parts", "knots"]
)
def test_another_sigma_decides_on_the_factor(method: Rescaling) -> None:
    """That of the pressure is rescaled as the stress is: by the r of the elements."""
    ratio = method.apply(SIGMA).aleatoric / SIGMA.aleatoric
    found = method.apply(Sigma(0.1 * SIGMA.epistemic, 0.1 * SIGMA.aleatoric), judged_by=SIGMA)
    np.testing.assert_allclose(found.aleatoric, 0.1 * ratio * SIGMA.aleatoric)
    np.testing.assert_allclose(found.epistemic, 0.1 * ratio * method.spread * SIGMA.epistemic)


def test_intervals() -> None:
    with_calibration = Intervals(2.0, np.array([[1.0, 2.0, 3.0]]), calibration(), 4)
    energy, forces = with_calibration.half_widths(0.9)
    assert energy == 4.0
    np.testing.assert_allclose(forces, [[1.7, 3.4, 5.1]])
    assert with_calibration.stress_half_width(0.9) is None, "no volume"
    periodic = Intervals(2.0, np.ones((1, 3)), calibration(), 4, np.full((3, 3), 0.1))
    np.testing.assert_allclose(periodic.stress_half_width(0.9), np.full((3, 3), 0.12))
    with pytest.raises(
        InputError, match=r"no interval of coverage 0.8; the calibration holds 0.9, 0.95: calibrate with"
    ):
        with_calibration.half_widths(0.8)
    assert gaussian_width(0.95) == pytest.approx(1.959964)
    with pytest.raises(InputError, match="must lie between 0 and 1"):
        gaussian_width(1.0)
