"""How good predictions and their uncertainties are: pure functions of arrays.

`error` is prediction minus truth, `sigma` the predicted standard deviation, both in the same unit and of the same shape.
"""

import numpy as np


def mean_absolute_error(error: np.ndarray) -> float:
    """Mean of |error|, in its unit."""
    return float(np.abs(error).mean())


def roc_auc(outlier: np.ndarray, score: np.ndarray) -> float | None:
    """Probability that a random outlier has a higher score than a random inlier; ties count half.

    outlier: bool; score: any monotone measure of uncertainty (σ and σ² give the same).  None where only one kind occurs.
    """
    outlier, score = np.asarray(outlier, dtype=bool).ravel(), np.asarray(score).ravel()
    positives, negatives = int(outlier.sum()), int((~outlier).sum())
    if not positives or not negatives:
        return None
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2  # ranks from 1; ties share their mean
    rank_sum = mean_rank[inverse][outlier].sum()
    return float((rank_sum - positives * (positives + 1) / 2) / (positives * negatives))


def error_of_most_uncertain(error: np.ndarray, sigma: np.ndarray, share: float = 0.1) -> float:
    """Mean |error| of the given share of components with the largest σ, over the mean |error| of all."""
    error, sigma = np.abs(error).ravel(), np.asarray(sigma).ravel()
    count = max(1, round(share * error.size))
    return float(error[np.argsort(-sigma, kind="stable")[:count]].mean() / error.mean())


def coverage(error: np.ndarray, sigma: np.ndarray, width: float = 1.0) -> float:
    """Share of components whose |error| is below width·σ; 0.683 is right for width 1 and Gaussian errors."""
    return float((np.abs(error) < width * np.asarray(sigma)).mean())
