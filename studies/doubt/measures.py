"""Numbers about one set of frames: how wrong, how uncertain, and how much of what is wrong is trusted.

The error and the σ of an atom are root mean squares of three force components; those of a frame, of all its atoms.

| number                 | meaning                                                                                 |
|------------------------|-----------------------------------------------------------------------------------------|
| wide_enough            | share of atoms with σ ≥ error/3                                                         |
| ratio_median, …_95     | error/σ of atoms: median and 95 % quantile                                              |
| far_outside            | share of frames with an error above 5 σ                                                 |
| trusted_by_sigma       | share of frames whose atoms all have a σ below 3 times the force MAE in distribution    |
| novel                  | share of frames with an atom beyond a novelty of 1                                      |
| trusted                | share of frames that are trusted by σ and not novel                                     |
| bad, bad_energy        | frames with an MAE of forces, or an energy error per atom, 10 times that in distribution |
| bad_trusted, …         | how many of these are trusted                                                           |
| bad_not_novel          | how many have a bad MAE and no novel atom: trusted where no level of σ is given         |
| auc_novelty, auc_sigma | probability that a frame of this set is more novel (or has a larger σ) than one inside  |
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.metrics import coverage, mean_ranks, roc_auc
from equibayes.posterior.novelty import NOVELTY

LEVEL = 3.0
BAD = 10.0


@dataclass(frozen=True)
class Usual:
    """In distribution: MAE of force components (eV/Å) and of energies per atom (eV), and the largest σ and novelty of
    each frame."""

    force: float
    energy: float
    sigma: np.ndarray
    novelty: np.ndarray | None

    @classmethod
    def of(cls, result: Evaluated) -> "Usual":
        energy = np.abs(result.energy_error) / _sizes(result)
        sigma = largest(result, per_atom(result.force_sigma))
        return cls(float(np.abs(result.force_error).mean()), float(np.nanmean(energy)), sigma, result.frame_novelty)


def measured(result: Evaluated, usual: Usual) -> dict[str, Any]:
    """The numbers of the table above; forces in eV/Å, energies in eV."""
    error, sigma = per_atom(result.force_error), per_atom(result.force_sigma)
    sigma = np.where(np.isfinite(sigma), sigma, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error > 0, error / sigma, 0.0)
    of_frame, width = (np.sqrt(mean(result, np.square(each))) for each in (error, sigma))
    widest, novelty = largest(result, sigma), result.frame_novelty
    by_sigma = widest < LEVEL * usual.force
    novel = np.zeros(len(by_sigma), dtype=bool) if novelty is None else novelty >= NOVELTY[0]
    bad = mean(result, np.abs(result.force_error).mean(1)) > BAD * usual.force
    bad_energy = np.abs(result.energy_error) / _sizes(result) > BAD * usual.energy  # NaN is not
    finite = np.isfinite(sigma)
    return {
        "frames": len(by_sigma),
        "force_mae": float(np.abs(result.force_error).mean()),
        "force_rmse": float(np.sqrt(np.square(error).mean())),
        "median_error": float(np.median(error)),
        "median_sigma": float(np.median(sigma)),
        "energy_mae": float(np.nanmean(np.abs(result.energy_error)))
        if np.isfinite(result.energy_error).any()
        else None,
        "energy_sigma": float(np.nanmedian(result.energy_sigma)),
        "wide_enough": float((ratio <= 3).mean()),
        "ratio_median": float(np.median(ratio)),
        "ratio_95": float(np.quantile(ratio, 0.95)),
        "far_outside": float((of_frame > 5 * width).mean()),
        "coverage_68": coverage(result.force_error[finite], result.force_sigma[finite]),
        "spearman_sigma": _spearman(error, sigma),
        "spearman_novelty": None if result.novelty is None else _spearman(error, result.novelty),
        "trusted_by_sigma": float(by_sigma.mean()),
        "novel": None if novelty is None else float(novel.mean()),
        "median_novelty": None if novelty is None else float(np.median(novelty)),
        "trusted": float((by_sigma & ~novel).mean()),
        "bad": int(bad.sum()),
        "bad_trusted_by_sigma": int((bad & by_sigma).sum()),
        "bad_trusted": int((bad & by_sigma & ~novel).sum()),
        "bad_not_novel": int((bad & ~novel).sum()),
        "bad_energy": int(bad_energy.sum()),
        "bad_energy_trusted_by_sigma": int((bad_energy & by_sigma).sum()),
        "bad_energy_trusted": int((bad_energy & by_sigma & ~novel).sum()),
        "auc_sigma": _auc(usual.sigma, widest),
        "auc_novelty": None if novelty is None or usual.novelty is None else _auc(usual.novelty, novelty),
    }


def by_frame(result: Evaluated) -> dict[str, list[float]]:
    """MAE of force components and largest σ of an atom (eV/Å), and novelty, of every frame."""
    sigma = largest(result, per_atom(result.force_sigma))
    novelty = np.full(len(sigma), np.nan) if result.frame_novelty is None else result.frame_novelty
    found = {"error": mean(result, np.abs(result.force_error).mean(1)), "sigma": sigma, "novelty": novelty}
    return {name: [float(f"{value:.3g}") for value in values] for name, values in found.items()}


def per_atom(components: np.ndarray) -> np.ndarray:
    """[A, 3] → [A]: root mean square."""
    return np.sqrt(np.square(components).mean(1))


def largest(result: Evaluated, values: np.ndarray) -> np.ndarray:
    """[F] of each frame's atoms."""
    found = np.full(len(result.structures), -np.inf)
    np.maximum.at(found, result.frame, values)
    return found


def mean(result: Evaluated, values: np.ndarray) -> np.ndarray:
    """[F] over each frame's atoms."""
    return np.bincount(result.frame, values, len(result.structures)) / _sizes(result)


def _sizes(result: Evaluated) -> np.ndarray:
    return np.bincount(result.frame, minlength=len(result.structures))


def _spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    first, second = (mean_ranks(np.nan_to_num(x, nan=np.inf, posinf=np.finfo(float).max)) for x in (a, b))
    first, second = first - first.mean(), second - second.mean()
    scale = np.sqrt(np.square(first).sum() * np.square(second).sum())
    return float((first * second).sum() / scale) if scale else None


def _auc(inside: np.ndarray, outside: np.ndarray) -> float | None:
    return roc_auc(np.repeat([False, True], [len(inside), len(outside)]), np.concatenate([inside, outside]))
