"""Metrics: numbers worked out by hand, independent libraries, and the mistakes that other packages were seen to
make."""

import math

import numpy as np
import properscoring
import pytest
import uncertainty_toolbox
from scipy import stats
from sklearn.metrics import roc_auc_score

from equibayes.evaluation import metrics, normal
from equibayes.evaluation.metrics import Undefined
from equibayes.units import KCAL_PER_MOL


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray]:
    """500 errors with σ that are right on average but say little about each."""
    random = np.random.default_rng(1)
    sigma = random.gamma(3, 0.02, 500)
    return random.normal(size=500) * sigma * random.choice([0.5, 1.5], 500), sigma


# ---- by hand


def test_errors_by_hand() -> None:
    error = np.array([[3.0, -4.0], [0.0, 5.0]])
    assert metrics.mean_absolute_error(error) == 3.0
    assert metrics.root_mean_square_error(error) == pytest.approx(math.sqrt(50 / 4))


def test_log_likelihood_by_hand() -> None:
    # ln N(0; 0, 1) = −0.918939; ln N(2; 0, 2²) = −0.5 − ln 2 − 0.918939
    value = metrics.mean_log_likelihood(np.array([0.0, 2.0]), np.array([1.0, 2.0]))
    assert value == pytest.approx((-0.9189385 - 0.5 - 0.6931472 - 0.9189385) / 2, abs=1e-7)


def test_auc_by_hand() -> None:
    """Outliers 0.9 and 0.4 against inliers 0.5, 0.4, 0.1: pairs won 3 + 1, one tie, one lost: 4.5 of 6."""
    assert metrics.roc_auc(np.array([1, 1, 0, 0, 0]), np.array([0.9, 0.4, 0.5, 0.4, 0.1])) == pytest.approx(4.5 / 6)


def test_spearman_by_hand() -> None:
    assert metrics.spearman(np.array([-3.0, 2.0, 1.0]), np.array([30.0, 20.0, 10.0])) == pytest.approx(1)
    assert metrics.spearman(np.array([1.0, 2.0, -3.0]), np.array([1.0, 3.0, 2.0])) == pytest.approx(0.5)


def test_coverage_by_hand() -> None:
    error, sigma = np.array([0.5, -1.5, 2.5, -0.1]), np.ones(4)
    assert metrics.coverage(error, sigma) == 0.5
    assert metrics.interval_coverage(error, sigma, 0.95) == 0.75  # 1.96 σ
    assert metrics.interval_coverage(error, sigma, 0.50) == 0.5  # 0.674 σ


def test_sharpness_is_the_root_of_the_mean_variance() -> None:
    assert metrics.sharpness(np.array([3.0, 4.0])) == pytest.approx(math.sqrt(12.5))


def test_error_of_most_uncertain() -> None:
    error, sigma = np.array([1.0, -1.0, 1.0, 5.0]), np.array([0.1, 0.2, 0.3, 0.4])
    assert metrics.error_of_most_uncertain(error, sigma, 0.25) == pytest.approx(5 / 2)
    assert metrics.error_of_most_uncertain(error, np.array([0.1, np.nan, 0.3, 0.4]), 0.25) == pytest.approx(1 / 2)


def test_the_normal_distribution() -> None:
    x = np.linspace(-9, 9, 181)
    assert np.allclose(normal.cdf(x), stats.norm.cdf(x), rtol=1e-11, atol=0)
    assert np.allclose(normal.pdf(x), stats.norm.pdf(x), rtol=1e-12, atol=0)
    assert normal.central_width(0.95) == pytest.approx(1.959964)
    assert np.allclose(normal.chi_squared_3(x[91:]), stats.chi2.cdf(x[91:], 3), atol=1e-14)
    with pytest.raises(ValueError, match="between 0 and 1"):
        normal.central_width(95)


# ---- against others


def test_against_scipy_and_scikit_learn(sample: tuple[np.ndarray, np.ndarray]) -> None:
    error, sigma = sample
    outlier = np.abs(error) > 0.05
    assert metrics.roc_auc(outlier, sigma) == pytest.approx(roc_auc_score(outlier, sigma))
    assert metrics.outlier_auc(error, sigma, 0.05) == metrics.roc_auc(outlier, sigma)
    coarse = np.round(sigma, 2)  # many ties
    assert metrics.roc_auc(outlier, coarse) == pytest.approx(roc_auc_score(outlier, coarse))
    assert metrics.spearman(error, coarse) == pytest.approx(stats.spearmanr(np.abs(error), coarse).statistic)
    assert metrics.mean_log_likelihood(error, sigma) == pytest.approx(stats.norm.logpdf(error, 0, sigma).mean())


def test_against_uncertainty_toolbox_and_properscoring(sample: tuple[np.ndarray, np.ndarray]) -> None:
    error, sigma = sample
    truth = np.zeros(500)
    assert metrics.crps(error, sigma) == pytest.approx(properscoring.crps_gaussian(truth, error, sigma).mean())
    assert metrics.crps(error, sigma) == pytest.approx(uncertainty_toolbox.crps_gaussian(error, sigma, truth))
    nll = uncertainty_toolbox.nll_gaussian(error, sigma, truth)
    assert metrics.mean_log_likelihood(error, sigma) == pytest.approx(-nll)
    assert metrics.sharpness(sigma) == pytest.approx(uncertainty_toolbox.sharpness(sigma))


# ---- mistakes seen elsewhere


def test_a_variance_in_place_of_sigma_shows(sample: tuple[np.ndarray, np.ndarray]) -> None:
    """Every density metric takes σ: with σ² they change; ranks do not."""
    error, sigma = sample
    for metric in (metrics.mean_log_likelihood, metrics.crps):
        assert abs(metric(error, sigma**2) - metric(error, sigma)) > 0.01 * abs(metric(error, sigma))
    assert metrics.outlier_auc(error, sigma**2, 0.05) == metrics.outlier_auc(error, sigma, 0.05)


def test_change_of_unit(sample: tuple[np.ndarray, np.ndarray]) -> None:
    """σ scales by c as the error does (a variance would by c²): scores scale by c, ln-densities move by ln c, shares
    stay."""
    error, sigma = sample
    c = 1 / KCAL_PER_MOL
    assert metrics.crps(c * error, c * sigma) == pytest.approx(c * metrics.crps(error, sigma))
    before, after = metrics.mean_log_likelihood(error, sigma), metrics.mean_log_likelihood(c * error, c * sigma)
    assert after == pytest.approx(before - math.log(c))
    assert metrics.interval_coverage(c * error, c * sigma, 0.9) == metrics.interval_coverage(error, sigma, 0.9)
    assert metrics.spearman(c * error, c * sigma) == metrics.spearman(error, sigma)


def test_scores_of_any_range(sample: tuple[np.ndarray, np.ndarray]) -> None:
    """A library that squashes scores outside [0, 1] with a sigmoid makes ties of large ones."""
    error, sigma = sample
    outlier = np.abs(error) > 0.05
    expected = metrics.roc_auc(outlier, sigma)
    for factor in (1e3, 1e9, 1e-9):
        assert metrics.roc_auc(outlier, factor * sigma) == expected
    assert metrics.roc_auc(outlier, 1e6 + np.argsort(np.argsort(sigma))) == pytest.approx(expected, abs=1e-12)


def test_nan_sigma_is_never_certain() -> None:
    error = np.array([0.0, 0.0, 0.0, 5.0])
    sigma = np.array([1.0, 2.0, 3.0, np.nan])
    assert metrics.outlier_auc(error, sigma, 1.0) == 1.0, "the outlier with NaN is found"
    assert metrics.outlier_auc(error[::-1], sigma, 1.0) == 0.0, "an inlier with NaN ranks as uncertain"
    assert metrics.coverage(np.zeros(4), sigma, 100.0) == 0.75, "an interval of NaN width covers nothing"
    assert metrics.spearman(np.array([1.0, 2, 3, 4]), sigma) == pytest.approx(1.0)
    for metric in (metrics.mean_log_likelihood, metrics.crps):
        with pytest.raises(Undefined, match="σ is not finite for 1 of 4 values"):
            metric(error, sigma)
    with pytest.raises(Undefined, match="σ is not finite"):
        metrics.sharpness(sigma)


def test_undefined_says_why() -> None:
    nothing, one = np.zeros(0), np.ones(3)
    with pytest.raises(Undefined, match="no labels"):
        metrics.mean_absolute_error(nothing)
    with pytest.raises(Undefined, match="the error is not finite for 1 of 2 values"):
        metrics.root_mean_square_error(np.array([1.0, np.nan]))
    with pytest.raises(Undefined, match=r"no error is above 0.04336 \(1 in kcal/mol\)"):
        metrics.outlier_auc(0.01 * one, one)
    with pytest.raises(Undefined, match="every error is above"):
        metrics.outlier_auc(one, one)
    with pytest.raises(Undefined, match="all σ are equal"):
        metrics.spearman(np.arange(3.0), one)
    with pytest.raises(Undefined, match="σ is not above 0 for 2 of 3"):
        metrics.mean_log_likelihood(one, np.array([1.0, 0.0, -1.0]))
    with pytest.raises(ValueError, match="3 errors but 2 σ"):
        metrics.crps(one, np.ones(2))
    assert metrics.roc_auc(np.zeros(3), one) is None
