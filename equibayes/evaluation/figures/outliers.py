"""ROC curves: how well σ finds the components that are far off (the paper's figure 4)."""

from collections.abc import Sequence

import numpy as np

from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures.curves import FORCE, judged, quantity_of, roc_curve
from equibayes.evaluation.figures.drawing import Drawing
from equibayes.evaluation.figures.style import MEV, colour, figure, series, styled
from equibayes.evaluation.metrics import roc_auc

FEWEST = 10
"""Fewest values for which a curve is drawn."""


def roc_curves(results: Sequence[Evaluated], thresholds: Sequence[float]) -> Drawing | None:
    """One curve per set; None where no set has outliers.  thresholds: of each set, eV/Å (of energies: eV)."""
    curves = []
    for index, (result, threshold) in enumerate(zip(results, thresholds, strict=True)):
        parts = judged(result)
        outlier = np.abs(parts.error) > threshold
        curve = roc_curve(outlier, parts.sigma)
        if curve is not None:
            limit = f"{threshold * MEV:.3g} {quantity_of(result).unit}"
            curves.append((index, result, curve, roc_auc(outlier, parts.sigma), limit))
    if not curves:
        return None
    with styled():
        drawn, axes = figure(4.6, 4.1)
        axis = axes[0, 0]
        axis.plot([0, 1], [0, 1], color=colour("muted"), linewidth=1, linestyle=(0, (2, 2)))
        axis.text(0.62, 0.59, "guessing", color=colour("muted"), fontsize=8, rotation=42, ha="center", va="top")
        for index, result, (x, y), auc, _ in curves:
            axis.plot(x, y, label=f"{short(result.name)}: AUC {auc:.3f}", **series(index))
        axis.set(xlim=(-0.015, 1.015), ylim=(-0.015, 1.015), aspect="equal")
        axis.set(xlabel="fraction of good components flagged", ylabel="fraction of outliers found")
        axis.legend(loc="lower right")
    alt = "; ".join(f"{result.name}: area {auc:.3f} for errors above {limit}" for _, result, _, auc, limit in curves)
    return Drawing("roc", f"ROC curves. {alt}.", drawn)


def error_of_remaining(results: Sequence[Evaluated]) -> Drawing | None:
    """Mean |error| of the rest against the share of most uncertain components set aside; None without labels."""
    shares = np.linspace(0, 0.9, 46)
    said = []
    quantity = next((quantity_of(result) for result in results if len(judged(result)) >= FEWEST), FORCE)
    with styled():
        drawn, axes = figure(4.6, 4.1)
        axis = axes[0, 0]
        for index, result in enumerate(results):
            parts = judged(result)
            if len(parts) < FEWEST or quantity_of(result) is not quantity:  # one axis has one unit
                continue
            error = np.abs(parts.error) * MEV
            by_sigma, by_error = (_mean_of_rest(error, score, shares) for score in (parts.sigma, error))
            look = series(index)
            axis.plot(100 * shares, by_sigma, label=short(result.name), **look)
            axis.plot(100 * shares, by_error, color=look["color"], linewidth=0.9, alpha=0.7, linestyle=(0, (1, 1.5)))
            rest = np.interp(0.2, shares, by_sigma)
            said.append(f"{result.name}: {by_sigma[0]:.3g} {quantity.unit} for all, {rest:.3g} without a fifth")
        axis.set(xlabel="most uncertain fraction set aside / %", ylabel=f"mean |error| of the rest / ({quantity.unit})")
        axis.set(xlim=(0, 90))
        axis.set_ylim(bottom=0)
        if len(said) > 1:
            axis.legend(loc="lower left")
    if not said:
        return None
    return Drawing("remaining", f"Error after setting aside the most uncertain. {'; '.join(said)}.", drawn)


def _mean_of_rest(error: np.ndarray, score: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Mean error after removing the given fractions with the highest score."""
    total = np.cumsum(error[np.argsort(score, kind="stable")])
    left = np.maximum(1, np.round((1 - shares) * len(error)).astype(int))
    return total[left - 1] / left


def short(name: str, length: int = 30) -> str:
    """A name that fits a legend; a dollar sign would start mathematics."""
    name = name if len(name) <= length else f"{name[: length - 1]}…"
    return name.replace("$", r"\$")
