"""Error and σ by species, and by the number of posterior samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from equibayes.data.elements import symbol
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures.curves import ENERGY, FORCE, components, force_components
from equibayes.evaluation.figures.drawing import Drawing, slug
from equibayes.evaluation.figures.outliers import short
from equibayes.evaluation.figures.style import MEV, colour, figure, series, styled


def species_rows(result: Evaluated) -> list[tuple[str, int, float, float, float]]:
    """Symbol, atoms, RMS error, RMS σ and its epistemic part (eV/Å) of every species that has force labels."""
    rows = []
    for number in np.unique(result.number):
        own = result.number == number
        parts = force_components(result, own)
        if not len(parts):
            continue
        epistemic = components(result.force_error[own], result.force_epistemic[own] + 1e-300).sigma
        error, sigma, spread = (float(np.sqrt(np.mean(np.square(v)))) for v in (parts.error, parts.sigma, epistemic))
        rows.append((symbol(int(number)), int(own.sum()), error, sigma, spread))
    return rows


def by_species(result: Evaluated) -> Drawing | None:
    """RMS error and RMS σ of every species; None without force labels."""
    rows = species_rows(result)
    if not rows:
        return None
    names, _, error, sigma, epistemic = zip(*rows)
    place = np.arange(len(rows))
    with styled():
        drawn, axes = figure(max(3.2, min(8.0, 1.6 + 0.75 * len(rows))), 3.2)
        axis = axes[0, 0]
        axis.bar(place - 0.2, np.array(error) * MEV, 0.36, color=colour("blue"), label="error (RMS)")
        bars: dict[str, Any] = {"color": colour("vermillion"), "alpha": 0.75}
        axis.bar(place + 0.2, np.array(sigma) * MEV, 0.36, label="σ predicted (RMS)", **bars)
        dots = {"color": colour("ink"), "marker": "D", "s": 16, "zorder": 3}
        axis.scatter(place + 0.2, np.array(epistemic) * MEV, label="epistemic part of σ", **dots)
        axis.set_xticks(place, names, color=colour("ink"))
        axis.grid(axis="x", visible=False)
        axis.set(ylabel="force component / (meV/Å)", ylim=(0, max(*error, *sigma) * MEV * 1.45))
        axis.legend(loc="upper left", ncols=1)
    said = "; ".join(f"{name} {e * MEV:.3g} and {s * MEV:.3g}" for name, e, s in zip(names, error, sigma))
    return Drawing(f"species-{slug(result.name)}", f"RMS error and RMS σ in meV/Å by species: {said}.", drawn)


def by_sample_count(table: Sequence[tuple[str, Sequence[tuple[int, dict[str, Any]]]]]) -> Drawing | None:
    """Metrics against k, one line per set.  table: name, then pairs of k and metrics; None with a single k."""
    if not any(len(rows) > 1 for _, rows in table):
        return None
    found = [row for _, rows in table for _, row in rows]
    own = FORCE if any(_find(row, "force_mae") is not None for row in found) else ENERGY
    panels = [
        (f"{own.key}_mae", f"error of {own.many}, MAE / ({own.unit})", MEV, None),
        (f"{own.key}_coverage_68", "fraction of errors within ±1σ", 1.0, 0.6827),
        (f"{own.key}_mll", f"log-likelihood, per {own.kcal}", 1.0, None),
        (f"{own.key}_auc", "ROC AUC of outliers", 1.0, None),
    ]
    panels = [p for p in panels if any(_find(row, p[0]) is not None for _, rows in table for _, row in rows)]
    if not panels:
        return None
    with styled():
        drawn, axes = figure(7.4, 2.6 * -(-len(panels) // 2), -(-len(panels) // 2), 2)
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        for axis, (key, title, scale, ideal) in zip(axes.flat, panels):
            for index, (name, rows) in enumerate(table):
                pairs = [(k, v * scale) for k, row in rows if (v := _find(row, key)) is not None]
                if pairs:
                    axis.plot(*zip(*pairs), marker="o", markersize=4, label=short(name), **series(index))
            if ideal is not None:
                axis.axhline(ideal, color=colour("muted"), linewidth=1, linestyle=(0, (2, 2)))
            ticks = sorted({k for _, rows in table for k, _ in rows})
            axis.set_xscale("log", base=2)
            axis.set_xticks(ticks, [str(k) for k in ticks])
            axis.set(title=title, xlabel="samples k")
            if key.endswith(("_coverage_68", "_auc")):
                _at_least(axis, 0.1)
        axes[0, 0].legend(loc="best")
    return Drawing("samples", f"Metrics of {own.many} against the number of posterior samples k.", drawn)


def _find(row: dict[str, Any], key: str) -> float | None:
    """A metric; the likelihood in the paper's unit, as the tables have it."""
    return (row.get("kcal_mol") or {}).get(key) if key.endswith("_mll") else row.get(key)


def _at_least(axis: Any, span: float) -> None:
    """An axis range that does not magnify negligible differences."""
    low, high = axis.get_ylim()
    if high - low < span:
        middle = (low + high) / 2
        axis.set_ylim(middle - span / 2, middle + span / 2)
