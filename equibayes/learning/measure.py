"""Errors of a posterior on a test set, and its σ of unlabelled structures, as numbers and as sentences."""

from collections.abc import Callable
from typing import Any

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.evaluation import metrics
from equibayes.evaluation.evaluated import evaluate
from equibayes.plural import counted
from equibayes.posterior.file import Posterior
from equibayes.units import GPA


def errors_on(posterior: Posterior, test: Dataset, device: str) -> dict[str, Any]:
    """Errors and predicted σ on a test set, eV, eV/Å and eV/Å³; None where a number is undefined."""
    found = evaluate(posterior, test, device=device)
    force, energy, stress = found.force_error, found.energy_error, found.stress_error
    kept, known, labelled = np.isfinite(force), np.isfinite(energy), np.isfinite(stress)
    wanted: dict[str, Callable[[], float]] = {
        "force_mae": lambda: metrics.mean_absolute_error(force[kept]),
        "force_rmse": lambda: metrics.root_mean_square_error(force[kept]),
        "force_sigma": lambda: metrics.sharpness(found.force_sigma),
        "force_mll": lambda: metrics.mean_log_likelihood(force[kept], found.force_sigma[kept]),
        "energy_mae": lambda: metrics.mean_absolute_error(energy[known]),
        "energy_sigma": lambda: metrics.sharpness(found.energy_sigma),
        "stress_mae": lambda: metrics.mean_absolute_error(stress[labelled]),
        "stress_sigma": lambda: metrics.sharpness(found.stress_sigma[labelled]),
    }
    numbers: dict[str, Any] = {}
    for name, compute in wanted.items():
        try:
            numbers[name] = compute()
        except metrics.Undefined:
            numbers[name] = None
    return numbers


def error_words(measured: dict[str, Any]) -> str:
    words = f"{counted(measured['labels'], 'label')}"
    if measured.get("force_mae") is not None and measured.get("force_sigma") is not None:
        error, sigma = 1e3 * measured["force_mae"], 1e3 * measured["force_sigma"]
        words += f", force error {error:.1f} meV/Å (MAE), predicted σ {sigma:.1f} meV/Å (RMS)"
    if measured.get("stress_mae") is not None and measured.get("stress_sigma") is not None:
        error, sigma = measured["stress_mae"] / GPA, measured["stress_sigma"] / GPA
        words += f"; stress error {error:.2g} GPa, σ {sigma:.2g} GPa"
    return words


def survey_words(survey: dict[str, Any]) -> str:
    states = ", ".join(f"{count} {name}" for name, count in survey["states"].items() if count)
    sigma = f"; σ up to {1e3 * survey['sigma_largest']:.1f} meV/Å" if survey["sigma_largest"] is not None else ""
    return f"{survey['proposals']} proposals: {states}{sigma}"
