"""Calibration errors: the paper's on error densities, and those of the field."""

import math

import numpy as np
import pytest
import uncertainty_toolbox
from scipy import stats

from equibayes.evaluation import calibration_metrics as calibration
from equibayes.evaluation import density
from equibayes.evaluation.metrics import Undefined
from equibayes.units import KCAL_PER_MOL


def drawn(factor: float = 1.0, count: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian errors whose σ is `factor` times what is predicted."""
    random = np.random.default_rng(seed)
    sigma = random.gamma(4, 0.02, count)
    return factor * sigma * random.normal(size=count), sigma


# ---- the paper's


def test_ece_by_hand() -> None:
    """Bins of 1: errors −0.5, 0.2, 0.7, 3.5 with σ = 1: f = 1/4, 1/2, 1/4 in [−1, 0), [0, 1), [3, 4)."""
    error, sigma = np.array([-0.5, 0.2, 0.7, 3.5]), np.ones(4)
    near, far = 0.3413447, 0.0013182  # Φ(1) − Φ(0), Φ(4) − Φ(3)
    expected = 0.25 * abs(0.25 - near) + 0.5 * abs(0.5 - near) + 0.25 * abs(0.25 - far)
    assert density.expected_calibration_error(error, sigma, 1.0) == pytest.approx(expected, abs=1e-6)
    assert density.normalized_calibration_error(error / 2, sigma / 2, 0.5) == pytest.approx(expected / 0.5, abs=1e-6)


def test_edges_belong_to_the_bin_above() -> None:
    assert density.bin_number(np.array([-1.0, -0.1, 0.0, 0.99, 1.0]), 1.0).tolist() == [-1, -1, 0, 0, 1]


def test_predicted_mass_is_the_mean_over_components() -> None:
    error, sigma = drawn(1.0, 300)
    bins = density.error_density(error, sigma, 0.01)
    for left, mass in zip(bins.left, bins.predicted):
        exact = (stats.norm.cdf(left + 0.01, 0, sigma) - stats.norm.cdf(left, 0, sigma)).mean()
        assert mass == pytest.approx(exact, rel=1e-5, abs=1e-12)
    assert bins.observed.sum() == pytest.approx(1)
    # the sum over all bins is the sum over those that hold errors
    slow = (bins.observed * abs(bins.observed - bins.predicted)).sum()
    assert density.expected_calibration_error(error, sigma, 0.01) == pytest.approx(slow)


def test_mass_of_far_bins_is_not_lost_to_rounding() -> None:
    right, left = density.predicted_mass(np.array([9.0, -9.5]), np.ones(1), 0.5)
    assert right == pytest.approx(stats.norm.sf(9) - stats.norm.sf(9.5), rel=1e-6, abs=0)
    assert right == pytest.approx(left, rel=1e-6, abs=0)


def test_the_bin_width_is_the_papers_unit() -> None:
    """δ = 0.01 kcal/(mol Å), whatever unit the arrays have: ECE stays, NECE turns by the unit."""
    error, sigma = drawn()
    in_kcal = density.expected_calibration_error(error / KCAL_PER_MOL, sigma / KCAL_PER_MOL, 0.01)
    assert density.expected_calibration_error(error, sigma) == pytest.approx(in_kcal)
    assert density.normalized_calibration_error(error, sigma) * KCAL_PER_MOL == pytest.approx(in_kcal / 0.01)


def test_nece_tells_right_from_wrong() -> None:
    error, sigma = drawn(count=200_000)
    right = density.normalized_calibration_error(error, sigma, 0.01)
    for factor in (0.5, 2.0):
        assert density.normalized_calibration_error(error, factor * sigma, 0.01) > 5 * right
    # it estimates E|ρ − ρ_predicted|: for one Gaussian against one of twice the width
    error = np.random.default_rng(0).normal(size=400_000)
    grid = np.linspace(-8, 8, 20001)
    true, wrong = stats.norm.pdf(grid), stats.norm.pdf(grid, 0, 2)
    exact = np.trapezoid(true * abs(true - wrong), grid)
    estimate = density.normalized_calibration_error(error, np.full(400_000, 2.0), 0.01)
    assert estimate == pytest.approx(exact, rel=0.03)


def test_density_within_reach() -> None:
    bins = density.error_density(np.array([-0.3, 0.05, 7.0]), np.ones(3), 0.1, reach=0.5)
    assert bins.left == pytest.approx(np.arange(-5, 5) * 0.1)
    assert bins.observed.sum() == pytest.approx(2 / 3), "shares are of all errors"
    with pytest.raises(Undefined, match="too far"):
        density.error_density(np.array([0.0, 1e9]), np.ones(2))


# ---- the field's


def test_miscalibration_area_by_hand() -> None:
    assert calibration.miscalibration_area(np.array([0.5])) == pytest.approx(0.25)
    assert calibration.miscalibration_area(np.array([1.0, 1.0])) == pytest.approx(0.5)
    assert calibration.miscalibration_area(np.array([0.0])) == pytest.approx(0.5)
    assert calibration.miscalibration_area(np.linspace(0, 1, 1001)) < 1e-3


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
def test_area_against_uncertainty_toolbox(factor: float) -> None:
    error, sigma = drawn(factor)
    ours = calibration.miscalibration_area(calibration.places(error, sigma))
    theirs = uncertainty_toolbox.miscalibration_area(error, sigma, np.zeros(len(error)), num_bins=200)
    assert ours == pytest.approx(theirs, abs=2e-3)
    if factor == 1.0:
        assert ours < 0.02
    else:
        assert ours > 0.1


def test_calibration_curve() -> None:
    error, sigma = drawn(1.5, 20_000)
    levels = np.array([0.5, 0.9])
    curve = calibration.calibration_curve(calibration.places(error, sigma), levels)
    width = stats.norm.ppf(0.5 + levels / 2)
    assert curve == pytest.approx(2 * stats.norm.cdf(width / 1.5) - 1, abs=0.01)
    assert (curve < levels).all(), "errors larger than σ says: overconfident is below the diagonal"


def test_places_of_vectors_are_uniform_when_sigma_is_right() -> None:
    error, sigma = drawn(count=30_000)
    u = calibration.places_of_vectors(error.reshape(-1, 3), sigma.reshape(-1, 3))
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    assert stats.kstest(calibration.places(error, sigma), "uniform").pvalue > 1e-3
    assert stats.kstest(calibration.places_of_vectors(1.2 * error, sigma), "uniform").pvalue < 1e-9


def test_ence_by_hand() -> None:
    """Two bins: σ = 1 with RMS error 2, σ = 4 with RMS error 3: (1 + 1/4) / 2."""
    error, sigma = np.array([2.0, 3.0, -2.0, -3.0]), np.array([1.0, 4.0, 1.0, 4.0])
    assert calibration.ence(error, sigma, bins=2) == pytest.approx(0.625)
    with pytest.raises(Undefined, match="4 values are too few for 10 bins of σ"):
        calibration.ence(error, sigma)


def test_ence_of_a_known_factor() -> None:
    error, sigma = drawn(1.5, 100_000)
    assert calibration.ence(error, sigma) == pytest.approx(0.5, abs=0.02)
    error, sigma = drawn(1.0, 100_000)
    assert calibration.ence(error, sigma) < 0.02
    assert calibration.ence(error, sigma**2) > 0.5, "a variance is no σ"


def test_undefined() -> None:
    for metric in (calibration.places, calibration.ence, density.expected_calibration_error):
        with pytest.raises(Undefined, match="σ is not finite for 1 of 1"):
            metric(np.zeros(1), np.array([math.nan]))
        with pytest.raises(Undefined, match="no labels"):
            metric(np.zeros(0), np.zeros(0))
