"""The Gaussian likelihood of energy and forces:

    ln p(y | x, θ) = ln N(E; μ_E, σ_E²) + Σ_i Σ_a ln N(F_ia; μ_F,ia, σ_F,i²)

*summed* over the 3n force components and the energy of a configuration.  Averaging over them would temper the posterior
by a factor of about 3n + 1: all weights would be sampled as if there were that much less data.
"""

from math import log, pi

import torch

from equibayes.bayes.model import ModelOutput
from equibayes.data.graph import Graph
from equibayes.data.resident import Labels
from equibayes.network.nequip import sum_over_structures


def log_likelihood(output: ModelOutput, graph: Graph, labels: Labels) -> torch.Tensor:
    """ln p per structure, [K, B] float64; without an energy label (NaN), of the forces alone."""
    known = ~torch.isnan(labels.energy)
    energy = gaussian_log_density(labels.energy.nan_to_num() - output.energy, output.log_sigma_energy.double())
    forces = gaussian_log_density(labels.forces - output.forces, output.log_sigma_forces[..., None])
    # padding atoms belong to no structure and drop out of the sum
    return torch.where(known, energy, 0.0) + sum_over_structures(forces.sum(-1).double(), graph)


def squared_errors(output: ModelOutput, graph: Graph, labels: Labels) -> torch.Tensor:
    """The objective of a point estimate as a log density [K, B] float64: a Gaussian with the same σ for all forces.

    NequIP's default weights: mean squared force error per component, (eV/Å)², plus squared energy error per atom, eV².
    """
    known = ~torch.isnan(labels.energy)
    # the sum over 3n force components weighs 3n/2 times their mean, so the energy term is multiplied by 3n/2 as well
    error = (labels.energy.nan_to_num() - output.energy) / graph.num_atoms
    energy = (3 * graph.num_atoms).double() * (-0.5 * error**2)
    forces = gaussian_log_density(labels.forces - output.forces, torch.zeros_like(output.log_sigma_forces)[..., None])
    return sum_over_structures(forces.sum(-1).double(), graph) + torch.where(known, energy, 0.0)


def gaussian_log_density(error: torch.Tensor, log_sigma: torch.Tensor) -> torch.Tensor:
    """ln N(error; 0, σ²), elementwise."""
    return -0.5 * (error * torch.exp(-log_sigma)) ** 2 - log_sigma - 0.5 * log(2 * pi)
