"""One trial of a preset: settings → posterior → what it is worth on frames that nothing was learned from."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from equibayes.data import Dataset
from equibayes.evaluation import metrics
from equibayes.evaluation.evaluated import Evaluated, collect
from equibayes.posterior.calibrate import calibrate
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import predict, predict_each
from equibayes.posterior.sample import sample_prepared
from equibayes.run import Run
from equibayes.run.prepare import prepare
from equibayes.run.settings import SampleConfig

KEPT_RECORDS = 24


def trial(config: SampleConfig, data: Dataset, judged: Dataset, device: str) -> dict[str, Any]:
    """Errors and intervals on `judged`, cost, and the course of the run."""
    prepared = prepare(data, config)
    cpu, wall = time.process_time(), time.monotonic()
    posterior = sample_prepared(prepared, data, Run(device=device))
    cost = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.monotonic() - wall}
    schedule = config.schedule(len(prepared.train))
    k = len(posterior)
    found: dict[str, Any] = {
        "frames": len(prepared.train),
        "steps": schedule.total_steps,
        "weight_set_steps": schedule.total_steps * config.chains,
        **cost,
        "engine": posterior.engine,
        "views": {},
    }
    judge = _Judge(posterior, prepared.validation, judged, device)
    for number in sorted({1, min(config.chains, k), k}):
        found["views"][str(number)] = judge.first(number)
    return found | {
        "members": judge.members(),
        "validation": [_short(record) for record in _some(posterior.history)],
        "verdict": {name: posterior.verdict[name] for name in ("stationarity", "kinetic_temperature", "events")},
    }


def judged_by(posterior: Posterior, judged: Dataset, device: str) -> dict[str, Any]:
    """What the whole posterior is worth."""
    predicted = list(predict(posterior, judged.structures, device=device))
    return measured(collect(judged.name, len(posterior), judged.structures, predicted))


class _Judge:
    def __init__(self, posterior: Posterior, held_back: Dataset, judged: Dataset, device: str) -> None:
        self.posterior, self.held_back, self.judged, self.device = posterior, held_back, judged, device

    def first(self, k: int) -> dict[str, Any]:
        """With the last k samples, raw and calibrated on the held-back frames."""
        rows = slice(len(self.posterior) - k, None)
        own = replace(
            self.posterior,
            samples=self.posterior.samples[rows],
            chain=self.posterior.chain[rows],
            step=self.posterior.step[rows],
        )
        predicted = [each[0] for each in predict_each(own, self.judged.structures, [k], device=self.device)]
        raw = collect(self.judged.name, k, self.judged.structures, predicted)
        values = {"raw": measured(raw)}
        if k == len(self.posterior):
            # σ of novel atoms is raised by a fixed rule (posterior/floor.py), whatever the samples say
            values["without_floor"] = judged_by(replace(own, novelty=None), self.judged, self.device)
        if len(self.held_back) >= 10:
            found = calibrate(own, self.held_back, device=self.device)
            values["calibrated"] = judged_by(found, self.judged, self.device)
        return values

    def members(self) -> dict[str, Any]:
        """Each sample alone, and what the mean over k of them has for an error: RMSE² = b² + v/k, meV/Å.

        b² is the bias that all samples share, v the variance over samples; of the last sample of each chain.
        """
        predicted = predict(self.posterior, self.judged.structures, members=True, device=self.device)
        forces = np.concatenate([each.members["forces"] for each in predicted if each.members], axis=1)
        truth = np.concatenate([np.asarray(structure.forces) for structure in self.judged.structures])
        error = 1e3 * (forces - truth)
        last = {int(chain): row for row, chain in enumerate(self.posterior.chain.tolist())}
        own = error[sorted(last.values())]
        found: dict[str, Any] = {
            "chain": self.posterior.chain.tolist(),
            "step": self.posterior.step.tolist(),
            "mae": np.abs(error).mean((1, 2)).tolist(),
        }
        if len(own) > 1:
            v = float(own.var(0, ddof=1).mean())
            found |= {"chains": len(own), "b2": float(np.square(own.mean(0)).mean()) - v / len(own), "v": v}
        return found


def measured(result: Evaluated) -> dict[str, Any]:
    """Forces in meV/Å, energies in meV; shares in percent."""
    error, sigma = result.force_error, result.force_sigma
    known = np.isfinite(result.energy_true)
    return {
        "mae": 1e3 * metrics.mean_absolute_error(error),
        "rmse": 1e3 * metrics.root_mean_square_error(error),
        "sigma": 1e3 * metrics.sharpness(sigma),
        "epistemic": 1e3 * metrics.sharpness(result.force_epistemic),
        "mll": metrics.mean_log_likelihood(error, sigma),
        "in_68": 100 * metrics.interval_coverage(error, sigma, 0.68),
        "in_95": 100 * metrics.interval_coverage(error, sigma, 0.95),
        "most_uncertain_tenth": metrics.error_of_most_uncertain(error, sigma),
        "auc": metrics.roc_auc(np.abs(error) > metrics.outlier_threshold(error), sigma),
        "energy_mae": 1e3 * metrics.mean_absolute_error(result.energy_error[known]) if known.any() else None,
        "energy_in_68": 100 * metrics.interval_coverage(result.energy_error[known], result.energy_sigma[known], 0.68)
        if known.any()
        else None,
    }


def _some(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    seen = [record for record in history if "validation_force_mae" in record]
    return seen[:: max(1, len(seen) // KEPT_RECORDS)] + seen[-1:]


def _short(record: dict[str, Any]) -> dict[str, Any]:
    """Means over chains on the held-back frames of the run, meV/Å."""
    numbers = {
        name: float(torch.tensor([value for value in record[name] if value is not None]).mean()) * 1e3
        for name in ("validation_force_mae", "validation_force_sigma")
    }
    mean = record.get("validation_force_mae_of_mean")
    return {"step": record["step"], **numbers, "of_mean": None if mean is None else 1e3 * mean}
