"""Calibration of σ: calibration curve, miscalibration area, ENCE.  Pure functions; see `metrics` for the conventions.

Everything but ENCE is based on one number per component, its *place* u = 2Φ(|error|/σ) − 1: the level of the smallest
central interval that holds the error.  If σ is right, u is uniform on [0, 1]; if u crowds near 1, σ is too small.
"""

import numpy as np

from equibayes.evaluation import normal
from equibayes.evaluation.metrics import Undefined, densities

ENCE_BINS = 10


def places(error: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """u of every component, in [0, 1]."""
    error, sigma = densities(error, sigma)
    return 2 * normal.cdf(np.abs(error) / sigma) - 1


def places_of_vectors(error: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """u of every atom from error and σ [A, 3]: the level of the smallest ellipsoid that holds the error."""
    flat_error, flat_sigma = densities(error, sigma)
    return normal.chi_squared_3(np.square(flat_error / flat_sigma).reshape(-1, 3).sum(1))


def calibration_curve(u: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Share of places u at or below each level: the diagonal is right, below it is overconfident."""
    return np.searchsorted(np.sort(u), np.asarray(levels), side="right") / len(u)


def miscalibration_area(u: np.ndarray) -> float:
    """∫₀¹ |curve(p) − p| dp, without unit: from 0 (right) to 0.5 (all errors outside, or inside, every interval)."""
    if not len(u):
        raise Undefined("no labels")
    edges = np.concatenate([[0.0], np.sort(u), [1.0]])
    share = np.arange(len(u) + 1) / len(u)  # the curve between two places
    low, high = edges[:-1] - share, edges[1:] - share
    # ∫ |x| dx between low and high
    return float(0.5 * (high * np.abs(high) - low * np.abs(low)).sum())


def ence(error: np.ndarray, sigma: np.ndarray, bins: int = ENCE_BINS) -> float:
    """Expected normalised calibration error (Levi et al. 2022): mean over bins of |RMS σ − RMS error| / RMS σ.

    Lower is better, no unit.  Components are sorted by σ into `bins` of equal size, at least two in each.
    """
    error, sigma = densities(error, sigma)
    if error.size < 2 * bins:
        raise Undefined(f"{error.size} values are too few for {bins} bins of σ")
    order = np.argsort(sigma, kind="stable")
    ratios = []
    for part in np.array_split(order, bins):
        predicted, observed = (np.sqrt(np.square(values[part]).mean()) for values in (sigma, error))
        ratios.append(abs(predicted - observed) / predicted)
    return float(np.mean(ratios))
