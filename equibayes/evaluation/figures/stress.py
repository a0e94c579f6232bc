"""Stress: predictions with their σ beside the labels."""

import numpy as np

from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures.curves import STRESS, stress_elements
from equibayes.evaluation.figures.drawing import Drawing, slug
from equibayes.evaluation.figures.style import colour, figure, styled

MOST_POINTS = 1200
"""More hide one another, and make a large file."""


def parity_of_stress(result: Evaluated) -> Drawing | None:
    """Predicted against labelled elements of the stress with bars of ±1σ; None without labels."""
    if not len(stress_elements(result)):
        return None
    true, mean, sigma = (STRESS.scale * part for part in (result.stress_true, result.stress_mean, result.stress_sigma))
    known = np.flatnonzero(np.isfinite(true).all(1) & np.isfinite(mean).all(1))
    known = known[:: max(1, -(-len(known) * 6 // MOST_POINTS))]
    reach = np.array([min(true[known].min(), mean[known].min()), max(true[known].max(), mean[known].max())])
    reach += 0.05 * np.array([-1, 1]) * (np.ptp(reach) or 1.0)
    with styled():
        drawn, axes = figure(4.6, 4.1)
        axis = axes[0, 0]
        axis.plot(reach, reach, color=colour("muted"), linewidth=1, linestyle=(0, (2, 2)))
        for label, own, name in (("xx, yy, zz", slice(0, 3), "blue"), ("yz, xz, xy", slice(3, 6), "vermillion")):
            x, y, bar = (part[known, own].ravel() for part in (true, mean, sigma))
            bar = np.where(np.isfinite(bar), bar, 0.0)
            axis.errorbar(
                x, y, bar, fmt="o", markersize=2.5, elinewidth=0.6, color=colour(name), alpha=0.7, label=label
            )
        axis.set(xlim=reach, ylim=reach, aspect="equal", xlabel=f"label / {STRESS.unit}")
        axis.set_ylabel(f"prediction / {STRESS.unit}")
        axis.legend(loc="upper left")
    error = float(np.abs(mean[known] - true[known]).mean())
    alt = (
        f"Predicted against labelled stress of {result.name}, with bars of one σ: mean error {error:.3g} {STRESS.unit}."
    )
    return Drawing(f"stress-{slug(result.name)}", alt, drawn)
