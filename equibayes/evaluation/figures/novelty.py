"""Does the error grow with the novelty?"""

from collections.abc import Sequence

import numpy as np

from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures.curves import quantile_bands
from equibayes.evaluation.figures.drawing import Drawing
from equibayes.evaluation.figures.outliers import short
from equibayes.evaluation.figures.style import MEV, colour, figure, log_ticks, series, styled
from equibayes.posterior.novelty import NOVELTY

FEWEST = 60
"""Fewest atoms for which a curve is drawn."""


def error_by_novelty(results: Sequence[Evaluated]) -> Drawing | None:
    """Median length of the force error and of σ in bins of equal novelty; None where novelty or labels are missing."""
    curves = [(index, result, *found) for index, result in enumerate(results) if (found := _curve(result)) is not None]
    if not curves:
        return None
    said = []
    with styled():
        drawn, axes = figure(4.6, 3.7)
        axis = axes[0, 0]
        for index, result, novelty, error, sigma in curves:
            look = series(index)
            axis.plot(novelty, error, marker="o", markersize=3.5, label=f"{short(result.name)}: error", **look)
            axis.plot(novelty, sigma, color=look["color"], linewidth=1, linestyle=(0, (2, 2)))
            said.append(f"{result.name}: from {error[0]:.3g} to {error[-1]:.3g} meV/Å")
        axis.set(xscale="log", yscale="log")
        for level in NOVELTY:
            axis.axvline(level, color=colour("muted"), linewidth=0.8, linestyle="--")
        axis.set(xlabel="novelty of an atom", ylabel="force error (solid), σ (dotted) / (meV/Å)")
        log_ticks(axis.xaxis, *axis.get_xlim())
        log_ticks(axis.yaxis, *axis.get_ylim())
        axis.legend(loc="upper left")
    return Drawing("error-novelty", f"Median force error by novelty. {'; '.join(said)}.", drawn)


def _curve(result: Evaluated) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Median novelty, error and σ of bins."""
    if result.novelty is None:
        return None
    error, sigma = (np.linalg.norm(x, axis=1) * MEV for x in (result.force_error, result.force_sigma))
    good = np.isfinite(error) & np.isfinite(sigma) & (result.novelty > 0)
    if good.sum() < FEWEST:
        return None
    novelty = result.novelty[good]
    middle, (of_error,) = quantile_bands(error[good], novelty, (0.5,))
    return middle, of_error, quantile_bands(sigma[good], novelty, (0.5,))[1][0]
