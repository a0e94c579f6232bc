"""Covariances of the noise of forces that turn with the atoms, from one sparse symmetric matrix S:

    C = D^½ exp(S) D^½,      D = σ_F,i² for the three components of atom i

The exponential is positive definite whatever S is, ln det C = Σ_i 6 ln σ_F,i because S is traceless, and C⁻¹ is the
same with −S.  With S = 0 the noise is that of heads.py.  S is made of edges, with u the unit vector from an atom to a
neighbour and γ, α, β numbers from the deviation network of edges:

    atom   S_ii = Σ_j γ_ij (u uᵀ − 1/3)                                a 3 × 3 matrix for each atom
    pair   the same, and S_ij = α_ij 1 + β_ij u uᵀ for neighbours      also between atoms; α_ij = α_ji, β_ij = β_ji

γ_ij, α_ij, β_ij are functions of the features of both atoms and of their distance, times the cutoff function, so every
network has them, whatever its l_max.  Dividing rows and columns by √(1 + ρ_i/R), where ρ_i sums their sizes, keeps |S|
below R: no direction has more than e^R times the variance of the isotropic noise or less than 1/e^R of it, and a power
series of fixed length serves.  It needs products of S with vectors alone, whose cost is linear in the number of atoms.

`pair` also knows that forces have no net force and no torque (data/rigid.py): with those directions as the columns of U
and ε the noise of the labels along them, the precision is C⁻¹ + U Uᵀ/ε².
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, pi, sqrt

import torch
from torch.nn.functional import silu

from equibayes.data.graph import Graph
from equibayes.network.convolution import Neighbors
from equibayes.network.harmonics import polynomial_cutoff
from equibayes.network.nequip import sum_over_structures
from equibayes.network.weights import Parameter, Weights

COVARIANCES = ("isotropic", "atom", "pair")
COVARIANCE_HEAD = "covariance_head"
HIDDEN = 16
RADIAL = 8
CUTOFF_P = 6
COLUMNS = {"isotropic": 0, "atom": 1, "pair": 3}
"""Numbers of an edge: γ, or γ, α, β."""
BOUND = {1: 4.0, 3: 8.0}
"""R, by these numbers: ratios of σ up to e² or e⁴ either way."""
SMOOTH = 0.1
"""Where |γ| begins to count in ρ: √(γ² + SMOOTH²) − SMOOTH."""


def covariance_parameters(covariance: str, features: int) -> Iterator[Parameter]:
    """Weights of the deviation network of edges; it starts at S = 0."""
    if columns := COLUMNS[covariance]:
        size = 1 / sqrt(2 * features)
        yield Parameter(f"{COVARIANCE_HEAD}.receiver", (features, HIDDEN), size)
        yield Parameter(f"{COVARIANCE_HEAD}.sender", (features, HIDDEN), size)
        yield Parameter(f"{COVARIANCE_HEAD}.radial", (RADIAL, HIDDEN), 1 / sqrt(RADIAL))
        yield Parameter(f"{COVARIANCE_HEAD}.bias", (1, HIDDEN), start=0.0)
        yield Parameter(f"{COVARIANCE_HEAD}.out", (columns, HIDDEN), sqrt(2 / HIDDEN), start=0.0)


@dataclass(frozen=True)
class EdgeShape:
    """What the deviation network of edges sees of positions: unit vectors [G, N, D, 3], functions of the distance
    [G, N, D, RADIAL], and the cutoff function [G, N, D], 0 in empty slots."""

    unit: torch.Tensor
    radial: torch.Tensor
    cutoff: torch.Tensor

    @classmethod
    def of(cls, graph: Graph, r_max: float) -> "EdgeShape":
        length = graph.vector.norm(dim=-1, keepdim=True)
        x = (length / r_max).clamp(max=1.0)
        order = torch.arange(1, RADIAL + 1, device=x.device)
        radial = sqrt(2) * torch.sin(pi * order * x)
        return cls(graph.vector / length, radial, polynomial_cutoff(x, CUTOFF_P)[..., 0])


def couplings(weights: Weights, features: torch.Tensor, graph: Graph, r_max: float) -> torch.Tensor:
    """γ, or γ, α, β, of all edges, bounded: [K, N, D, 1 or 3]; 0 in empty slots.  features [K, N, C]"""
    w = {name: weights[f"{COVARIANCE_HEAD}.{name}"] for name in ("receiver", "sender", "radial", "bias", "out")}
    shape, chains = EdgeShape.of(graph, r_max), features.shape[0]
    neighbors = Neighbors(graph.sender, graph.reverse, chains)
    radial = shape.radial.to(features).expand(chains, -1, -1, -1)
    hidden = neighbors.gather(features @ w["sender"]) + (features @ w["receiver"])[:, :, None]
    hidden = silu(hidden + radial @ w["radial"][:, None] + w["bias"][:, None])
    raw = (hidden @ w["out"].mT[:, None]) * shape.cutoff.to(features)[..., None]
    if raw.shape[3] > 1:
        # an atom beside its own image would make S_ii = α + …, with a trace
        others = graph.sender != torch.arange(graph.sender.shape[1], device=raw.device)[:, None]
        both = 0.5 * (raw[..., 1:] + neighbors.opposite(raw[..., 1:])) * others[..., None]
        raw = torch.cat([raw[..., :1], both], 3)
    return _bounded(raw, neighbors)


def _bounded(raw: torch.Tensor, neighbors: Neighbors) -> torch.Tensor:
    """With |S| below R."""
    columns = raw.shape[3]
    size = torch.sqrt(raw.square() + SMOOTH**2) - SMOOTH
    # |u uᵀ − 1/3| = 2/3
    row = 2 / 3 * size[..., 0].sum(2) + size[..., 1:].sum((2, 3))
    factor = (1 + row / BOUND[columns]).rsqrt()
    own = factor[:, :, None, None]
    if columns == 1:
        return raw * own.square()
    other = neighbors.gather(factor[..., None])
    return torch.cat([raw[..., :1] * own.square(), raw[..., 1:] * own * other], 3)


class Generator:
    """S, from the couplings of edges [K, N, D, 1 or 3], as a linear map in float64."""

    def __init__(self, couplings: torch.Tensor, graph: Graph) -> None:
        chains, atoms, slots, columns = couplings.shape
        self.bound, self.couplings = BOUND[columns], couplings.double()
        self.neighbors = Neighbors(graph.sender, graph.reverse, chains)
        self.unit = (graph.vector / graph.vector.norm(dim=-1, keepdim=True)).double().expand(chains, -1, -1, -1)
        gamma = self.couplings[..., 0]
        outer = torch.einsum("kndi,kndj->knij", self.unit * gamma[..., None], self.unit)
        third = torch.eye(3, dtype=torch.float64, device=outer.device) / 3
        self.diagonal = outer - gamma.sum(2)[..., None, None] * third

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """S x of [K, N, 3, V]."""
        own = self.diagonal @ x
        if self.couplings.shape[3] == 1:
            return own
        alpha, beta = self.couplings[..., 1:2], self.couplings[..., 2:3]
        there = self.neighbors.gather(x.flatten(2)).unflatten(3, x.shape[2:])  # [K, N, D, 3, V]
        along = (self.unit[..., None] * there).sum(3)
        return own + (alpha[..., None] * there).sum(2) + (self.unit[..., None] * (beta * along)[..., None, :]).sum(2)

    def matrix(self) -> torch.Tensor:
        """S of a graph of one structure as a matrix [K, 3N, 3N]."""
        (chains, atoms, slots, columns), unit = self.couplings.shape, self.unit
        own = torch.arange(atoms, device=unit.device)
        blocks = unit.new_zeros(chains * atoms * atoms, 3, 3)
        blocks.view(chains, atoms, atoms, 3, 3)[:, own, own] = self.diagonal
        if columns > 1:
            alpha, beta = self.couplings[..., 1, None, None], self.couplings[..., 2, None, None]
            between = alpha * torch.eye(3).to(unit) + beta * unit[..., :, None] * unit[..., None, :]
            # the senders of chain k are numbered from k N on
            sender = self.neighbors.sender.reshape(chains, atoms, slots) % atoms
            place = (torch.arange(chains, device=own.device)[:, None, None] * atoms + own[:, None]) * atoms + sender
            blocks.index_add_(0, place.flatten(), between.flatten(0, 2))
        return blocks.view(chains, atoms, atoms, 3, 3).transpose(2, 3).reshape(chains, 3 * atoms, 3 * atoms)

    def exponential(self, x: torch.Tensor, factor: torch.Tensor | float) -> torch.Tensor:
        """exp(factor S) x of [K, N, 3, V], |factor| ≤ ½, one for each column."""
        term = total = x
        for k in range(1, terms(self.bound / 2) + 1):
            term = self(term) * factor / k
            total = total + term
        return total


def terms(bound: float, accuracy: float = 1e-9) -> int:
    """Terms of the exponential series after which the rest is below `accuracy`, for a matrix of this norm."""
    size, count = 1.0, 0
    while size > accuracy or count < bound:
        count += 1
        size *= bound / count
    return count


def log_density(
    error: torch.Tensor,
    log_sigma: torch.Tensor,
    couplings: torch.Tensor,
    graph: Graph,
    rigid: torch.Tensor | None,
) -> torch.Tensor:
    """ln p of the force errors of each structure, [K, B] float64.

    error [K, N, 3] eV/Å;  log_sigma [K, N];  couplings [K, N, D, …];  rigid [G, N, 3, 6]: U/ε, or None
    """
    generator, error, log_sigma = Generator(couplings, graph), error.double(), log_sigma.double()
    inverse, sigma = torch.exp(-log_sigma)[..., None, None], torch.exp(log_sigma)[..., None, None]
    columns, factors = error[..., None] * inverse, error.new_full((1,), -0.5)
    if rigid is not None:
        rigid = rigid.double().expand(len(error), -1, -1, -1)
        columns = torch.cat([columns, sigma * rigid], 3)
        factors = torch.cat([factors, factors.new_full((rigid.shape[3],), 0.5)])
    moved = generator.exponential(columns, factors)
    per_atom = -0.5 * moved[..., 0].square().sum(2) - 3 * log_sigma - 1.5 * log(2 * pi)
    total = sum_over_structures(per_atom, graph)
    if rigid is None:
        return total
    sums = sum_over_structures(torch.einsum("knac,kna->knc", rigid, error), graph)
    inner = sum_over_structures(torch.einsum("knac,knad->kncd", moved[..., 1:], moved[..., 1:]), graph)
    inner = inner + torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
    return total - 0.5 * sums.square().sum(-1) + 0.5 * log_det(inner)


def log_det(matrix: torch.Tensor) -> torch.Tensor:
    """Of small positive definite matrices [..., c, c], by elimination, which can be part of a CUDA graph."""
    total = torch.zeros_like(matrix[..., 0, 0])
    while matrix.shape[-1]:
        pivot = matrix[..., :1, :1]
        total = total + pivot[..., 0, 0].log()
        matrix = matrix[..., 1:, 1:] - matrix[..., 1:, :1] * matrix[..., :1, 1:] / pivot
    return total


def dense(couplings: torch.Tensor, log_sigma: torch.Tensor, graph: Graph) -> torch.Tensor:
    """C of a graph of one structure, [K, 3N, 3N] float64, (eV/Å)²."""
    sigma = torch.exp(log_sigma.double()).repeat_interleave(3, 1)
    generator = Generator(couplings, graph)
    if couplings.shape[3] == 1:
        whole = torch.stack([torch.block_diag(*own) for own in torch.linalg.matrix_exp(generator.diagonal)])
    else:
        whole = torch.linalg.matrix_exp(generator.matrix())
    return sigma[:, :, None] * whole * sigma[:, None, :]
