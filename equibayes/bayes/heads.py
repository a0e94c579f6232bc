"""The deviation networks: the predicted standard deviations of energy, forces and, where it is learned, stress.

Each maps the invariant features v_i of an atom through 64 → 32 → 16 → 1 with SiLU, and an exponential at the end:

    σ_F,i = exp(h_F(v_i)) kcal/(mol Å), one for the three components (a single number keeps the density equivariant)
    σ_E   = mean_i exp(h_E(v_i)) kcal/mol
    σ_S   = Σ_i exp(h_S(v_i)) kcal/mol / V, one for the six components of the stress (see likelihood.py)

exp(h_S) is the noise of an atom's share of the virial: σ_S is its mean over the volume per atom, the same for a cell
and for its supercells.  So is σ_E, the noise of the *total* energy: that of the energy per atom falls as 1/n.

The exponential multiplies the paper's unit, so that the prior on the weights does not depend on the units of the data.
Everything is kept as ln σ, which neither overflows nor divides by zero.
"""

from collections.abc import Iterator
from math import log, sqrt

import torch
from torch.nn.functional import silu

from equibayes.data.graph import Graph
from equibayes.network.weights import Parameter, Weights
from equibayes.units import KCAL_PER_MOL

HIDDEN = (32, 16)
FORCE_HEAD, ENERGY_HEAD, STRESS_HEAD = "force_head", "energy_head", "stress_head"


def head_parameters(name: str, features: int, start_sigma: float) -> Iterator[Parameter]:
    """Weights and biases of one head; it starts at the constant `start_sigma` (eV; eV/Å of forces) for every atom."""
    sizes = [features, *HIDDEN, 1]
    for i, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:])):
        last = i == len(HIDDEN)
        gain = 1.0 if i == 0 else sqrt(2)
        yield Parameter(f"{name}.weight{i}", (fan_in, fan_out), gain / sqrt(fan_in), start=0.0 if last else "normal")
        yield Parameter(f"{name}.bias{i}", (1, fan_out), start=log(start_sigma / KCAL_PER_MOL) if last else 0.0)


def head(name: str, weights: Weights, features: torch.Tensor) -> torch.Tensor:
    """Features [K, N, C] -> ln(σ / (eV or eV/Å)) [K, N]."""
    hidden = features
    for i in range(len(HIDDEN) + 1):
        hidden = torch.baddbmm(weights[f"{name}.bias{i}"], silu(hidden) if i else hidden, weights[f"{name}.weight{i}"])
    return hidden[:, :, 0] + log(KCAL_PER_MOL)


def log_sigma_forces(weights: Weights, features: torch.Tensor) -> torch.Tensor:
    """ln σ_F of every atom [K, N], σ in eV/Å."""
    return head(FORCE_HEAD, weights, features)


def log_sigma_energy(weights: Weights, features: torch.Tensor, graph: Graph) -> torch.Tensor:
    """ln σ_E of every structure [K, B], σ in eV: the logarithm of the mean of the atoms' exponentials."""
    return log_mean_exp(head(ENERGY_HEAD, weights, features), graph)


def log_sigma_stress(weights: Weights, features: torch.Tensor, graph: Graph) -> torch.Tensor:
    """ln σ_S of every structure [K, B], σ in eV/Å³; NaN where there is no volume."""
    per_atom = log_mean_exp(head(STRESS_HEAD, weights, features), graph)
    # a NaN that gradients do not see
    volume = graph.volume.nan_to_num(1.0) / graph.num_atoms
    return torch.where(graph.volume.isnan(), torch.nan, per_atom - volume.log().to(per_atom))


def log_mean_exp(per_atom: torch.Tensor, graph: Graph) -> torch.Tensor:
    """ln of the mean of exp over the atoms of each structure: [K, N] -> [K, B]."""
    chains, atoms = per_atom.shape
    structures = graph.num_structures
    member = graph.structure.expand(chains, -1)[:, None, :] == torch.arange(structures, device=per_atom.device)[:, None]
    masked = per_atom[:, None, :].masked_fill(~member, -torch.inf)  # [K, B, N]
    return torch.logsumexp(masked, 2) - graph.num_atoms.to(per_atom).log()
