"""A quantity with one value per member: its mean, its σ, its unit."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from equibayes.data.structures import FloatArray
from equibayes.posterior.sigma import DDOF


@dataclass(frozen=True, eq=False)
class Quantity:
    """members [M, …]: NaN for members that were left out.  The order of members is the same in all quantities, so that
    a value derived from several of them keeps the correlation of their errors."""

    members: FloatArray
    unit: str

    @property
    def present(self) -> FloatArray:
        """Of the members that were not left out."""
        axes = tuple(range(1, self.members.ndim))
        kept: FloatArray = self.members[np.isfinite(self.members).all(axis=axes)]
        return kept

    @property
    def mean(self) -> FloatArray:
        return np.asarray(self.present.mean(0))

    @property
    def sigma(self) -> FloatArray | None:
        """Standard deviation over the members; None for a single one, which has no spread."""
        return np.asarray(self.present.std(0, ddof=DDOF)) if len(self.present) > 1 else None

    def interval(self, level: float = 0.95) -> FloatArray | None:
        """[2, …] bounds that contain one more draw with this probability; None for a single member.

        Members are few, so that their spread is uncertain itself: with mean m and spread s (k − 1 in the denominator)
        of k members, the bounds are m ± t s √(1 + 1/k), t being Student's for k − 1 degrees of freedom.
        """
        from scipy.stats import t

        k = len(self.present)
        if k < 2:
            return None
        half = t.ppf(0.5 + level / 2, k - 1) * self.present.std(0, ddof=1) * np.sqrt(1 + 1 / k)
        return np.stack([self.mean - half, self.mean + half])

    def to_dict(self) -> dict[str, Any]:
        """For JSON: null stands for members that were left out."""
        sigma, interval = self.sigma, self.interval()
        members = [each.tolist() if np.isfinite(each).all() else None for each in self.members]
        return {
            "value": self.mean.tolist(),
            "sigma": None if sigma is None else sigma.tolist(),
            "interval_95": None if interval is None else interval.tolist(),
            "unit": self.unit,
            "members": members,
        }

    def __str__(self) -> str:
        """A number with σ, both to the two leading digits of σ: 134.2 ± 1.3 GPa."""
        sigma, mean = self.sigma, float(self.mean)
        if sigma is None:
            return f"{mean:.5g} {self.unit}".strip()
        digits = max(float(sigma), 1e-5 * abs(mean), 1e-3)  # relaxations leave no more
        places = max(0, 1 - int(np.floor(np.log10(digits))))
        rounded = round(mean, places) + 0.0  # without the sign of −0
        return f"{rounded:.{places}f} ± {float(sigma):.{places}f} {self.unit}".strip()
