"""What predictions are worth: errors, likelihood, ranking and intervals, raw and rescaled by held-back frames."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from equibayes.data import Dataset
from equibayes.evaluation import metrics
from equibayes.evaluation.evaluated import Evaluated, evaluate, recalibrated
from equibayes.posterior.calibrate import with_calibration
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import predict


def measured(posterior: Posterior, held: Dataset, tests: dict[str, Dataset]) -> dict[str, Any]:
    """Numbers for every test set, with the cost of a prediction."""
    assert posterior.calibration is None
    predicted = list(predict(posterior, held.structures, device="cpu"))
    fitted = with_calibration(posterior, held, {len(posterior): predicted}).calibration
    assert fitted is not None
    calibration = Calibration.from_dict(fitted)
    return scored(lambda frames: evaluate(posterior, frames, device="cpu"), partial(_recalibrated, calibration), tests)


def _recalibrated(calibration: Calibration, result: Evaluated) -> Evaluated:
    return recalibrated(result, calibration)


def scored(
    ask: Callable[[Dataset], Evaluated], rescale: Callable[[Evaluated], Evaluated], tests: dict[str, Dataset]
) -> dict[str, Any]:
    """The same for any method: what it predicts, and this rescaled by the held-back frames."""
    found: dict[str, Any] = {}
    for name, frames in tests.items():
        begun = time.process_time()
        raw = ask(frames)
        seconds = (time.process_time() - begun) / len(frames)
        rescaled = numbers(rescale(raw))
        found[name] = numbers(raw) | {"prediction_ms": 1e3 * seconds}
        found[name] |= {f"rescaled_{key}": rescaled[key] for key in ("ln_p", "in_68", "in_95", "auc", "rank")}
        found[name]["rescaled_energy_ln_p"] = rescaled["energy_ln_p"]
    return found


def numbers(result: Evaluated) -> dict[str, Any]:
    """Forces in meV/Å, energies in meV, shares in percent."""
    error, sigma = result.force_error, result.force_sigma
    known = np.isfinite(result.energy_true)
    energy, energy_sigma = result.energy_error[known], result.energy_sigma[known]
    found = {
        "mae": lambda: 1e3 * metrics.mean_absolute_error(error),
        "rmse": lambda: 1e3 * metrics.root_mean_square_error(error),
        "ln_p": lambda: metrics.mean_log_likelihood(error, sigma),
        "auc": lambda: metrics.roc_auc(np.abs(error) > metrics.outlier_threshold(error), sigma),
        "rank": lambda: metrics.spearman(error, sigma),
        "in_68": lambda: 100 * metrics.interval_coverage(error, sigma, 0.6827),
        "in_95": lambda: 100 * metrics.interval_coverage(error, sigma, 0.95),
        "sigma": lambda: 1e3 * metrics.sharpness(sigma),
        "energy_mae": lambda: 1e3 * metrics.mean_absolute_error(energy),
        "energy_ln_p": lambda: metrics.mean_log_likelihood(energy, energy_sigma),
        "energy_in_68": lambda: 100 * metrics.interval_coverage(energy, energy_sigma, 0.6827),
        "energy_auc": lambda: metrics.roc_auc(np.abs(energy) > metrics.outlier_threshold(energy), energy_sigma),
    }
    return {name: _or_none(compute) for name, compute in found.items()}


def _or_none(compute: Callable[[], float | None]) -> float | None:
    try:
        return compute()
    except metrics.Undefined:
        return None
