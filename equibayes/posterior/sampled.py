"""What each of k samples predicts, as arrays on the host."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from equibayes.bayes.model import ModelOutput
from equibayes.data.structures import Structure
from equibayes.engine.interface import DynamicsOutput
from equibayes.labelling.labellers import Label
from equibayes.posterior.force_noise import ForceNoise
from equibayes.posterior.linearised import linearised


@dataclass(frozen=True, eq=False)
class Sampled:
    """The `ModelOutput` for B structures with N atoms under k samples, in float64 on the host.

    energy, sigma_energy, sigma_stress [k, B]; forces [k, N, 3]; stress [k, B, 3, 3]; sigma_forces [k, N], or [k, N, 3]
    where it depends on the direction.  NaN where there is no volume; sigma_stress also where it is not learned.
    novelty [N], where the sample that it is judged by is among these.  noise: covariances of the noise of the forces of
    each structure [k, 3n, 3n], where they were asked for.
    """

    energy: np.ndarray
    forces: np.ndarray
    stress: np.ndarray
    sigma_energy: np.ndarray
    sigma_forces: np.ndarray
    sigma_stress: np.ndarray
    novelty: np.ndarray | None = None
    noise: list[np.ndarray] | None = None

    @classmethod
    def of(cls, output: ModelOutput, noise: ForceNoise, novelty: np.ndarray | None = None) -> "Sampled":
        names = [name for name in cls.per_sample() if name != "sigma_forces"]
        values = {name: getattr(output, name).double().cpu().numpy() for name in names}
        return cls(**values, sigma_forces=noise.sigma, novelty=novelty, noise=noise.covariances)

    @classmethod
    def of_dynamics(cls, found: DynamicsOutput, structure: Structure, novelty: np.ndarray | None) -> "Sampled":
        volume = structure.volume if structure.pbc.all() else np.nan
        return cls(
            energy=found.energy[:, None],
            forces=found.forces,
            stress=found.virial[:, None] / volume,
            sigma_energy=np.exp(found.log_sigma_energy)[:, None],
            sigma_forces=np.exp(found.log_sigma_forces),
            sigma_stress=np.exp(found.log_sigma_virial)[:, None] / volume,
            novelty=novelty,
        )

    @classmethod
    def joined(cls, parts: Sequence["Sampled"]) -> "Sampled":
        """Samples one after the other."""
        if len(parts) == 1:
            return parts[0]
        novelty = next((part.novelty for part in parts if part.novelty is not None), None)
        each = {name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.per_sample()}
        noise = None
        if parts[0].noise is not None:
            noise = [np.concatenate(own) for own in zip(*(part.noise or [] for part in parts))]
        return cls(**each, novelty=novelty, noise=noise)

    @classmethod
    def per_sample(cls) -> list[str]:
        return [each.name for each in fields(cls) if each.name not in ("novelty", "noise")]

    def linearised(self, steps: np.ndarray) -> "Sampled":
        """[3k, …] → [k, …]; σ is that of the centres."""
        means = ("energy", "forces", "stress")
        return replace(
            self,
            **{name: linearised(getattr(self, name), steps) for name in means},
            **{name: getattr(self, name)[::3] for name in self.per_sample() if name not in means},
            noise=None if self.noise is None else [each[::3] for each in self.noise],
        )

    def corrected(self, baseline: Sequence[Label]) -> "Sampled":
        """With the energies, forces and stress of a baseline, one label for each structure."""
        missing = np.full((3, 3), np.nan)
        stress = np.stack([missing if label.stress is None else label.stress for label in baseline])
        return replace(
            self,
            energy=self.energy + np.array([label.energy for label in baseline]),
            forces=self.forces + np.concatenate([label.forces for label in baseline]),
            stress=self.stress + stress,
        )

    def first(self, k: int) -> "Sampled":
        noise = None if self.noise is None else [each[:k] for each in self.noise]
        return replace(self, **{name: getattr(self, name)[:k] for name in self.per_sample()}, noise=noise)
