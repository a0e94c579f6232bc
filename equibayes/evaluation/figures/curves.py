"""The curves behind the figures: pure functions of arrays.

`error` is prediction minus truth, `sigma` the predicted standard deviation; flat, finite, of one unit.  See
`components` for how they come out of an `Evaluated`.
"""

from dataclasses import dataclass

import numpy as np

from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.normal import central_width
from equibayes.units import GPA


@dataclass(frozen=True, eq=False)
class Components:
    """Finite errors with their deviations [n]; `missing` counts those left out without label or prediction."""

    error: np.ndarray
    sigma: np.ndarray
    missing: int

    def __len__(self) -> int:
        return len(self.error)


@dataclass(frozen=True)
class Quantity:
    """What errors are errors of.

    key         the beginning of its metrics: `force_mae`, `energy_mae`
    one, many   its name
    unit, kcal  in which it is shown
    scale       from eV, eV/Å or eV/Å³ to that unit
    """

    key: str
    one: str
    many: str
    unit: str
    kcal: str
    scale: float = 1e3


FORCE = Quantity("force", "force component", "force components", "meV/Å", "kcal/(mol\u00a0Å)")
ENERGY = Quantity("energy", "energy", "energies", "meV", "kcal/mol")
STRESS = Quantity("stress", "element of the stress", "elements of the stress", "GPa", "", 1 / GPA)


def quantity_of(result: Evaluated) -> Quantity:
    """What a data set is judged by: force components, or energies where there is no force label."""
    only_energies = np.isfinite(result.energy_true).any() and not np.isfinite(result.force_true).any()
    return ENERGY if only_energies else FORCE


def judged(result: Evaluated) -> Components:
    """The errors that a data set is judged by (see `quantity_of`), in eV/Å or eV."""
    return energies(result) if quantity_of(result) is ENERGY else force_components(result)


def force_components(result: Evaluated, atoms: np.ndarray | None = None) -> Components:
    """Force components in eV/Å; `atoms` [A] bool picks some atoms."""
    chosen = np.ones(len(result.number), dtype=bool) if atoms is None else atoms
    return components(result.force_error[chosen], result.force_sigma[chosen])


def energies(result: Evaluated) -> Components:
    """Energies in eV."""
    return components(result.energy_error, result.energy_sigma)


def stress_elements(result: Evaluated) -> Components:
    """The six elements of the stress in eV/Å³."""
    return components(result.stress_error, result.stress_sigma)


def components(error: np.ndarray, sigma: np.ndarray) -> Components:
    """Flat arrays; values that are not finite, or with σ = 0, are left out."""
    error, sigma = np.asarray(error, dtype=float).ravel(), np.asarray(sigma, dtype=float).ravel()
    good = np.isfinite(error) & np.isfinite(sigma) & (sigma > 0)
    return Components(error[good], sigma[good], int((~good).sum()))


def roc_curve(outlier: np.ndarray, score: np.ndarray, points: int = 300) -> tuple[np.ndarray, np.ndarray] | None:
    """Share of inliers and share of outliers above every threshold of the score, from (0, 0) to (1, 1).

    None where there are only outliers or none.  At most about `points` corners, for a drawing.
    """
    outlier = np.asarray(outlier, dtype=bool).ravel()
    if not 0 < outlier.sum() < outlier.size:
        return None
    order = np.argsort(-np.asarray(score).ravel(), kind="stable")
    ranked = np.asarray(score).ravel()[order]
    ends = np.append(np.flatnonzero(np.diff(ranked)), outlier.size - 1)  # equal scores fall together
    found, false = np.cumsum(outlier[order])[ends], np.cumsum(~outlier[order])[ends]
    x, y = np.insert(false / false[-1], 0, 0.0), np.insert(found / found[-1], 0, 0.0)
    # evenly along the curve, which rises steeply at its start and is flat at its end
    length = np.insert(np.cumsum(np.hypot(np.diff(x), np.diff(y))), 0, 0.0)
    keep = np.unique(np.searchsorted(length, np.linspace(0, length[-1], points)).clip(0, len(x) - 1))
    keep = np.unique(np.concatenate([[0], keep, [len(x) - 1]]))
    return x[keep], y[keep]


def width_at(error: np.ndarray, sigma: np.ndarray, level: float = 0.6827) -> float:
    """Factor by which σ is too small: the f for which ±f·σ holds that share of errors, over that of a Gaussian."""
    return float(np.quantile(np.abs(error) / sigma, level)) / central_width(level)


def quantile_bands(
    error: np.ndarray, sigma: np.ndarray, levels: tuple[float, ...], bins: int = 14
) -> tuple[np.ndarray, np.ndarray]:
    """Median σ [b] and quantiles of |error| [levels, b] in bins of equally many components, by rising σ."""
    order = np.argsort(sigma, kind="stable")
    parts = np.array_split(order, max(1, min(bins, len(order) // 20)))
    middle = np.array([np.median(sigma[part]) for part in parts])
    spread = np.array([np.quantile(np.abs(error[part]), levels) for part in parts]).T
    return middle, spread


def found_outliers(outlier: np.ndarray, sigma: np.ndarray, share: float = 0.1) -> float | None:
    """Share of the outliers among the given share of components with the largest σ; None without outliers."""
    if not outlier.any():
        return None
    count = max(1, round(share * len(sigma)))
    return float(outlier[np.argsort(-sigma, kind="stable")[:count]].sum() / outlier.sum())
