"""How good predictions and their uncertainties are: pure functions of arrays.

`error` is prediction minus truth, `sigma` the predicted *standard deviation* (never a variance), both in the same
unit and of the same shape; shapes are flattened.  Every function says its unit and which way is better.

A metric that has no value raises `Undefined` with the reason.  A σ that is NaN is not a small σ: in rankings it counts
as the most uncertain, as an interval it covers nothing, and a likelihood is undefined.
"""

import math

import numpy as np

from equibayes.evaluation import normal
from equibayes.plural import counted
from equibayes.units import KCAL_PER_MOL

OUTLIER_THRESHOLD = KCAL_PER_MOL
"""eV/Å: the paper's 1 kcal/(mol Å), above which an error is an outlier; for energies the same number in eV."""
OUTLIER_MULTIPLE = 3.0
"""The usual threshold: this many times the mean absolute error of the data set."""


class Undefined(ValueError):
    """A metric has no value for these numbers; the message says why in a few words."""


def mean_absolute_error(error: np.ndarray) -> float:
    """Mean of |error|, in its unit.  Lower is better."""
    return float(np.abs(_errors(error)).mean())


def outlier_threshold(error: np.ndarray, given: float | None = None) -> float:
    """Above which |error| is an outlier, in its unit: as given, else `OUTLIER_MULTIPLE` times the mean |error|.

    NaN where the errors have no mean.
    """
    if given is not None:
        return given
    return OUTLIER_MULTIPLE * float(np.abs(error).mean()) if np.size(error) else float("nan")


def root_mean_square_error(error: np.ndarray) -> float:
    """√ of the mean of error², in its unit.  Lower is better."""
    return float(np.sqrt(np.square(_errors(error)).mean()))


def mean_log_likelihood(error: np.ndarray, sigma: np.ndarray) -> float:
    """Mean of ln N(error; 0, σ²).  Higher is better.

    It depends on the unit: in a unit c times as large it grows by ln c (in kcal/mol, 0.0434 eV, it is 3.14 lower).
    """
    error, sigma = densities(error, sigma)
    return float((-0.5 * np.square(error / sigma) - np.log(sigma)).mean() - 0.5 * math.log(2 * math.pi))


def crps(error: np.ndarray, sigma: np.ndarray) -> float:
    """Mean continuous ranked probability score of Gaussians, in the unit of the error; |error| for σ → 0."""
    error, sigma = densities(error, sigma)
    z = error / sigma
    return float((sigma * (z * (2 * normal.cdf(z) - 1) + 2 * normal.pdf(z) - 1 / math.sqrt(math.pi))).mean())


def sharpness(sigma: np.ndarray) -> float:
    """√ of the mean of σ²: how wide the predictions are, in their unit.  Lower is better if they are calibrated."""
    return float(np.sqrt(np.square(_finite(sigma, "σ", "no predictions")).mean()))


def median_sigma(sigma: np.ndarray) -> float:
    """Half of the predictions are narrower.  Unlike `sharpness`, a few novel atoms with a huge σ do not decide it."""
    return float(np.median(_finite(sigma, "σ", "no predictions")))


def roc_auc(outlier: np.ndarray, score: np.ndarray) -> float | None:
    """Probability that an outlier has a higher score than an inlier (1 perfect, 0.5 chance); None without either.

    outlier: bool; score: any monotone measure of uncertainty; ties count half, NaN counts as the most uncertain.
    """
    outlier, score = np.asarray(outlier, dtype=bool).ravel(), np.asarray(score).ravel()
    positives, negatives = int(outlier.sum()), int((~outlier).sum())
    if not positives or not negatives:
        return None
    rank_sum = mean_ranks(score)[outlier].sum()
    return float((rank_sum - positives * (positives + 1) / 2) / (positives * negatives))


def outlier_auc(error: np.ndarray, sigma: np.ndarray, threshold: float = OUTLIER_THRESHOLD) -> float:
    """`roc_auc` of finding |error| > threshold (unit of the error) by σ."""
    outlier = np.abs(_errors(error)) > threshold
    value = roc_auc(outlier, sigma)
    if value is None:
        limit = f"{threshold:.4g} ({threshold / KCAL_PER_MOL:.4g} in kcal/mol)"
        raise Undefined(f"{'every' if outlier.all() else 'no'} error is above {limit}")
    return value


def spearman(error: np.ndarray, sigma: np.ndarray) -> float:
    """Rank correlation of |error| and σ, from −1 to 1.  Higher is better; even a perfect σ stays far below 1."""
    first, second = mean_ranks(np.abs(_errors(error))), mean_ranks(np.asarray(sigma).ravel())
    first, second = first - first.mean(), second - second.mean()
    scale = np.sqrt(np.square(first).sum() * np.square(second).sum())
    if scale == 0:
        raise Undefined("all errors or all σ are equal")
    return float((first * second).sum() / scale)


def coverage(error: np.ndarray, sigma: np.ndarray, width: float = 1.0) -> float:
    """Share of |error| ≤ width·σ.  0.683 is right for width 1 and Gaussian errors; less means overconfident."""
    return float((np.abs(_errors(error)) <= width * np.asarray(sigma).ravel()).mean())


def interval_coverage(error: np.ndarray, sigma: np.ndarray, level: float) -> float:
    """Share of errors within the central interval that should hold `level` of them: `level` is right."""
    return coverage(error, sigma, normal.central_width(level))


def error_of_most_uncertain(error: np.ndarray, sigma: np.ndarray, share: float = 0.1) -> float:
    """Mean |error| of the share of components with the largest σ (NaN is largest), over the mean |error| of all."""
    error, sigma = np.abs(_errors(error)), np.asarray(sigma).ravel()
    if not error.any():
        raise Undefined("no error at all")
    count = max(1, round(share * error.size))
    most = np.argsort(-np.where(np.isnan(sigma), np.inf, sigma), kind="stable")[:count]
    return float(error[most].mean() / error.mean())


def mean_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, ties share their mean; NaN ranks above everything."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def densities(error: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both flat, float64, fit for a density: errors finite, every σ finite and above 0."""
    error = _errors(error)
    if error.size != np.size(sigma):
        raise ValueError(f"{error.size} errors but {np.size(sigma)} σ")
    sigma = _finite(sigma, "σ", "no predictions")
    if not (sigma > 0).all():
        raise Undefined(f"σ is not above 0 for {int((sigma <= 0).sum())} of {counted(sigma.size, 'value')}")
    return error, sigma


def _errors(error: np.ndarray) -> np.ndarray:
    return _finite(error, "the error", "no labels")


def _finite(values: np.ndarray, what: str, none: str) -> np.ndarray:
    """Flat, float64; `Undefined` where there are none, or where one is not finite."""
    values = np.asarray(values, dtype=np.float64).ravel()
    if not values.size:
        raise Undefined(none)
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise Undefined(f"{what} is not finite for {bad} of {counted(values.size, 'value')}")
    return values
