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
from equibayes.posterior import conformal
from equibayes.posterior.calibration import METHODS, Calibrated, Calibration, Rescaling
from equibayes.posterior.choose import choose, coverage
from equibayes.posterior.file import Posterior, read, write
from equibayes.posterior.predict import Prediction, predict_each
from equibayes.posterior.rescale import FITS, Residuals
from equibayes.posterior.sample import frame_mark
from equibayes.posterior.sigma import Sigma

FEWEST_FRAMES = 10


def calibrate(
    posterior: Posterior,
    data: Dataset,
    *,
    method: str = "auto",
    device: torch.device | str = "cpu",
    progress: Callable[[Iterable[Structure]], Iterable[Structure]] = iter,
) -> Posterior:
    """The posterior with a calibration for energies and for forces, found on labelled frames it did not learn from.

    method    one of METHODS for both, or auto: chosen by cross-validation, for each
    progress  wraps the frames to show progress
    """
    if method not in ("auto", *METHODS):
        raise InputError(f"calibration method '{method}': there are auto, {', '.join(METHODS)}")
    ks = _numbers_of_samples(len(posterior))
    raw = replace(posterior, calibration=None)
    predictions = list(predict_each(raw, progress(data.structures), ks, device=device))
    return with_calibration(posterior, data, {k: [each[i] for each in predictions] for i, k in enumerate(ks)}, method)


def with_calibration(
    posterior: Posterior, data: Dataset, by_k: Mapping[int, Sequence[Prediction]], method: str = "auto"
) -> Posterior:
    """The same where the frames have been predicted already, uncalibrated, with the first k samples for some k."""
    calibration = Calibration(
        energy=find({k: energy_residuals(data, each, k) for k, each in by_k.items()}, method),
        forces=find({k: force_residuals(data, each, k) for k, each in by_k.items()}, method),
        data={"name": data.name, "frames": len(data), "fingerprint": data.fingerprint()},
    )
    reasons = [part.choice.get("reason") for part in (calibration.forces, calibration.energy)]
    if all(reasons):
        raise InputError(f"{data.name}: forces: {reasons[0]}; energies: {reasons[1]}")
    return replace(posterior, calibration=calibration.to_dict())


def find(by_k: dict[int, Residuals], method: str) -> Calibrated:
    """For every k; the method is chosen at the largest, where it will mostly be used."""
    residuals = by_k[max(by_k)]
    reason = _unusable(residuals)
    if reason:
        return Calibrated("none", {max(by_k): Rescaling()}, choice={"reason": reason})
    best, gains = choose(residuals)
    if method != "auto":
        best = method
    fitted = {k: FITS[best](each) for k, each in by_k.items()}
    before, after = residuals.sigma.total, fitted[residuals.k].apply(residuals.sigma, residuals.number).total
    choice = {
        "frames": len(residuals.frames),
        "components": len(residuals.error),
        "chosen_by": method,
        "gain": gains,
        "factor": float(np.sqrt(np.square(after / before).mean())),
        "coverage_before": coverage(residuals, "none"),
        "coverage_after": coverage(residuals, best),
    }
    quantiles = {k: conformal.quantiles(np.abs(r.error) / r.sigma.total, r.frame) for k, r in by_k.items()}
    return Calibrated(best, fitted, quantiles, choice)


def _unusable(residuals: Residuals) -> str:
    """Why nothing can be learned from these errors; empty if it can."""
    count = len(residuals.frames)
    if count < FEWEST_FRAMES:
        return f"{count or 'no'} labelled frames, {FEWEST_FRAMES} are needed to calibrate on"
    if not np.isfinite(residuals.error).all() or not (residuals.sigma.total > 0).all():
        return "some predictions are not finite or have no σ"
    if not residuals.error.any():
        return "the labels are the predictions themselves"
    return ""


def force_residuals(data: Dataset, predictions: Sequence[Prediction], k: int) -> Residuals:
    """Over all force components with a label."""
    rows = [(i, s, p) for i, (s, p) in enumerate(zip(data, predictions)) if s.forces is not None]
    return Residuals(
        error=_joined([(p.forces - s.forces).ravel() for _, s, p in rows]),
        sigma=Sigma(
            _joined([p.forces_epistemic.ravel() for _, _, p in rows]),
            _joined([p.forces_aleatoric.ravel() for _, _, p in rows]),
        ),
        number=_joined([np.repeat(s.numbers, 3) for _, s, _ in rows]).astype(np.int64),
        frame=_joined([np.full(3 * len(s), i) for i, s, _ in rows]).astype(np.int64),
        k=k,
    )


def energy_residuals(data: Dataset, predictions: Sequence[Prediction], k: int) -> Residuals:
    """Over all structures with an energy label that can be compared."""
    rows = [
        (i, s.energy, p) for i, (s, p) in enumerate(zip(data, predictions)) if s.energy is not None and p.energy_known
    ]
    return Residuals(
        error=np.array([p.energy - label for _, label, p in rows]),
        sigma=Sigma(
            np.array([p.energy_epistemic for _, _, p in rows]), np.array([p.energy_aleatoric for _, _, p in rows])
        ),
        number=np.zeros(len(rows), dtype=np.int64),
        frame=np.array([i for i, _, _ in rows], dtype=np.int64),
        k=k,
    )


def unseen(posterior: Posterior, data: Dataset) -> tuple[Dataset, str]:
    """The frames of a data set that the posterior did not learn from, and a word about those left out."""
    learned = set(posterior.data.get("frame_marks", ()))
    fresh = [i for i, structure in enumerate(data) if frame_mark(structure) not in learned]
    if len(fresh) == len(data):
        return data, ""
    if not fresh:
        raise InputError(
            f"{data.name}: these are frames that the posterior learned from, where its errors are smaller than "
            "elsewhere; give others, or the whole set that it was sampled from, whose held-back frames are then used"
        )
    return (
        data.subset(fresh),
        f"the posterior learned from {len(data) - len(fresh)} of these frames; the other {len(fresh)} are used",
    )


def store(source: str | Path, target: str | Path, calibration: dict[str, Any] | None) -> None:
    """Write a posterior file again with another calibration; everything else stays the same."""
    header, tensors = read(source)
    write(target, header | {"calibration": calibration}, tensors)


def _numbers_of_samples(k: int) -> list[int]:
    """All up to 16, then powers of two and the whole: between them the one below serves."""
    return sorted({*range(1, min(k, 16) + 1), *(2**i for i in range(4, 20) if 2**i <= k), k})


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0)
