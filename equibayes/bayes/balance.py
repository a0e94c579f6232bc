"""Energies and stress that are learned before there is noise.

Early in a run all errors are large, and the likelihood lets σ of the energies and of the stress follow them.  A large σ
means a small weight 1/σ², so that forces, 3n numbers per structure, are learned first and the rest slowly: its errors
count as noise.  A point estimate has fixed weights instead.  With NequIP's they correspond to

    σ_E = √(n/3) σ_F,      V σ_S = √(3n) σ_F

in eV for σ_F in eV/Å: errors of the energy per atom, of forces and of the virial per atom are comparable numbers.

While a chain only looks for a starting point, before there are noise and prior, energies and stress therefore pull the
means at least `balance` times as much as with these deviations, σ_F being that of the heads:

    ∂/∂E  is multiplied by  max(1, balance · 3 σ_E² / Σ_i σ_F,i²)
    ∂/∂S  is multiplied by  max(1, balance · V² σ_S² / 3 Σ_i σ_F,i²)

The heads have the gradient of the likelihood as always, so they describe the errors that are left.  With the noise the
factors end: what is sampled is the posterior.
"""

from dataclasses import replace

import torch

from equibayes.bayes.model import ModelOutput
from equibayes.data.graph import Graph
from equibayes.network.nequip import sum_over_structures


def balanced(output: ModelOutput, graph: Graph, balance: float) -> ModelOutput:
    """The same numbers, whose energies and stress have the gradients above in a Gaussian likelihood."""
    if not balance:
        return output
    with torch.no_grad():
        forces = sum_over_structures((2 * output.log_sigma_forces).exp().double(), graph)
        energy = 3 * balance * (2 * output.log_sigma_energy.double()).exp() / forces
        stress = balance * (graph.volume * output.sigma_stress.double()).square() / (3 * forces)
    return replace(
        output,
        energy=pulled(output.energy, energy.clamp(min=1)),
        stress=pulled(output.stress, stress.nan_to_num(1.0).clamp(min=1)[..., None, None].to(output.stress)),
    )


def pulled(value: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """The value, with its gradient multiplied by a factor."""
    fixed = value.detach()
    return fixed + factor * (value - fixed)
