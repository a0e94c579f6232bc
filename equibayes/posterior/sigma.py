"""A standard deviation with its two parts."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

# The spread over samples is their population deviation (ddof 0): the Gaussian fitted to the mixture of the k samples
# has exactly this variance.  This is the only place where it is chosen.
DDOF = 0


@dataclass(frozen=True, eq=False)
class Sigma:
    """Epistemic (spread over samples) and aleatoric (predicted noise), in one unit; total² is the sum of squares."""

    epistemic: np.ndarray
    aleatoric: np.ndarray

    @cached_property
    def total(self) -> np.ndarray:
        return np.hypot(self.epistemic, self.aleatoric)

    def at_least(self, floor: np.ndarray) -> "Sigma":
        """With floor² added to the epistemic variance."""
        return Sigma(np.hypot(self.epistemic, floor), self.aleatoric)

    def __getitem__(self, which: np.ndarray | slice) -> "Sigma":
        return Sigma(self.epistemic[which], self.aleatoric[which])


def of_samples(means: np.ndarray, sigmas: np.ndarray) -> Sigma:
    """From means [k, …] and deviations of the same shape (or one for several components) of k samples."""
    epistemic = means.std(0, ddof=DDOF)
    return Sigma(epistemic, np.broadcast_to(np.sqrt(np.square(sigmas).mean(0)), epistemic.shape))
