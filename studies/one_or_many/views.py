"""Agreement of the chains of a case, and metrics on the test frames by how k samples are spread over chains."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from equibayes.data import Dataset
from equibayes.evaluation import calibration_metrics, metrics
from equibayes.evaluation.evaluated import Evaluated, collect, recalibrated
from equibayes.evaluation.metrics import OUTLIER_THRESHOLD
from equibayes.evaluation.tables import measure
from equibayes.posterior.calibrate import with_calibration
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import ReadyPosterior
from equibayes.posterior.prediction import Prediction
from equibayes.sampling.diagnostics import convergence
from studies.shared.batches import joined_batches

LEVELS = np.linspace(0.05, 0.95, 19)
# edges per batch: a few GB with 64 samples of the network `small`, since several processes share a GPU
EDGES = {"cuda": 12_500, "cpu": 1_250}


class Frames:
    """Held-back frames for recalibration and test frames; graphs are made once, and one pass predicts both."""

    def __init__(self, held_back: Dataset, test: Dataset, posterior: Posterior, device: str) -> None:
        self.held_back, self.test, self.device = held_back, test, device
        edges = EDGES[device.split(":")[0]]
        self.batches = [
            batch for data in (held_back, test) for batch in joined_batches([data], posterior, device, edges)
        ]

    def predictions(self, posterior: Posterior, *, members: bool = False, test: bool = True) -> list[Prediction]:
        """Predictions of the held-back frames, then of the test frames."""
        ready, k = ReadyPosterior(posterior, self.device), len(posterior)
        found: list[Prediction] = []
        for frames, graph in self.batches:
            if test or len(found) < len(self.held_back):
                found += [each for (each,) in ready.predict_batch(frames, graph, [k], members=members)]
        return found

    def agreement(self, posterior: Posterior) -> dict[str, Any]:
        """R-hat and effective sample size of forces on the held-back frames; spread within and between chains, eV/Å."""
        predicted = self.predictions(posterior, members=True, test=False)
        members = [each.members["forces"].reshape(len(posterior), -1) for each in predicted if each.members]
        forces = np.concatenate(members, axis=1)
        draws = np.stack([forces[rows] for rows in by_chain(posterior).values()])  # [chains, draws, components]
        found = convergence(draws)
        within = draws.var(1, ddof=1).mean() if draws.shape[1] > 1 else np.nan
        between = draws.mean(1).var(0, ddof=1).mean() if len(draws) > 1 else np.nan
        return {
            "chains": draws.shape[0],
            "draws_a_chain": draws.shape[1],
            "components": draws.shape[2],
            "r_hat": quantiles(found.r_hat),
            "ess": quantiles(found.ess),
            "undefined_because": found.reason,
            "spread_within_chains": float(np.sqrt(within)),
            "spread_of_chain_means": float(np.sqrt(between)),
        }

    def views(self, posterior: Posterior, k: int, *, thorough: bool) -> dict[str, list[dict[str, Any]]]:
        """Metrics on the test frames, raw and recalibrated, by chains x draws; repeated where there are enough
        samples."""
        found: dict[str, list[dict[str, Any]]] = {}
        for name, rows in ways(posterior, k, thorough):
            own = subset(posterior, rows)
            held_back, test = np.split(np.array(self.predictions(own), dtype=object), [len(self.held_back)])
            raw = collect(self.test.name, len(own), self.test.structures, list(test))
            calibration = with_calibration(own, self.held_back, {len(own): list(held_back)}).calibration
            values = {"raw": measured(raw)}
            if calibration is not None:
                values["recalibrated"] = measured(recalibrated(raw, Calibration.from_dict(calibration)))
            found.setdefault(name, []).append(values)
        return found


def subset(posterior: Posterior, rows: list[int]) -> Posterior:
    return replace(posterior, samples=posterior.samples[rows], chain=posterior.chain[rows], step=posterior.step[rows])


def by_chain(posterior: Posterior) -> dict[int, list[int]]:
    """Rows of the samples of every chain, in order of steps."""
    order = np.argsort(posterior.step.numpy(), kind="stable")
    chains = posterior.chain.numpy()
    return {int(chain): [int(row) for row in order if chains[row] == chain] for chain in np.unique(chains)}


def ways(posterior: Posterior, k: int, thorough: bool) -> Iterator[tuple[str, list[int]]]:
    """Rows of k samples, by how they are spread over chains; all samples at the end."""
    rows = list(by_chain(posterior).values())
    counts = [2**i for i in range(10) if 2**i <= min(k, len(rows))]
    for count in counts if thorough else sorted({1, counts[-1]}):
        each = k // count
        for first in range(0, len(rows) - count + 1, count):
            yield f"{count}x{each}", [row for own in rows[first : first + count] for row in own[-each:]]
    if len(posterior) > k:
        yield "all", list(range(len(posterior)))


def measured(result: Evaluated) -> dict[str, Any]:
    """The usual metrics, the parts of σ (RMS) and the calibration curve of forces at `LEVELS`."""
    values = {key: value for key, value in measure(result, OUTLIER_THRESHOLD).items() if not isinstance(value, dict)}
    places = calibration_metrics.places(result.force_error, result.force_sigma)
    return values | {
        "force_epistemic": metrics.sharpness(result.force_epistemic),
        "force_aleatoric": metrics.sharpness(result.force_aleatoric),
        "force_calibration_curve": calibration_metrics.calibration_curve(places, LEVELS).tolist(),
    }


def quantiles(values: np.ndarray) -> dict[str, float] | None:
    if np.isnan(values).all():
        return None
    return {name: float(np.nanquantile(values, q)) for name, q in (("5%", 0.05), ("median", 0.5), ("95%", 0.95))}
