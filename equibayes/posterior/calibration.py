"""A calibration, applied to every prediction: σ rescaled, and intervals of stated coverage.

Both parts of σ are multiplied so that their squares still add up:

    epistemic' = r · s · epistemic,   aleatoric' = r · aleatoric,   r = ratio(√(aleatoric² + s² · epistemic²))

s belongs to the number k of samples.  The spread of k samples (ddof 0) holds only (k−1)/k of the variance that they
are drawn from, and their mean is itself off by 1/k of it: if the truth is one more draw, its distance from the mean
has (k+1)/(k−1) times the variance of the spread.

| method   | ratio r                                      | s                    |
|----------|----------------------------------------------|----------------------|
| none     | 1                                            | 1                    |
| scale    | one number                                   | √((k+1)/(k−1))       |
| parts    | one number                                   | another number       |
| species  | one number per species                       | √((k+1)/(k−1))       |
| monotone | a function of σ, such that larger stays larger | √((k+1)/(k−1))     |
"""

from dataclasses import dataclass, field
from math import log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from equibayes import expect
from equibayes.data.elements import atomic_number, symbol
from equibayes.errors import InputError, one_line
from equibayes.posterior.sigma import Sigma

VERSION = 2
QUANTITIES = ("energy", "forces", "stress")
SMALLEST, LARGEST = 1e-6, 1e6
"""Factors outside are no calibration."""
METHODS = ("none", "scale", "parts", "species", "monotone")


def spread_of(k: int) -> float:
    """s above, from the number of samples; one sample has no spread to correct."""
    return sqrt((k + 1) / (k - 1)) if k > 1 else 1.0


@dataclass(frozen=True, eq=False)
class Rescaling:
    """One method with its numbers, for one k.

    factor   r, or r of species that were not seen
    spread   s
    species  r by atomic number
    knots    ln σ rising [m] and ln r [m]: linear in between, constant outside
    """

    factor: float = 1.0
    spread: float = 1.0
    species: dict[int, float] = field(default_factory=dict)
    knots: tuple[np.ndarray, np.ndarray] | None = None

    def base(self, sigma: Sigma) -> np.ndarray:
        """√(aleatoric² + s² epistemic²), which r multiplies."""
        return np.hypot(sigma.aleatoric, self.spread * sigma.epistemic)

    def apply(self, sigma: Sigma, numbers: np.ndarray | None = None, judged_by: Sigma | None = None) -> Sigma:
        """σ of any shape; `numbers` are the atomic numbers along its first axis; `judged_by` gives the r."""
        ratio = self.ratio(self.base(judged_by or sigma), numbers)
        return Sigma(ratio * self.spread * sigma.epistemic, ratio * sigma.aleatoric)

    def ratio(self, base: np.ndarray, numbers: np.ndarray | None) -> np.ndarray:
        if self.knots is not None:
            with np.errstate(divide="ignore"):  # σ = 0 lies before the first knot
                return np.exp(np.interp(np.log(base), *self.knots))
        if self.species and numbers is not None:
            each = np.array([self.species.get(int(z), self.factor) for z in numbers])
            return np.broadcast_to(each.reshape(-1, *[1] * (base.ndim - 1)), base.shape)
        return np.full(base.shape, self.factor)

    def to_dict(self) -> dict[str, Any]:
        content: dict[str, Any] = {"factor": self.factor, "spread": self.spread}
        if self.species:
            content["species"] = {symbol(z): value for z, value in self.species.items()}
        if self.knots is not None:
            content["ln_sigma"], content["ln_ratio"] = (part.tolist() for part in self.knots)
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Rescaling":
        factor, spread = (expect.number(content[name], name, SMALLEST, LARGEST) for name in ("factor", "spread"))
        species = {
            atomic_number(name): expect.number(value, f"species.{name}", SMALLEST, LARGEST)
            for name, value in expect.section(content.get("species", {}), "species").items()
        }
        return cls(factor, spread, species, _knots(content) if "ln_sigma" in content else None)


def _knots(content: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """ln σ, rising, and ln r, both within the range of a number's logarithm."""
    far = 300.0
    sigma, ratio = (
        np.array([expect.number(each, name, -far, far) for each in expect.items(content[name], name)])
        for name in ("ln_sigma", "ln_ratio")
    )
    if not len(sigma) or len(sigma) != len(ratio) or not (np.diff(sigma) >= 0).all():
        raise InputError(f"ln_sigma has {len(sigma)} knots and ln_ratio {len(ratio)}: must be as many, in rising order")
    if ratio.max() > log(LARGEST) or ratio.min() < log(SMALLEST):
        raise InputError(f"ln_ratio={one_line(ratio, 60)}: must be between {log(SMALLEST):g} and {log(LARGEST):g}")
    return sigma, ratio


@dataclass(frozen=True)
class Calibrated:
    """Energies, forces, or stress.

    method     one of METHODS
    by_k       the rescaling for each number of samples
    quantiles  by k: half width of the interval over the *uncalibrated* σ, by level; from `conformal`
    choice     how the method was chosen, for display
    """

    method: str
    by_k: dict[int, Rescaling]
    quantiles: dict[int, dict[float, float]] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)

    def apply(
        self, sigma: Sigma, k: int, numbers: np.ndarray | None = None, *, judged_by: Sigma | None = None
    ) -> Sigma:
        return sigma if self.method == "none" else self.rescaling(k).apply(sigma, numbers, judged_by)

    def rescaling(self, k: int) -> Rescaling:
        """That of k samples."""
        return Rescaling() if self.method == "none" else self.by_k[_nearest(self.by_k, k)]

    def quantile(self, level: float, k: int) -> float:
        """Half width of the interval that holds `level`, over the uncalibrated σ; NaN without calibration data."""
        if not self.quantiles:
            return float("nan")
        stored = self.quantiles[_nearest(self.quantiles, k)]
        for known, value in stored.items():
            if abs(known - level) < 1e-9:
                return value
        there = ", ".join(f"{known:g}" for known in stored) or "none"
        held = f"the calibration holds {there}"
        raise InputError(f"no interval of coverage {level:g}; {held}: calibrate with more frames")

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "by_k": {str(k): each.to_dict() for k, each in self.by_k.items()},
            "quantiles": {str(k): {f"{p:g}": q for p, q in each.items()} for k, each in self.quantiles.items()},
            "choice": self.choice,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Calibrated":
        if content["method"] not in METHODS or not content["by_k"]:
            raise ValueError(f"method {content['method']} for {len(content['by_k'])} numbers of samples")
        by_k = {int(k): Rescaling.from_dict(each) for k, each in content["by_k"].items()}
        quantiles = {
            int(k): {float(p): expect.number(q, f"quantiles.{k}.{p}", 0) for p, q in each.items()}
            for k, each in content["quantiles"].items()
        }
        if min((*by_k, *quantiles)) < 1 or not all(0 < p < 1 for each in quantiles.values() for p in each):
            raise ValueError("a number of samples below 1, or a coverage outside of 0 and 1")
        choice = expect.section(content["choice"], "choice")
        expect.plain(choice, "choice")
        expect.number(choice.get("factor", 1.0), "choice.factor", 0)
        return cls(content["method"], by_k, quantiles, choice)


def uncalibrated(reason: str, k: int = 1, frames: int = 0) -> Calibrated:
    """A quantity whose σ stays as it is, and why; frames: with a label of it."""
    return Calibrated("none", {k: Rescaling()}, choice={"reason": reason, "frames": frames})


@dataclass(frozen=True)
class Calibration:
    """The content of a posterior's `calibration`; `data` says on which frames it rests."""

    energy: Calibrated
    forces: Calibrated
    data: dict[str, Any] = field(default_factory=dict)
    stress: Calibrated = field(default_factory=lambda: uncalibrated("not calibrated"))

    def parts(self) -> dict[str, Calibrated]:
        """By the words that people read; without the stress where no frame had a label of it."""
        parts = {"forces": self.forces, "energies": self.energy, "stress": self.stress}
        return parts if self.stress.choice.get("frames") else {word: parts[word] for word in ("forces", "energies")}

    def to_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).to_dict() for name in QUANTITIES}
        return {"calibration_version": VERSION, **parts, "data": self.data}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Calibration":
        """From a posterior file; one that makes no sense is refused rather than ignored."""
        try:
            if content["calibration_version"] == 1:
                content = _version_1_to_2(content)
            if content["calibration_version"] != VERSION:
                raise ValueError(f"version {content['calibration_version']}")
            parts = {name: Calibrated.from_dict(content[name]) for name in QUANTITIES}
            data = expect.section(content["data"], "data")
            expect.plain(data, "data")
            return cls(**parts, data=data)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, InputError) as cause:
            reason = cause if isinstance(cause, InputError) else repr(cause)
            raise InputError(
                f"the calibration in this posterior file makes no sense ({reason}); calibrate again, or remove it "
                "with equibayes calibrate --remove"
            ) from cause


def _version_1_to_2(content: dict[str, Any]) -> dict[str, Any]:
    """Until then stress was never calibrated."""
    stress = uncalibrated("calibrated by a version that did not know stress").to_dict()
    return {**content, "stress": stress, "calibration_version": 2}


@dataclass(frozen=True, eq=False)
class Intervals:
    """The ingredients of intervals of stated coverage: uncalibrated σ and the calibration with its quantiles.

    stress_std [3, 3]; None without a volume
    least      σ of the energy and of the atoms [n] that novelty asks for (floor.py); None where nothing is novel
    """

    energy_std: float
    forces_std: np.ndarray
    calibration: Calibration
    k: int
    stress_std: np.ndarray | None = None
    least: tuple[float, np.ndarray] | None = None

    def half_widths(self, level: float) -> tuple[float, np.ndarray]:
        energy, forces = (part.quantile(level, self.k) for part in (self.calibration.energy, self.calibration.forces))
        if self.least is None:
            return energy * self.energy_std, forces * self.forces_std
        width = gaussian_width(level)
        wide = np.hypot(forces * self.forces_std, width * self.least[1][:, None])
        return float(np.hypot(energy * self.energy_std, width * self.least[0])), wide

    def stress_half_width(self, level: float) -> np.ndarray | None:
        if self.stress_std is None:
            return None
        return self.calibration.stress.quantile(level, self.k) * self.stress_std


def gaussian_width(level: float) -> float:
    """Half width over σ of the central interval of a Gaussian that holds `level`: 0.95 gives 1.96."""
    if not 0 < level < 1:
        raise InputError(f"coverage {level:g}: must lie between 0 and 1")
    return NormalDist().inv_cdf(0.5 + level / 2)


def _nearest(stored: dict[int, Any], k: int) -> int:
    """The largest number of samples that is stored and not above k."""
    return max((each for each in stored if each <= k), default=min(stored))
