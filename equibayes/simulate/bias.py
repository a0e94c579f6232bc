"""Dynamics biased towards uncertainty, to find structures worth a label sooner.

    E_bias = −s (√(σ² + ε²) − ε),    σ² = variance over the samples of E_i(x) − E_i(x₀)

s is the strength, x₀ the first structure that is calculated, and ε = 5 meV keeps forces finite there.  Differences are
taken because the zero of energy of each sample would otherwise dominate σ without any meaning for the forces.  Forces
and stress of the bias are its exact derivatives,

    F_bias = −s/√(σ² + ε²) · mean_i (d_i − d̄)(F_i − F̄),    d_i = E_i(x) − E_i(x₀),

from what the samples predict anyway.  Related: hyperactive learning (van der Oord et al. 2023), uncertainty-driven
dynamics (Kulichenko et al. 2023).
"""

from typing import Any

import numpy as np

from equibayes.data.structures import Structure, full_to_voigt
from equibayes.errors import InputError
from equibayes.posterior.prediction import Prediction
from equibayes.simulate.calculator import Calculator

SMOOTH = 5e-3
"""ε, eV."""
MODEL = ("energy", "forces", "stress")
"""Results that include the bias; those of the model alone are called `energy_model` and so on."""


class BiasedCalculator(Calculator):
    """Energy, forces and stress with the bias; `bias` (eV) and `energy_model`, `forces_model`, … beside them."""

    def __init__(self, *arguments: Any, strength: float, **options: Any) -> None:
        """strength: s, without unit.  The rest as for `Calculator`."""
        if not 0 < strength < float("inf"):
            raise InputError(f"bias {strength:g}: its strength must be above 0")
        super().__init__(*arguments, **(options | {"members": True}))
        if len(self.posterior) < 2:
            raise InputError("bias: a posterior with one sample has no spread to follow")
        self.bias = self.strength = strength
        self.origin: np.ndarray | None = None
        self.implemented_properties += ["bias", *(f"{name}_model" for name in MODEL)]

    def _judged(self, structure: Structure, prediction: Prediction) -> dict[str, Any]:
        results = super()._judged(structure, prediction)
        members = prediction.members
        assert members is not None
        if self.origin is None:
            self.origin = members["energy"].copy()
        away = members["energy"] - self.origin
        away = away - away.mean()
        width = float(np.sqrt(np.square(away).mean() + SMOOTH**2))

        def along(values: np.ndarray) -> np.ndarray:
            """Mean over the samples of (d − d̄) times a quantity [k, …], divided by the width."""
            return np.tensordot(away, values, 1) / len(away) / width

        results |= {f"{name}_model": results[name] for name in MODEL if name in results}
        results["bias"] = -self.strength * (width - SMOOTH)
        results["energy"] = results["free_energy"] = results["energy"] + results["bias"]
        results["forces"] = results["forces"] - self.strength * along(members["forces"])
        if "stress" in results:
            results["stress"] = results["stress"] - self.strength * full_to_voigt(along(members["stress"]))
        return results


def of_the_model(results: dict[str, Any]) -> dict[str, Any]:
    """Results without a bias."""
    return results | {name: results[f"{name}_model"] for name in MODEL if f"{name}_model" in results}
