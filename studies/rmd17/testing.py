"""From a posterior to the JSON content that tables and figures need.

All methods predict the same frames of one molecule, so graphs are made once and stay on the device.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from equibayes.data import Dataset
from equibayes.evaluation import metrics
from equibayes.evaluation.calibration_metrics import calibration_curve, places
from equibayes.evaluation.density import error_density
from equibayes.evaluation.evaluated import Evaluated, collect, recalibrated
from equibayes.evaluation.figures.curves import roc_curve
from equibayes.evaluation.metrics import OUTLIER_THRESHOLD
from equibayes.evaluation.tables import measure
from equibayes.posterior.calibrate import with_calibration
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import ReadyPosterior
from equibayes.run.records import round_significant
from studies.shared.batches import Batch, joined_batches

KS = (1, 2, 4, 8)
MULTIPLE = 3
"""Where no error reaches the paper's 1 kcal/(mol Å), outliers are errors above this multiple of the MAE."""
# edges per batch: about 8 GB with 8 samples, on a GPU shared with other runs
EDGES = {"cuda": 30_000, "cpu": 1_250}
LEVELS = np.linspace(0.01, 0.99, 99)
POINTS, BINS = 200, 60


class Frames:
    """Held-back frames for recalibration and test frames, with their graphs on a device; one pass predicts both."""

    def __init__(self, held_back: Dataset, test: Dataset, device: torch.device | str) -> None:
        self.held_back, self.test, self.device = held_back, test, torch.device(device)
        self._known: tuple[float, dict[int, int]] | None = None
        self._batches: list[Batch] = []

    def ask(self, posterior: Posterior) -> tuple[Posterior, list[Evaluated]]:
        """The recalibrated posterior, and raw predictions of the test frames for each possible k of KS."""
        ks = [k for k in KS if k <= len(posterior)]
        ready = ReadyPosterior(replace(posterior, calibration=None), self.device, k=ks[-1])
        answers = [each for frames, graph in self.batches(posterior) for each in ready.predict_batch(frames, graph, ks)]
        if self.device.type == "cuda":
            del ready
            torch.cuda.empty_cache()  # other runs may share the GPU
        count = len(self.held_back)
        by_k = {k: [each[i] for each in answers] for i, k in enumerate(ks)}
        calibrated = with_calibration(posterior, self.held_back, {k: own[:count] for k, own in by_k.items()})
        return calibrated, [collect(self.test.name, k, self.test.structures, own[count:]) for k, own in by_k.items()]

    def batches(self, posterior: Posterior) -> list[Batch]:
        """Joined graphs; those of the last posterior if cutoff and species are the same."""
        wanted = (posterior.network.r_max, posterior.species_of)
        if wanted != self._known:
            self._known, sets = wanted, (self.held_back, self.test)
            self._batches = list(joined_batches(sets, posterior, self.device, EDGES[self.device.type]))
        return self._batches


def describe(results: Sequence[Evaluated], calibration: dict[str, Any]) -> dict[str, Any]:
    """Metrics by k, raw and recalibrated, and the curves of the largest k."""
    raw, fixed = results[-1], recalibrated(results[-1], Calibration.from_dict(calibration))
    with ThreadPoolExecutor() as pool:  # numpy releases the GIL while it sorts
        measured = list(pool.map(all_metrics, [*results, fixed]))
    choice = {
        part: {"method": calibration[part]["method"], **calibration[part]["choice"]} for part in ("forces", "energy")
    }
    return {
        "raw": {str(result.k): values for result, values in zip(results, measured)},
        "recalibrated": {str(fixed.k): measured[-1]},
        "recalibration": choice,
        "curves": {
            "roc": roc(raw, metrics.OUTLIER_THRESHOLD),
            "roc_relative": roc(raw, MULTIPLE * measured[-2]["force_mae"]),
            "calibration": {
                "expected": _numbers(LEVELS),
                "raw": _observed(raw),
                "recalibrated": _observed(fixed),
            },
            "density": {"raw": density(raw), "recalibrated": density(fixed)},
        },
    }


def all_metrics(result: Evaluated) -> dict[str, Any]:
    """The usual metrics, and the ROC AUC for errors above a multiple of the MAE, which every method has."""
    values = measure(result, OUTLIER_THRESHOLD)
    threshold = MULTIPLE * values["force_mae"]
    values["force_auc_relative"] = metrics.roc_auc(np.abs(result.force_error) > threshold, result.force_sigma)
    values["force_auc_relative_threshold"] = threshold
    return values


def roc(result: Evaluated, threshold: float) -> dict[str, Any] | None:
    """Detection by σ of force components with an error above the threshold (eV/Å); None where there are none."""
    outlier = np.abs(result.force_error).ravel() > threshold
    curve = roc_curve(outlier, result.force_sigma.ravel(), POINTS)
    if curve is None:
        return None
    area = metrics.roc_auc(outlier, result.force_sigma)
    flagged, found = (_numbers(part) for part in curve)
    return {"threshold": threshold, "outliers": int(outlier.sum()), "auc": area, "flagged": flagged, "found": found}


def density(result: Evaluated) -> dict[str, Any]:
    """Observed and predicted density of force errors, 1/(eV/Å), on bins that exclude one error in a thousand."""
    reach = 1.15 * float(np.quantile(np.abs(result.force_error), 0.999))
    found = error_density(result.force_error, result.force_sigma, reach / BINS, reach)
    return {
        "left": _numbers(found.left),
        "width": found.width,
        "observed": _numbers(found.observed / found.width),
        "predicted": _numbers(found.predicted / found.width),
    }


def _observed(result: Evaluated) -> list[float]:
    return _numbers(calibration_curve(places(result.force_error, result.force_sigma), LEVELS))


def _numbers(values: Iterable[float]) -> list[float]:
    return [round_significant(float(value)) for value in values]


def held_back_history(posterior: Posterior) -> Iterator[dict[str, Any]]:
    """Force error on the held-back frames against the step, eV/Å, for the mean over chains and for each chain."""
    for record in posterior.history:
        if "validation_force_mae_of_mean" in record:
            yield {
                "step": record["step"],
                "phase": record["phase"],
                "force_mae_of_mean": record["validation_force_mae_of_mean"],
                "force_mae": record["validation_force_mae"],
            }
