"""Metrics of a domain shift: does σ grow with the error, in and out of distribution?

eV, Å.  Pure functions of `Evaluated`, which holds predictions and labels.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from equibayes.evaluation import metrics
from equibayes.evaluation.calibration_metrics import calibration_curve, places
from equibayes.evaluation.density import error_density
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.figures.curves import quantile_bands, roc_curve
from equibayes.evaluation.metrics import OUTLIER_THRESHOLD, Undefined
from equibayes.evaluation.tables import component_metrics

TIMES_INSIDE = 3.0
"""Errors above this multiple of the in-distribution mean absolute error also count as outliers."""
WANTED = ("mae", "rmse", "mll", "nece", "miscalibration_area", "coverage_68", "coverage_95", "auc", "spearman", "ence")
LEVELS = np.linspace(0.05, 0.95, 19)
FRAMES_SHOWN = 150
FRAME_SCORES = ("largest", "rms", "largest_epistemic")


def inside_error(results: Sequence[Evaluated]) -> float:
    """Mean absolute error of force components over all of these sets together, eV/Å."""
    return float(np.abs(np.concatenate([result.force_error.ravel() for result in results])).mean())


def measured(result: Evaluated, threshold: float) -> dict[str, Any]:
    """All metrics of one test set; `threshold` in eV/Å is that of `force_auc_relative`."""
    error, sigma = result.force_error, result.force_sigma
    known = np.isfinite(result.energy_true)
    energy_error, energy_sigma = result.energy_error[known], result.energy_sigma[known]
    found: dict[str, Any] = {"k": result.k, "frames": len(result.structures), "atoms": len(result.number)}
    for kind, values in (
        ("force", component_metrics("force", error, sigma, OUTLIER_THRESHOLD)),
        ("energy", component_metrics("energy", energy_error, energy_sigma, OUTLIER_THRESHOLD)),
    ):
        found |= {f"{kind}_{name}": _or_none(values[f"{kind}_{name}"]) for name in WANTED}
    length, width = np.linalg.norm(error, axis=1), np.linalg.norm(sigma, axis=1)
    found |= {
        "force_outlier_share": float((np.abs(error) > OUTLIER_THRESHOLD).mean()),
        "force_auc_relative": _or_none(lambda: metrics.outlier_auc(error, sigma, threshold)),
        "force_outlier_share_relative": float((np.abs(error) > threshold).mean()),
        "threshold_relative": threshold,
        "atom_spearman": _or_none(lambda: metrics.spearman(length, width)),
        "frame_spearman": _or_none(lambda: metrics.spearman(_frame_rms(result, length), _frame_rms(result, width))),
        "energy_mae_up_to_a_constant": _up_to_a_constant(result),
    }
    for part in ("sigma", "epistemic", "aleatoric"):
        values = getattr(result, f"force_{part}")
        found[f"mean_{part}"], found[f"rms_{part}"] = float(values.mean()), float(np.sqrt(np.square(values).mean()))
    return found


def detection(inside: Sequence[Evaluated], others: dict[str, Evaluated]) -> dict[str, Any]:
    """ROC AUC for separating each of the other sets from those in distribution by the σ of a frame; 0.5 is chance.

    The largest σ of a frame increases with its number of atoms; its root mean square does not, and is the fairer score
    where molecules differ in size.
    """
    own = {name: np.concatenate([frame_scores(result)[name] for result in inside]) for name in FRAME_SCORES}
    return {
        other: {
            name: metrics.roc_auc(np.repeat([False, True], [len(own[name]), len(score)]), np.append(own[name], score))
            for name, score in frame_scores(result).items()
        }
        for other, result in others.items()
    }


def frame_scores(result: Evaluated) -> dict[str, np.ndarray]:
    """Of every frame [F], eV/Å: the largest σ of an atom (a vector's), their root mean square, the largest epistemic
    part."""
    width, spread = (np.linalg.norm(part, axis=1) for part in (result.force_sigma, result.force_epistemic))
    starts = np.flatnonzero(np.diff(result.frame, prepend=-1))
    return {
        "largest": np.maximum.reduceat(width, starts),
        "rms": _frame_rms(result, width),
        "largest_epistemic": np.maximum.reduceat(spread, starts),
    }


def curves(result: Evaluated, threshold: float) -> dict[str, Any]:
    """Data of the figures, thinned."""
    error, sigma = result.force_error.ravel(), result.force_sigma.ravel()
    length, width = np.linalg.norm(result.force_error, axis=1), np.linalg.norm(result.force_sigma, axis=1)
    reach = float(np.quantile(np.abs(error), 0.999)) * 1.1
    density = error_density(error, sigma, max(reach / 50, 1e-9), reach)
    middle, bands = quantile_bands(error, sigma, (0.5, 0.6827, 0.95))
    shown = np.unique(np.linspace(0, len(result.structures) - 1, FRAMES_SHOWN).astype(int))
    return {
        "calibration": {"level": _listed(LEVELS), "inside": _listed(calibration_curve(places(error, sigma), LEVELS))},
        "roc": {
            name: None if found is None else {"false": _listed(found[0]), "found": _listed(found[1])}
            for name, limit in (("kcal", OUTLIER_THRESHOLD), ("relative", threshold))
            for found in [roc_curve(np.abs(error) > limit, sigma, 80)]
        },
        "density": {
            "left": _listed(density.left),
            "width": density.width,
            "observed": _listed(density.observed),
            "predicted": _listed(density.predicted),
        },
        "bands": {"sigma": _listed(middle), "error_50_68_95": [_listed(row) for row in bands]},
        "frames": {
            "rms_error": _listed(_frame_rms(result, length)[shown]),
            "rms_sigma": _listed(_frame_rms(result, width)[shown]),
        },
    }


def _frame_rms(result: Evaluated, values: np.ndarray) -> np.ndarray:
    """Root mean square over the atoms of every frame [F], from values [A]."""
    return np.sqrt(np.bincount(result.frame, np.square(values)) / np.bincount(result.frame))


def _up_to_a_constant(result: Evaluated) -> float | None:
    """Mean absolute error of energies, eV, minus the mean error of every molecule."""
    if any(s.energy is None for s in result.structures):
        return None
    error = result.energy_mean - np.array([s.energy for s in result.structures])
    formulas = [s.composition for s in result.structures]
    for formula in set(formulas):
        own = np.array([other == formula for other in formulas])
        error[own] -= error[own].mean()
    return float(np.abs(error).mean())


def _or_none(metric: Callable[[], float]) -> float | None:
    try:
        return metric()
    except Undefined:
        return None


def _listed(values: np.ndarray) -> list[float]:
    """Four digits are enough for a figure."""
    return [float(f"{value:.4g}") for value in values]
