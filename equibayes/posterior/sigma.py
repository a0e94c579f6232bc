"""A standard deviation with its two parts."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Sigma:
    """Epistemic (spread over samples) and aleatoric (predicted noise), in one unit; total² is the sum of squares."""

    epistemic: np.ndarray
    aleatoric: np.ndarray

    @cached_property
    def total(self) -> np.ndarray:
        return np.hypot(self.epistemic, self.aleatoric)

    def __getitem__(self, which: np.ndarray) -> "Sigma":
        return Sigma(self.epistemic[which], self.aleatoric[which])
