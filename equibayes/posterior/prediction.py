"""What is predicted for one structure, with uncertainties."""

from dataclasses import dataclass

import numpy as np

from equibayes.notebook import html_table
from equibayes.plural import counted
from equibayes.posterior.calibration import Intervals, gaussian_width
from equibayes.posterior.force_covariance import ForceCovariance
from equibayes.units import GPA

Floor = tuple[float, np.ndarray]
"""Of the energy, eV, and of the forces on n atoms [n], eV/Å."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction for one structure.  eV, eV/Å, eV/Å³ (ASE's sign).

    energy, energy_std, energy_epistemic, energy_aleatoric     numbers
    forces, forces_std, forces_epistemic, forces_aleatoric     [n, 3]
    stress, stress_std, stress_epistemic, stress_aleatoric     [3, 3]; None without a volume
    pressure, pressure_std, _epistemic, _aleatoric             numbers, of −(S_xx + S_yy + S_zz)/3; None likewise
    energy_known  False where the energy holds only up to a constant (see data/reference.py)
    novelty       [n] how far each atom is from all that was learned: 1 is the edge (see novelty.py); None: not known
    forces_covariance  with `covariance=True`: how errors of the forces go together (see force_covariance.py)
    floor         eV and [n] eV/Å, what of the epistemic σ novelty asks for (see floor.py); None: nothing
    members       with `members=True`: energies [k], forces [k, n, 3], stress [k, 3, 3] of each sample
    intervals     used by `interval` if the posterior is calibrated

    The aleatoric σ of the stress is 0 where the posterior did not learn stress.  `energy_uncertainty`,
    `forces_uncertainty` and `stress_uncertainty`, ASE's names, are the same numbers as `*_std`.
    """

    energy: float
    energy_std: float
    energy_epistemic: float
    energy_aleatoric: float
    forces: np.ndarray
    forces_std: np.ndarray
    forces_epistemic: np.ndarray
    forces_aleatoric: np.ndarray
    stress: np.ndarray | None
    stress_std: np.ndarray | None
    stress_epistemic: np.ndarray | None = None
    stress_aleatoric: np.ndarray | None = None
    pressure_std: float | None = None
    pressure_epistemic: float | None = None
    pressure_aleatoric: float | None = None
    energy_known: bool = True
    novelty: np.ndarray | None = None
    floor: Floor | None = None
    members: dict[str, np.ndarray] | None = None
    intervals: Intervals | None = None
    forces_covariance: ForceCovariance | None = None

    def __repr__(self) -> str:
        return "\n".join(f"{heading:<9} {text}" for heading, text in self._lines())

    def _repr_html_(self) -> str:
        return html_table(self._lines(), "Prediction")

    def _lines(self) -> list[tuple[str, str]]:
        """Heading and text of what is worth a look."""
        energy = f"{self.energy:.4f} ± {self.energy_std:.4f} eV"
        energy += f" (epistemic {self.energy_epistemic:.4f}, aleatoric {self.energy_aleatoric:.4f})"
        sigma = 1e3 * np.sqrt(np.square(self.forces_std).mean(1))
        spread = f"σ of an atom {sigma.mean():.1f} on average, {sigma.max():.1f} at most, meV/Å, atom {sigma.argmax()}"
        lines = [
            ("energy", energy if self.energy_known else f"{energy}, up to a constant"),
            ("forces", f"{counted(len(sigma), 'atom')}, at most {np.abs(self.forces).max():.3f} eV/Å"),
            ("", spread),
        ]
        if self.stress is not None and self.stress_std is not None:
            pressure, std = (each.trace() / 3 / GPA for each in (self.stress, self.stress_std))
            lines.append(("stress", f"{pressure:.3f} ± {std:.3f} GPa, mean of the diagonal and of its σ"))
        return lines

    @property
    def pressure(self) -> float | None:
        """eV/Å³, positive under compression."""
        return None if self.stress is None else -float(np.trace(self.stress)) / 3

    @property
    def energy_uncertainty(self) -> float:
        """`energy_std` under ASE's name."""
        return self.energy_std

    @property
    def forces_uncertainty(self) -> np.ndarray:
        """`forces_std` under ASE's name."""
        return self.forces_std

    @property
    def stress_uncertainty(self) -> np.ndarray | None:
        """`stress_std` under ASE's name."""
        return self.stress_std

    def interval(self, level: float) -> tuple[float, np.ndarray]:
        """Half widths of intervals around energy and forces ([n, 3]) that hold the truth with probability `level`.

        With a calibration the coverage is guaranteed for frames like those it was made on (see conformal.py); without
        one, errors are assumed to be Gaussian with the predicted σ.
        """
        if self.intervals is None:
            return gaussian_width(level) * self.energy_std, gaussian_width(level) * self.forces_std
        return self.intervals.half_widths(level)

    def stress_interval(self, level: float) -> np.ndarray | None:
        """The same for the stress, [3, 3] eV/Å³; None without a volume, NaN where the calibration had no labels."""
        if self.stress_std is None or self.intervals is None:
            return None if self.stress_std is None else gaussian_width(level) * self.stress_std
        return self.intervals.stress_half_width(level)
