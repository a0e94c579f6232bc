"""What each of k samples predicts, as arrays on the host."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from equibayes.bayes.model import ModelOutput
from equibayes.data.structures import Structure
from equibayes.engine.interface import DynamicsOutput
from equibayes.posterior.linearised import linearised


@dataclass(frozen=True, eq=False)
class Sampled:
    """The `ModelOutput` for B structures with N atoms under k samples, in float64 on the host.

    energy, sigma_energy, sigma_stress [k, B]; forces [k, N, 3]; stress [k, B, 3, 3]; sigma_forces [k, N].  NaN where
    there is no volume; sigma_stress also where it is not learned.
    """

    energy: np.ndarray
    forces: np.ndarray
    stress: np.ndarray
    sigma_energy: np.ndarray
    sigma_forces: np.ndarray
    sigma_stress: np.ndarray

    @classmethod
    def of(cls, output: ModelOutput) -> "Sampled":
        return cls(*(getattr(output, field.name).double().cpu().numpy() for field in fields(cls)))

    @classmethod
    def of_dynamics(cls, found: DynamicsOutput, structure: Structure) -> "Sampled":
        volume = structure.volume if structure.pbc.all() else np.nan
        return cls(
            energy=found.energy[:, None],
            forces=found.forces,
            stress=found.virial[:, None] / volume,
            sigma_energy=np.exp(found.log_sigma_energy)[:, None],
            sigma_forces=np.exp(found.log_sigma_forces),
            sigma_stress=np.exp(found.log_sigma_virial)[:, None] / volume,
        )

    @classmethod
    def joined(cls, parts: Sequence["Sampled"]) -> "Sampled":
        """Samples one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def linearised(self, steps: np.ndarray) -> "Sampled":
        """[3k, …] → [k, …]; σ is that of the centres."""
        means = {name: linearised(getattr(self, name), steps) for name in ("energy", "forces", "stress")}
        return Sampled(
            **means, **{each.name: getattr(self, each.name)[::3] for each in fields(self) if each.name not in means}
        )

    def first(self, k: int) -> "Sampled":
        return Sampled(*(getattr(self, field.name)[:k] for field in fields(self)))
