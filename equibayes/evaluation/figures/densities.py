"""Densities of errors (the paper's figures 5 and 6) and of forces (its appendix C), on linear and logarithmic axes."""

from typing import Any

import numpy as np

from equibayes.evaluation.density import BIN_WIDTH, error_density
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures.curves import FORCE, Quantity, judged, quantity_of
from equibayes.evaluation.figures.drawing import Drawing, slug
from equibayes.evaluation.figures.style import KCAL, KCAL_PER_MOL, MEV, colour, figure, log_ticks, styled

_TO_MEV = KCAL_PER_MOL * MEV
MOST_BINS = 60
"""On each side of zero: finer steps are narrower than the line that draws them."""


def bin_width(values: np.ndarray) -> float:
    """The paper's 0.01 kcal/(mol Å), doubled until central bins hold about 250 values, or halved to show a shape."""
    width = BIN_WIDTH * KCAL
    spread = float(np.quantile(np.abs(values), 0.68)) if len(values) else 0.0
    while 0 < spread < 3 * width:
        width /= 2
    while spread > 0 and len(values) * 0.5 * width / spread < 250 and width < spread / 3:
        width *= 2
    return width


def density_of_errors(result: Evaluated) -> Drawing | None:
    """Observed and predicted density of errors of force components, or of energies; None without labels."""
    parts, quantity = judged(result), quantity_of(result)
    if len(parts) < 2:
        return None
    width = bin_width(parts.error * KCAL)
    reach = max(float(np.quantile(np.abs(parts.error), 0.999)) * 1.15 * KCAL, 3 * width)
    while reach / width > MOST_BINS:
        width *= 2
    density = error_density(parts.error, parts.sigma, width * KCAL_PER_MOL, reach * KCAL_PER_MOL)
    edges = np.append(density.left, density.left[-1] + density.width) * KCAL
    observed, predicted, middle = density.observed / width, density.predicted / width, len(density.left) // 2
    alt = (
        f"Density of errors of {quantity.many} of {result.name}, observed and predicted: at zero error "
        f"{observed[middle] / _TO_MEV:.3g} observed and {predicted[middle] / _TO_MEV:.3g} predicted per {quantity.unit}."
    )
    drawn = _pair(edges, observed, predicted, "error", quantity, len(parts))
    return Drawing(f"error-density-{slug(result.name)}", alt, drawn)


def histogram_of_forces(result: Evaluated) -> Drawing | None:
    """Force components of the labels and of the predictions; None without force labels."""
    good = np.isfinite(result.force_true) & np.isfinite(result.force_mean)
    true, predicted = result.force_true[good] * KCAL, result.force_mean[good] * KCAL
    if len(true) < 2:
        return None
    reach = float(np.abs(np.concatenate([true, predicted])).max()) * 1.02 or 1.0
    edges = np.linspace(-reach, reach, 2 * int(np.clip(np.sqrt(len(true)) / 2, 8, 60)) + 1)
    width = edges[1] - edges[0]
    seen, said = (np.histogram(values, edges)[0] / len(true) / width for values in (true, predicted))
    alt = (
        f"Histogram of force components of {result.name}: standard deviation {true.std() * _TO_MEV:.0f} observed and "
        f"{predicted.std() * _TO_MEV:.0f} {FORCE.unit} predicted."
    )
    return Drawing(f"forces-{slug(result.name)}", alt, _pair(edges, seen, said, "value", FORCE, len(true)))


def _pair(
    edges: np.ndarray, observed: np.ndarray, predicted: np.ndarray, what: str, quantity: Quantity, count: int
) -> Any:
    """Both densities, on a linear and on a logarithmic axis.  edges and densities in kcal, shown in meV."""
    from matplotlib.ticker import MaxNLocator

    edges, observed, predicted = edges * _TO_MEV, observed / _TO_MEV, predicted / _TO_MEV
    with styled():
        drawn, axes = figure(7.4, 3.0, 1, 2, sharex=True)
        for axis, scale in zip(axes[0], ("linear", "log")):
            axis.stairs(observed, edges, fill=True, color=colour("blue"), alpha=0.28, linewidth=0)
            axis.stairs(observed, edges, color=colour("blue"), linewidth=1.0, label="observed", baseline=None)
            middle = (edges[1:] + edges[:-1]) / 2
            shown = np.where(predicted > 0, predicted, np.nan)
            axis.plot(middle, shown, color=colour("vermillion"), label="predicted", linestyle=(0, (5, 1.6)))
            axis.set_yscale(scale)
            axis.set(xlim=(edges[0], edges[-1]), xlabel=f"{what} of {quantity.many} / ({quantity.unit})")
            upper = axis.secondary_xaxis("top", functions=_to_kcal())
            upper.tick_params(length=2, labelsize=7)
            upper.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        highest, one = max(observed.max(), np.nanmax(predicted)), 1 / count / (edges[1] - edges[0])
        axes[0, 0].set(ylim=(0, highest * 1.08), ylabel=f"density per {quantity.unit}")
        axes[0, 1].set_ylim(min(one / 2, highest / 100), highest * 2)
        log_ticks(axes[0, 1].yaxis, *axes[0, 1].get_ylim())
        axes[0, 0].legend(loc="upper left", borderaxespad=0.2)
        for axis, title in zip(axes[0], ("linear", "logarithmic")):
            axis.set_title(
                f"{title}   (upper scale: {quantity.kcal})", fontsize=8, fontweight="normal", color=colour("muted")
            )
    return drawn


def _to_kcal() -> tuple[Any, Any]:
    return (lambda x: x / _TO_MEV), (lambda x: x * _TO_MEV)
