"""Recalibration on validation frames: predict them, choose a method, fit it for every k, store it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data.dataset import Dataset
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.posterior import conformal
from equibayes.posterior.calibration import METHODS, QUANTITIES, Calibrated, Calibration, uncalibrated
from equibayes.posterior.choose import choose, coverage
from equibayes.posterior.file import Posterior, read, write
from equibayes.posterior.predict import predict, predict_each
from equibayes.posterior.prediction import Floor, Prediction
from equibayes.posterior.rescale import FEWEST_FRAMES, FITS, Residuals
from equibayes.posterior.sigma import Sigma
from equibayes.posterior.stress import six_elements


def calibrate(
    posterior: Posterior,
    data: Dataset,
    *,
    method: str = "auto",
    device: torch.device | str | None = None,
    progress: Callable[[Iterable[Structure]], Iterable[Structure]] = iter,
) -> Posterior:
    """The posterior with a calibration for energies, forces and stress, found on labelled frames it did not learn from.

    method    one of METHODS for all, or auto: chosen by cross-validation, for each
    progress  wraps the frames to show progress
    """
    if method not in ("auto", *METHODS):
        raise InputError(f"calibration method '{method}': there are auto, {', '.join(METHODS)}")
    ks = _numbers_of_samples(len(posterior))
    raw = replace(posterior, calibration=None, novelty=None)  # without what is added after the calibration
    predictions = list(predict_each(raw, progress(data.structures), ks, device=device))
    by_k = {k: [each[i] for each in predictions] for i, k in enumerate(ks)}
    return with_calibration(posterior, data, by_k, method, floors_of(posterior, data, device))


def floors_of(
    posterior: Posterior, data: Dataset, device: torch.device | str | None = None
) -> list[Floor | None] | None:
    """What novelty asks for in every frame, from one sample."""
    if posterior.novelty is None:
        return None
    one = replace(posterior.subset(1), calibration=None)
    return [prediction.floor for prediction in predict(one, data.structures, device=device)]


def with_calibration(
    posterior: Posterior,
    data: Dataset,
    by_k: Mapping[int, Sequence[Prediction]],
    method: str = "auto",
    floors: Sequence[Floor | None] | None = None,
) -> Posterior:
    """The same where the frames have been predicted already, uncalibrated and without novelty, with the first k samples
    for some k; floors: what novelty asks for."""
    found = {
        name: find({k: residuals_of(name, data, each, k, floors) for k, each in by_k.items()}, method)
        for name in QUANTITIES
    }
    about = {"name": data.name, "frames": len(data), "fingerprint": data.fingerprint()}
    calibration = Calibration(**found, data=about)
    reasons = {word: part.choice.get("reason") for word, part in calibration.parts().items()}
    if all(reasons.values()):
        raise InputError(f"{data.name}: {'; '.join(f'{word}: {reason}' for word, reason in reasons.items())}")
    return replace(posterior, calibration=calibration.to_dict())


def find(by_k: dict[int, Residuals], method: str) -> Calibrated:
    """For every k; the method is chosen at the largest, where it will mostly be used."""
    residuals = by_k[max(by_k)]
    reason = next(filter(None, map(_unusable, [residuals, *by_k.values()])), "")  # few samples may have no spread
    if reason:
        return uncalibrated(reason, max(by_k), len(residuals.frames))
    usual = residuals.familiar()
    best, gains = choose(usual)
    if method != "auto":
        best = method
    fitted = {k: FITS[best](each.familiar()) for k, each in by_k.items()}
    before, after = usual.sigma.total, fitted[usual.k].apply(usual.sigma, usual.number).total
    choice = {
        "frames": len(residuals.frames),
        "components": len(residuals.error),
        "chosen_by": method,
        "gain": gains,
        "factor": float(np.sqrt(np.square(after / before).mean())),
        "coverage_before": coverage(usual, "none"),
        "coverage_after": coverage(usual, best),
    }
    quantiles = {k: conformal.quantiles(np.abs(r.error) / r.sigma.total, r.frame) for k, r in by_k.items()}
    return Calibrated(best, fitted, quantiles, choice)


def _unusable(residuals: Residuals) -> str:
    """Why nothing can be learned from these errors; empty if it can."""
    count = len(residuals.frames)
    if count < FEWEST_FRAMES:
        return f"{counted(count or 'no', 'labelled frame')}, {FEWEST_FRAMES} are needed to calibrate on"
    sigma = residuals.sigma.total
    if not np.isfinite(residuals.error).all() or not ((sigma > 0) & np.isfinite(sigma)).all():
        return "some predictions are not finite or have no σ"
    if not residuals.error.any():
        return "the labels are the predictions themselves"
    return ""


def residuals_of(
    quantity: str,
    data: Dataset,
    predictions: Sequence[Prediction],
    k: int,
    floors: Sequence[Floor | None] | None = None,
) -> Residuals:
    """Over all components of "forces", the six elements of every "stress", or over every "energy", with a label that
    can be compared."""
    rows, flat = [], six_elements if quantity == "stress" else np.ravel
    for frame, (structure, prediction) in enumerate(zip(data, predictions)):
        label = structure.stress_label if quantity == "stress" else getattr(structure, quantity)
        if label is not None and (quantity != "energy" or prediction.energy_known):
            parts = (getattr(prediction, quantity + part) for part in ("", "_epistemic", "_aleatoric"))
            mean, epistemic, aleatoric = map(flat, parts)
            numbers = np.repeat(structure.numbers, 3) if quantity == "forces" else np.zeros(len(mean), dtype=np.int64)
            least = np.broadcast_to(_least(quantity, structure, floors[frame] if floors else None), mean.shape)
            rows.append((mean - flat(label), epistemic, aleatoric, numbers, np.full(len(numbers), frame), least))
    columns = [np.concatenate(column) for column in zip(*rows)] or [np.zeros(0)] * 6
    error, epistemic, aleatoric, number, frame_of, least = columns
    sigma = Sigma(epistemic, aleatoric)
    return Residuals(error, sigma, number.astype(np.int64), frame_of.astype(np.int64), k, least)


def _least(quantity: str, structure: Structure, floor: Floor | None) -> np.ndarray:
    """The least σ of the components."""
    if floor is None:
        return np.zeros(())
    energy, forces = floor
    if quantity == "forces":
        return np.repeat(forces, 3)
    return np.asarray(energy if quantity == "energy" else energy / (structure.volume or np.nan))


def store(source: str | Path, target: str | Path, calibration: dict[str, Any] | None) -> None:
    """Write a posterior file again with another calibration; everything else stays the same."""
    header, tensors = read(source)
    write(target, header | {"calibration": calibration}, tensors)


def _numbers_of_samples(k: int) -> list[int]:
    """All up to 16, then powers of two and the whole: between them the one below serves."""
    return sorted({*range(1, min(k, 16) + 1), *(2**i for i in range(4, 20) if 2**i <= k), k})
