"""The noise of forces that each sample predicts: a covariance matrix per structure, or its diagonal.

bayes/covariance.py defines it.  Up to `MOST_ATOMS` atoms the matrix is computed as a whole; in larger structures the
diagonal of a covariance between atoms is estimated from `PROBES` random vectors, with an error of σ of
1/√(2 PROBES) = 6 %.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from equibayes.bayes.covariance import Generator, dense
from equibayes.bayes.model import ModelOutput
from equibayes.data.graph import Graph
from equibayes.data.rigid import rigid_directions_of
from equibayes.data.structures import FloatArray, Structure

MOST_ATOMS = 256
PROBES = 128


@dataclass(frozen=True, eq=False)
class ForceNoise:
    """Of B structures with N atoms under k samples.

    sigma        [k, N] eV/Å, or [k, N, 3] where it depends on the direction
    covariances  of each structure [k, 3n, 3n], (eV/Å)², without what is known of net force and torque; None where they
                 were not asked for
    """

    sigma: FloatArray
    covariances: list[FloatArray] | None = None


def force_noise(
    output: ModelOutput, graph: Graph, structures: Sequence[Structure], rigid_noise: float | None, *, full: bool = False
) -> ForceNoise:
    """rigid_noise: of the labels along net force and torque, eV/Å, if the model has it;  full: with the covariances."""
    if output.couplings is None:
        sigma = output.sigma_forces.double().cpu().numpy()
        return ForceNoise(sigma, [_diagonal(sigma[:, own]) for own in atoms_of(structures)] if full else None)
    parts = [
        _of_one(output, graph, own, structure, rigid_noise, full)
        for own, structure in zip(atoms_of(structures), structures)
    ]
    sigma = np.concatenate([part.sigma for part in parts], 1)
    return ForceNoise(sigma, [part.covariances[0] for part in parts if part.covariances] if full else None)


def atoms_of(structures: Sequence[Structure]) -> Iterator[slice]:
    """Those of each structure among all."""
    end = 0
    for structure in structures:
        yield slice(end, end + len(structure))
        end += len(structure)


def _diagonal(sigma: FloatArray) -> FloatArray:
    """[k, n] → [k, 3n, 3n]."""
    return np.square(np.repeat(sigma, 3, axis=1))[:, :, None] * np.eye(3 * sigma.shape[1])


def _of_one(
    output: ModelOutput, graph: Graph, own: slice, structure: Structure, rigid_noise: float | None, full: bool
) -> ForceNoise:
    assert output.couplings is not None
    couplings, log_sigma = output.couplings[:, own], output.log_sigma_forces[:, own].double()
    part, (chains, atoms) = _part(graph, own), log_sigma.shape
    generator, sigma = Generator(couplings, part), torch.exp(log_sigma)[..., None, None]
    covariance = dense(couplings, log_sigma, part) if full or atoms <= MOST_ATOMS else None
    if covariance is None:
        probes = (sigma * generator.exponential(_signs(atoms).to(sigma).expand(chains, -1, -1, -1), 0.5)).flatten(1, 2)
        variance = probes.square().mean(2)
    else:
        variance = covariance.diagonal(dim1=1, dim2=2).clone()
    if rigid_noise is not None:
        directions = torch.from_numpy(rigid_directions_of(structure)).to(sigma).expand(chains, -1, -1, -1)
        moved = sigma * directions
        moved = generator.exponential(generator.exponential(moved, 0.5), 0.5)
        moved = (sigma * moved).flatten(1, 2)  # C R
        inner = directions.flatten(1, 2).mT @ moved
        inner = inner + rigid_noise**2 * torch.eye(inner.shape[-1]).to(inner)
        less = torch.linalg.solve(inner, moved.mT).mT  # C R (RᵀCR + ε²)⁻¹
        variance = (variance - (less * moved).sum(2)).clamp_min(0)
    found = variance.sqrt().reshape(chains, atoms, 3).cpu().numpy()
    return ForceNoise(found, [covariance.cpu().numpy()] if full and covariance is not None else None)


def _signs(atoms: int) -> torch.Tensor:
    """[1, n, 3, PROBES] random, the same at every call."""
    random = torch.Generator().manual_seed(0)
    return torch.randint(0, 2, (1, atoms, 3, PROBES), generator=random).double() * 2 - 1


def _part(graph: Graph, own: slice) -> Graph:
    """One structure of a graph."""
    slots = graph.sender.shape[2]
    return Graph(
        species=graph.species[:, own],
        sender=graph.sender[:, own] - own.start,
        reverse=graph.reverse[:, own] - own.start * slots,
        vector=graph.vector[:, own],
        structure=torch.zeros_like(graph.structure[:, own]),
        num_atoms=graph.num_atoms.new_full((graph.num_atoms.shape[0], 1), own.stop - own.start),
        volume=graph.volume[:, :1],
    )
