"""How the numbers of each calibration method are found from errors on validation frames.

All maximise the Gaussian likelihood of the errors, so that a correct σ is unchanged up to noise.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from equibayes.posterior.calibration import Rescaling, spread_of
from equibayes.posterior.sigma import Sigma

# As many components with the ratio of all are added to every part, so that rare species follow the rest.
SHRINKAGE = 30.0
# With fewer components only one number is fitted, and that with caution: a flexible method could be far off and still
# look good.
ENOUGH_FOR_MORE = 200
# Standard errors by which ln r² of so few is drawn towards 0: overconfidence is worse than caution.
CAUTION_WIDER, CAUTION_NARROWER = 1.0, 2.0
# Fewer say nothing about σ.
FEWEST_FRAMES = 10
# s is searched up to this factor either way: frames like the training data say little about the spread elsewhere.
SPREAD_REACH = 5.0
# Configurations per knot of the monotone map; few frames allow few knots.
FRAMES_PER_KNOT, MOST_KNOTS = 10, 8


@dataclass(frozen=True, eq=False)
class Residuals:
    """Errors of one quantity with k samples, flat over components.

    error [n];  sigma with parts [n], uncalibrated and without floor;  number [n] atomic numbers (0 for energies and
    stress);  frame [n] their frames;  floor [n]: the least σ of novel atoms (floor.py), None: nothing is novel
    """

    error: np.ndarray
    sigma: Sigma
    number: np.ndarray
    frame: np.ndarray
    k: int
    floor: np.ndarray | None = None

    def __getitem__(self, which: np.ndarray) -> "Residuals":
        floor = None if self.floor is None else self.floor[which]
        return Residuals(self.error[which], self.sigma[which], self.number[which], self.frame[which], self.k, floor)

    def familiar(self) -> "Residuals":
        """Without components whose σ is the floor of novel atoms, which no calibration changes: their errors, much
        larger than all others, would decide the size of σ elsewhere.  All of them where too few frames are left."""
        if self.floor is None:
            return self
        found = self[self.floor <= self.sigma.total]
        return found if len(found.frames) >= FEWEST_FRAMES else self

    @property
    def frames(self) -> np.ndarray:
        return np.unique(self.frame)

    def log_density(self, rescaling: Rescaling) -> np.ndarray:
        """ln N(error; 0, σ'²) of every component, without the constant."""
        total = rescaling.apply(self.sigma, self.number).total
        return -0.5 * np.square(self.error / total) - np.log(total)


def fit_none(data: Residuals) -> Rescaling:
    return Rescaling()


def fit_scale(data: Residuals, spread: float | None = None) -> Rescaling:
    """r² is the mean of (error/σ)²; of few, drawn towards 1 by as much as that mean is uncertain.

    Hundreds of force components decide alone; thirty energies change σ only as far as they determine it.  The
    uncertainty is taken from how much the configurations differ, and is at least that of independent Gaussian errors.
    """
    spread = spread_of(data.k) if spread is None else spread
    z_squared = np.square(data.error / Rescaling(spread=spread).base(data.sigma))
    mean = z_squared.mean()
    if len(z_squared) >= ENOUGH_FOR_MORE:
        return Rescaling(factor=float(np.sqrt(mean)), spread=spread)
    _, index, count = np.unique(data.frame, return_inverse=True, return_counts=True)
    each = np.bincount(index, z_squared) / count
    seen = each.var(ddof=1) / len(each) / mean**2 if len(each) > 1 else 0.0
    standard_error = np.sqrt(max(seen, 2 / len(z_squared)))
    logarithm = np.log(mean)
    caution = standard_error * (CAUTION_WIDER if logarithm > 0 else CAUTION_NARROWER)
    drawn = np.sign(logarithm) * max(abs(logarithm) - caution, 0.0)
    return Rescaling(factor=float(np.exp(drawn / 2)), spread=spread)


def fit_parts(data: Residuals) -> Rescaling:
    """Both numbers: for each s on a grid the best r is known, then the best s is searched more finely around."""
    usual = spread_of(data.k)
    if data.k < 2 or not data.sigma.epistemic.any():
        return fit_scale(data)
    best, reach = np.log(usual), np.log(SPREAD_REACH)
    for _ in range(3):
        grid = best + np.linspace(-reach, reach, 9)
        fits = [fit_scale(data, float(np.exp(point))) for point in grid]
        best = grid[np.argmax([data.log_density(fit).mean() for fit in fits])]
        reach /= 4
    return fit_scale(data, float(np.clip(np.exp(best), usual / SPREAD_REACH, usual * SPREAD_REACH)))


def fit_species(data: Residuals) -> Rescaling:
    """r of each species, shrunk slightly towards that of all."""
    overall, species = fit_scale(data), np.unique(data.number)
    if len(species) < 2:
        return overall
    z_squared = np.square(data.error / overall.base(data.sigma))
    ratios = {int(z): float(np.sqrt(_drawn_mean(z_squared[data.number == z], overall))) for z in species}
    return Rescaling(overall.factor, overall.spread, ratios)


def _drawn_mean(z_squared: np.ndarray, overall: Rescaling) -> float:
    """Mean of a part of the components, drawn towards that of all."""
    return float((z_squared.sum() + SHRINKAGE * overall.factor**2) / (z_squared.size + SHRINKAGE))


def fit_monotone(data: Residuals) -> Rescaling:
    """r in bins of equal size by σ, made monotone (a larger σ stays larger) by pooling neighbours that violate it."""
    overall = fit_scale(data)
    base = overall.base(data.sigma)
    knots = int(np.clip(len(data.frames) // FRAMES_PER_KNOT, 2, MOST_KNOTS))
    parts = np.array_split(np.argsort(base, kind="stable"), knots)
    ln_sigma = np.array([np.log(base[part]).mean() for part in parts])
    z_squared = np.square(data.error / base)
    ln_ratio = np.array([0.5 * np.log(_drawn_mean(z_squared[part], overall)) for part in parts])
    distinct = np.diff(ln_sigma, prepend=-np.inf) > 1e-9  # σ that are all alike give one knot
    ln_sigma, ln_ratio = ln_sigma[distinct], ln_ratio[distinct]
    ln_ratio = rising(ln_sigma + ln_ratio) - ln_sigma
    return Rescaling(overall.factor, overall.spread, knots=(ln_sigma, ln_ratio))


def rising(values: np.ndarray) -> np.ndarray:
    """The non-decreasing sequence nearest to the values in least squares: falling neighbours become their mean."""
    blocks: list[tuple[float, int]] = []
    for value in values.tolist():
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (high, many), (low, few) = blocks[-2], blocks[-1]
            blocks[-2:] = [((high * many + low * few) / (many + few), many + few)]
    return np.repeat([value for value, _ in blocks], [count for _, count in blocks])


FITS: dict[str, Callable[[Residuals], Rescaling]] = {
    "none": fit_none,
    "scale": fit_scale,
    "parts": fit_parts,
    "species": fit_species,
    "monotone": fit_monotone,
}
"""From the simplest to the most flexible."""
