"""Does σ say how large errors are?  Coverage of intervals, and errors by predicted σ."""

from collections.abc import Sequence

import numpy as np

from equibayes.evaluation.calibration_metrics import calibration_curve, places
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures.curves import (
    STRESS,
    energies,
    force_components,
    judged,
    quantile_bands,
    quantity_of,
    stress_elements,
)
from equibayes.evaluation.figures.drawing import Drawing, slug
from equibayes.evaluation.figures.outliers import FEWEST, short
from equibayes.evaluation.figures.style import colour, figure, log_ticks, series, styled

# |error| of a Gaussian lies below these multiples of σ in 50, 68 and 95 of 100 cases
_LEVELS = {0.5: 0.6745, 0.6827: 1.0, 0.95: 1.96}


def reliability_diagram(results: Sequence[Evaluated]) -> Drawing | None:
    """How many errors lie within the interval that should hold a given share; forces, energies and stress."""
    parts_of = {"forces": force_components, "energies": energies, "stress": stress_elements}
    quantities = [(what, [find(result) for result in results]) for what, find in parts_of.items()]
    quantities = [(what, parts) for what, parts in quantities if any(len(p) >= FEWEST for p in parts)]
    if not quantities:
        return None
    levels = np.linspace(0.01, 0.99, 99)
    said = []
    with styled():
        drawn, axes = figure(3.75 * len(quantities), 3.9, 1, len(quantities))
        for axis, (what, sets) in zip(axes[0], quantities):
            axis.fill_between([0, 1], [0, 1], [0, 0], color=colour("vermillion"), alpha=0.07, linewidth=0)
            axis.fill_between([0, 1], [0, 1], [1, 1], color=colour("blue"), alpha=0.07, linewidth=0)
            axis.plot([0, 1], [0, 1], color=colour("muted"), linewidth=1, linestyle=(0, (2, 2)))
            axis.text(0.97, 0.04, "overconfident: σ too small", color=colour("muted"), fontsize=7.5, ha="right")
            axis.text(0.03, 0.95, "underconfident: σ too large", color=colour("muted"), fontsize=7.5, va="top")
            for index, (result, parts) in enumerate(zip(results, sets)):
                if len(parts) < FEWEST:
                    continue
                inside = calibration_curve(places(parts.error, parts.sigma), levels)
                axis.plot([0, *levels, 1], [0, *inside, 1], label=short(result.name, 24), **series(index))
                said.append(
                    f"{what} of {result.name}: {100 * np.interp(0.68, levels, inside):.0f} % where 68 % is right"
                )
            axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=what)
            axis.set(xlabel="fraction that should lie inside", ylabel="fraction that lies inside")
            if len(results) > 1:
                axis.legend(loc="center right", bbox_to_anchor=(1.0, 0.2))
    return Drawing("reliability", f"Reliability diagram. {'; '.join(said)}.", drawn)


def sigma_against_error(result: Evaluated, *, stress: bool = False) -> Drawing | None:
    """Quantiles of |error| in bins of equal σ, and those of a Gaussian of that σ; None with too few labels.

    stress: of the stress instead of what the set is judged by
    """
    parts, quantity = (stress_elements(result), STRESS) if stress else (judged(result), quantity_of(result))
    if len(parts) < 20 * 3:
        return None
    scale = quantity.scale
    middle, spread = quantile_bands(parts.error * scale, parts.sigma * scale, (*_LEVELS, 0.05, 0.25, 0.75))
    with styled():
        drawn, axes = figure(4.6, 3.7)
        axis = axes[0, 0]
        reach = np.array([middle[0] / 1.15, middle[-1] * 1.15])
        axis.fill_between(middle, spread[3], spread[2], color=colour("blue"), alpha=0.14, linewidth=0)
        axis.fill_between(middle, spread[4], spread[5], color=colour("blue"), alpha=0.22, linewidth=0)
        for row, ((level, factor), marker, name) in enumerate(zip(_LEVELS.items(), "os^", ("blue", "green", "purple"))):
            axis.plot(reach, factor * reach, color=colour(name), linewidth=1, linestyle=(0, (2, 2)))
            label = f"{100 * level:.0f} % of errors are below"
            axis.plot(middle, spread[row], color=colour(name), marker=marker, markersize=3.5, label=label)
        axis.set(xscale="log", yscale="log", xlim=reach)
        axis.set(xlabel=f"predicted σ / ({quantity.unit})")
        axis.set(ylabel=f"|error| of {'an' if quantity.one[0] in 'aeiou' else 'a'} {quantity.one} / ({quantity.unit})")
        low = max(float(spread[4].min()), 1e-3 * float(spread[2].max()), 1e-12)
        axis.set_ylim(low / 1.5, max(float(spread[2].max()), 1.96 * reach[1]) * 1.3)
        log_ticks(axis.xaxis, *axis.get_xlim())
        log_ticks(axis.yaxis, *axis.get_ylim())
        axis.legend(loc="upper left")
    alt = (
        f"Errors by predicted σ for {result.name}: 68 % of errors are below {spread[1][0]:.3g} {quantity.unit} where σ is about "
        f"{middle[0]:.3g}, and below {spread[1][-1]:.3g} {quantity.unit} where σ is about {middle[-1]:.3g}."
    )
    return Drawing(f"sigma-error-{'stress-' * stress}{slug(result.name)}", alt, drawn)
