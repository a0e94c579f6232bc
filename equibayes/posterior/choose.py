"""Which calibration method, and how well it does: judged on configurations that took no part in its fit.

The score is the Gaussian log-likelihood.  From the simplest method (`none`) on, the next is taken only if it gains
clearly over the best so far, by a margin that grows with its freedom.
"""

from collections.abc import Callable, Iterator

import numpy as np

from equibayes.posterior.calibration import METHODS, Rescaling, gaussian_width
from equibayes.posterior.rescale import ENOUGH_FOR_MORE, FITS, Residuals

FOLDS = 10
# Standard errors by which the gain of a method must exceed 0; `scale` has one number only.
EVIDENCE = {"scale": 1.0, "parts": 2.0, "species": 2.0, "monotone": 2.0}
COVERAGES = (0.5, 0.68, 0.9, 0.95)

Gains = dict[str, dict[str, float]]


def choose(residuals: Residuals) -> tuple[str, Gains]:
    """The method, and the gain of each in mean log-likelihood over `none` on frames left out, with standard error."""
    usable = [name for name in METHODS if name != "species" or len(np.unique(residuals.number)) > 1]
    if len(residuals.error) < ENOUGH_FOR_MORE:
        usable = ["none", "scale"]
    score = {name: log_likelihood(residuals, name) for name in usable}
    best = "none"
    for name in usable[1:]:
        gain, error = _mean_and_error(score[name] - score[best])
        if gain > EVIDENCE[name] * error:
            best = name
    gains = {}
    for name in usable:
        gain, error = _mean_and_error(score[name] - score["none"])
        gains[name] = {"log_likelihood": gain, "standard_error": error}
    return best, gains


def log_likelihood(residuals: Residuals, method: str) -> np.ndarray:
    """Mean ln-density of the components of each configuration [F], each under the method fitted without it."""
    return _of_each_frame(residuals, left_out(residuals, method, Residuals.log_density))


def coverage(residuals: Residuals, method: str) -> dict[str, float]:
    """Share of errors within the Gaussian interval of each level, by level in %; each left out of the fit."""

    def in_sigma(part: Residuals, fitted: Rescaling) -> np.ndarray:
        return np.abs(part.error) / fitted.apply(part.sigma, part.number).total

    distance = left_out(residuals, method, in_sigma)
    return {f"{100 * level:g}": float((distance <= gaussian_width(level)).mean()) for level in COVERAGES}


def left_out(residuals: Residuals, method: str, measure: Callable[[Residuals, Rescaling], np.ndarray]) -> np.ndarray:
    """`measure` of every component [n], under the method fitted without the fold of its configuration."""
    values = np.empty(len(residuals.error))
    for inside in folds(residuals):
        values[inside] = measure(residuals[inside], FITS[method](residuals[~inside]))
    return values


def folds(residuals: Residuals) -> Iterator[np.ndarray]:
    """Components [n] bool of each fold; neighbouring configurations, often of one trajectory, stay together."""
    for frames in np.array_split(residuals.frames, min(FOLDS, len(residuals.frames))):
        yield np.isin(residuals.frame, frames)


def _of_each_frame(residuals: Residuals, values: np.ndarray) -> np.ndarray:
    index = np.searchsorted(residuals.frames, residuals.frame)
    return np.bincount(index, values) / np.bincount(index)


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
