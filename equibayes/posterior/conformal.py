"""Intervals of guaranteed coverage for any distribution of errors: split-conformal prediction by configuration.

Configurations are exchangeable, the components within one are not independent.  So the unit is the configuration
(hierarchical conformal prediction, Lee, Barber & Willett 2023): with scores |error|/σ, each of the n calibration
configurations has the weight 1/(n+1), shared by its components, and the last 1/(n+1) lies at infinity for the one to
come.  The interval mean ± q σ, with q the quantile of this distribution at `level`, holds a component of a new
configuration with probability at least `level`, averaged over its components.  σ must not have been fitted to the
same frames: the uncalibrated one is used.
"""

from collections.abc import Iterable

import numpy as np

LEVELS = (0.5, 0.68, 0.9, 0.95, 0.99)


def needed(level: float) -> int:
    """Configurations below which no finite interval has this coverage."""
    return int(np.ceil(level / (1 - level) - 1e-9))


def quantile(score: np.ndarray, frame: np.ndarray, level: float) -> float:
    """q for scores [n] of components of the configurations `frame` [n]; infinite if those are too few."""
    frames, index, count = np.unique(frame, return_inverse=True, return_counts=True)
    if len(frames) < needed(level):
        return float("inf")
    weight = 1.0 / ((len(frames) + 1) * count[index])
    order = np.argsort(score, kind="stable")
    reached = np.cumsum(weight[order]) >= level - 1e-12
    return float(score[order[np.argmax(reached)]]) if reached.any() else float("inf")


def quantiles(score: np.ndarray, frame: np.ndarray, levels: Iterable[float] = LEVELS) -> dict[float, float]:
    """Those levels that can be reached with these configurations."""
    found = {level: quantile(score, frame, level) for level in levels}
    return {level: value for level, value in found.items() if np.isfinite(value)}
