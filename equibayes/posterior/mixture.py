"""From what the k samples predict to mean and deviations.

The predictive of the paper: the mean over the k samples, and a Gaussian with the mixture's variance,

    σ² = mean over samples of σ_s²  +  spread of the means over samples      (aleatoric + epistemic)

A calibration of the posterior is applied to σ (calibration.py), and where atoms are novel σ is at least what `floor.py`
says.  Every σ has the unit of its quantity.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from equibayes.data.structures import Structure
from equibayes.posterior.calibration import Calibration, Intervals
from equibayes.posterior.file import Posterior
from equibayes.posterior.floor import floors
from equibayes.posterior.force_covariance import ForceCovariance, covariance_of
from equibayes.posterior.force_noise import atoms_of
from equibayes.posterior.prediction import Floor, Prediction
from equibayes.posterior.sampled import Sampled
from equibayes.posterior.sigma import of_samples
from equibayes.posterior.stress import stress_sigma


def predictions_of(
    posterior: Posterior,
    calibration: Calibration | None,
    structures: Sequence[Structure],
    output: Sampled,
    members: bool,
) -> Iterator[Prediction]:
    """Of each structure of a batch, from all its samples."""
    mixture = _Mixture(posterior, calibration, structures, output)
    for b, own in enumerate(atoms_of(structures)):
        yield mixture.prediction(b, own, members)


class _Mixture:
    """Mean and deviations of the energies [B], forces [N, 3] and stresses [B, 3, 3] of a batch."""

    def __init__(
        self, posterior: Posterior, calibration: Calibration | None, structures: Sequence[Structure], output: Sampled
    ) -> None:
        self.posterior, self.calibration, self.structures, self.output = posterior, calibration, structures, output
        # often all structures are the same molecule: look up its reference energy once
        molecules = {s.numbers.tobytes(): s.numbers for s in structures}
        reference = {key: posterior.reference.total(numbers) for key, numbers in molecules.items()}
        self.known = {key: posterior.reference.knows(numbers) for key, numbers in molecules.items()}
        self.energies = output.energy + np.array([reference[s.numbers.tobytes()] for s in structures])
        self.energy, self.forces, self.stress = self.energies.mean(0), output.forces.mean(0), output.stress.mean(0)
        noise = output.sigma_forces
        self.raw_energy = of_samples(self.energies, output.sigma_energy)
        self.raw_forces = of_samples(output.forces, noise if noise.ndim == 3 else noise[:, :, None])
        sigma_stress = output.sigma_stress if posterior.model.learns_stress else np.zeros_like(output.sigma_stress)
        of_stress = stress_sigma(output.stress, sigma_stress, None if calibration is None else calibration.stress)
        of_energy, of_forces, k = self.raw_energy, self.raw_forces, len(self.energies)
        if calibration is not None:
            of_energy = calibration.energy.apply(of_energy, k)
            of_forces = calibration.forces.apply(of_forces, k, np.concatenate([s.numbers for s in structures]))
        self.least = _floors(posterior, structures, output.novelty)
        if self.least is not None:
            of_energy, of_forces = of_energy.at_least(self.least[0]), of_forces.at_least(self.least[1][:, None])
            of_stress = of_stress.at_least(self.least[0] / np.array([s.volume or np.nan for s in structures]))
        self.of_energy, self.of_forces, self.of_stress = of_energy, of_forces, of_stress

    def prediction(self, b: int, own: slice, members: bool) -> Prediction:
        """Of structure b with its atoms; copies, as a view would keep the whole batch alive."""
        structure, output = self.structures[b], self.output
        return Prediction(
            energy=float(self.energy[b]),
            energy_std=float(self.of_energy.total[b]),
            energy_epistemic=float(self.of_energy.epistemic[b]),
            energy_aleatoric=float(self.of_energy.aleatoric[b]),
            forces=self.forces[own].copy(),
            forces_std=self.of_forces.total[own].copy(),
            forces_epistemic=self.of_forces.epistemic[own].copy(),
            forces_aleatoric=self.of_forces.aleatoric[own].copy(),
            **self._stress(b),
            energy_known=self.known[structure.numbers.tobytes()],
            novelty=None if output.novelty is None else output.novelty[own].copy(),
            floor=self._floor(b, own),
            members=self._members(b, own) if members else None,
            forces_covariance=self._covariance(b, own),
            intervals=self._intervals(b, own),
        )

    def _has_stress(self, b: int) -> bool:
        return bool(self.structures[b].pbc.all())

    def _stress(self, b: int) -> dict[str, Any]:
        """The fields of stress and pressure."""
        if not self._has_stress(b):
            return {"stress": None, "stress_std": None}
        fields: dict[str, Any] = {"stress": self.stress[b].copy()}
        for name, part in {"std": "total", "epistemic": "epistemic", "aleatoric": "aleatoric"}.items():
            fields[f"stress_{name}"] = getattr(self.of_stress.elements, part)[b].copy()
            fields[f"pressure_{name}"] = float(getattr(self.of_stress.pressure, part)[b])
        return fields

    def _members(self, b: int, own: slice) -> dict[str, np.ndarray]:
        kept = {"energy": self.energies[:, b].copy(), "forces": self.output.forces[:, own].copy()}
        return kept | ({"stress": self.output.stress[:, b].copy()} if self._has_stress(b) else {})

    def _covariance(self, b: int, own: slice) -> ForceCovariance | None:
        noise, members = self.output.noise, self.output.forces[:, own]
        if noise is None:
            return None
        raw, reported = self.raw_forces[own], self.of_forces[own]
        return covariance_of(self.structures[b], members, noise[b], raw, reported, self.posterior.network.rigid_noise)

    def _intervals(self, b: int, own: slice) -> Intervals | None:
        if self.calibration is None:
            return None
        energy, forces, k = float(self.raw_energy.total[b]), self.raw_forces.total[own].copy(), len(self.energies)
        stress = self.of_stress.raw.total[b].copy() if self._has_stress(b) else None
        return Intervals(energy, forces, self.calibration, k, stress, self._floor(b, own))

    def _floor(self, b: int, own: slice) -> Floor | None:
        return None if self.least is None else (float(self.least[0][b]), self.least[1][own].copy())


def _floors(
    posterior: Posterior, structures: Sequence[Structure], novelty: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """The least σ of energies [B] and forces [N]; None where nothing is novel."""
    if novelty is None or posterior.novelty is None:
        return None
    return floors(structures, novelty, posterior.novelty.force_scale, posterior.network.r_max)
