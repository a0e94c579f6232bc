"""The Gaussian likelihood of energy, forces and, where there are labels, stress:

    ln p(y | x, θ) = ln N(E; μ_E, σ_E²) + Σ_i Σ_a ln N(F_ia; μ_F,ia, σ_F,i²) + Σ_c ln N(S_c; μ_S,c, σ_S²)

with a covariance in place of σ_F,i² where the settings ask for one (covariance.py),
*summed* over the 3n force components, the energy and the six components of the stress of a configuration.  Averaging
over them would temper the posterior by a factor of about 3n + 1: all weights would be sampled as if there were that
much less data.

The six components are c = xx, yy, zz, √2 yz, √2 xz, √2 xy.  With the factor √2 the sum of their squares is the squared
Frobenius norm of the error, so that the density is the same in every orientation of the crystal: a tensor with
independent errors of these sizes has them after every rotation.  The off-diagonal elements themselves have σ_S/√2.
"""

from math import log, pi, sqrt

import torch

from equibayes.bayes import covariance
from equibayes.bayes.model import ModelOutput
from equibayes.data.graph import Graph
from equibayes.data.resident import Labels
from equibayes.network.nequip import sum_over_structures

STRESS_COMPONENTS = ((1.0, sqrt(0.5), sqrt(0.5)), (sqrt(0.5), 1.0, sqrt(0.5)), (sqrt(0.5), sqrt(0.5), 1.0))
"""σ of every element of the stress in units of σ_S, [3, 3]."""


def log_likelihood(output: ModelOutput, graph: Graph, labels: Labels) -> torch.Tensor:
    """ln p per structure, [K, B] float64, of the labels that there are: energy or stress may be missing (NaN)."""
    known = ~torch.isnan(labels.energy)
    energy = gaussian_log_density(labels.energy.nan_to_num() - output.energy, output.log_sigma_energy.double())
    total = torch.where(known, energy, 0.0) + forces_log_density(output, graph, labels)
    if labels.stress is None:
        return total
    learned, error = stress_error(output, labels.stress)
    log_sigma = output.log_sigma_stress.nan_to_num().double()
    stress = -0.5 * squared_norm(error) * torch.exp(-2 * log_sigma) - 6 * log_sigma - 3 * log(2 * pi)
    return total + torch.where(learned, stress, 0.0)


def forces_log_density(output: ModelOutput, graph: Graph, labels: Labels) -> torch.Tensor:
    """Of all force components of each structure, [K, B] float64."""
    error = labels.forces - output.forces
    if output.couplings is not None:
        return covariance.log_density(error, output.log_sigma_forces, output.couplings, graph, labels.rigid)
    # padding atoms belong to no structure and drop out of the sum
    forces = gaussian_log_density(error, output.log_sigma_forces[..., None])
    return sum_over_structures(forces.sum(-1).double(), graph)


def stress_error(output: ModelOutput, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Which structures have a stress that is learned, [K, B], and its error there [K, B, 3, 3], eV/Å³; 0 elsewhere.

    label [G, B, 3, 3]
    """
    learned = label.flatten(-2).isfinite().all(-1) & output.log_sigma_stress.isfinite()
    error = label.nan_to_num() - output.stress.nan_to_num()
    return learned, torch.where(learned[..., None, None], error, 0.0)


def squared_norm(tensor: torch.Tensor) -> torch.Tensor:
    """Of [..., 3, 3], the squared Frobenius norm, float64."""
    return tensor.double().square().flatten(-2).sum(-1)


def squared_errors(output: ModelOutput, graph: Graph, labels: Labels) -> torch.Tensor:
    """The objective of a point estimate as a log density [K, B] float64: a Gaussian with the same σ for all forces.

    NequIP's default weights: mean squared force error per component, (eV/Å)², plus squared energy error per atom, eV².
    The stress is added with weight 1 as a virial per atom, which has the unit of an energy per atom: mean squared error
    of its nine elements, eV².
    """
    known = ~torch.isnan(labels.energy)
    # the sum over 3n force components weighs 3n/2 times their mean, so the energy term is multiplied by 3n/2 as well
    error = (labels.energy.nan_to_num() - output.energy) / graph.num_atoms
    energy = (3 * graph.num_atoms).double() * (-0.5 * error**2)
    forces = gaussian_log_density(labels.forces - output.forces, torch.zeros_like(output.log_sigma_forces)[..., None])
    total = sum_over_structures(forces.sum(-1).double(), graph) + torch.where(known, energy, 0.0)
    if labels.stress is None:
        return total
    _, wrong = stress_error(output, labels.stress)
    volume = graph.volume.nan_to_num().double() / graph.num_atoms
    return total + (3 * graph.num_atoms).double() * (-0.5 / 9) * squared_norm(wrong) * volume**2


def gaussian_log_density(error: torch.Tensor, log_sigma: torch.Tensor) -> torch.Tensor:
    """ln N(error; 0, σ²), elementwise."""
    return -0.5 * (error * torch.exp(-log_sigma)) ** 2 - log_sigma - 0.5 * log(2 * pi)
