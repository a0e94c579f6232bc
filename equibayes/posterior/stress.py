"""σ of the stress and of the pressure, from what k samples predict.

The noise of the six elements is σ_S on the diagonal and σ_S/√2 off it (bayes/likelihood.py).  That of the pressure
−(S_xx + S_yy + S_zz)/3 is σ_S/√3, since the noise of the three is independent; the samples may agree on all three.
"""

from dataclasses import dataclass

import numpy as np

from equibayes.bayes.likelihood import STRESS_COMPONENTS
from equibayes.posterior.calibration import Calibrated
from equibayes.posterior.sigma import Sigma, of_samples

VOIGT = ((0, 1, 2, 1, 0, 0), (0, 1, 2, 2, 2, 1))
"""Rows and columns of the six elements: xx, yy, zz, yz, xz, xy."""


@dataclass(frozen=True, eq=False)
class StressSigma:
    """Of B structures: raw and calibrated σ of the elements [B, 3, 3], and of the pressure [B], eV/Å³."""

    raw: Sigma
    elements: Sigma
    pressure: Sigma

    def at_least(self, floor: np.ndarray) -> "StressSigma":
        """With a floor [B] of σ_S; the raw σ stay as they are."""
        elements = self.elements.at_least(floor[:, None, None] * np.array(STRESS_COMPONENTS))
        return StressSigma(self.raw, elements, self.pressure.at_least(floor / np.sqrt(3)))


def stress_sigma(means: np.ndarray, sigmas: np.ndarray, calibrated: Calibrated | None) -> StressSigma:
    """From the samples: means [k, B, 3, 3] and σ_S [k, B]; NaN where there is no volume."""
    raw = of_samples(means, sigmas[:, :, None, None] * np.array(STRESS_COMPONENTS))
    pressure = of_samples(-np.trace(means, axis1=2, axis2=3) / 3, sigmas / np.sqrt(3))
    if calibrated is None:
        return StressSigma(raw, raw, pressure)
    k, diagonal = len(means), np.arange(3)
    typical = Sigma(
        *(np.sqrt(np.square(part[:, diagonal, diagonal]).mean(1)) for part in (raw.epistemic, raw.aleatoric))
    )
    return StressSigma(raw, calibrated.apply(raw, k), calibrated.apply(pressure, k, judged_by=typical))


def six_elements(elements: np.ndarray) -> np.ndarray:
    """The six elements in Voigt's order: […, 3, 3] → […, 6]."""
    return elements[..., VOIGT[0], VOIGT[1]]
