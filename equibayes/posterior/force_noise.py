"""The noise of forces that each sample predicts: a covariance matrix per structure, or its diagonal.

bayes/covariance.py defines it.  Covariances between atoms are computed as one matrix for up to `MOST_ATOMS` atoms; in
larger structures their diagonal is estimated from `PROBES` random vectors, with an error of σ of 1/√(2 PROBES) = 6 %.
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
    part = _part(graph, own)
    covariance = dense(couplings, log_sigma, part) if full else None
    variance = _variances(couplings, log_sigma, part) if covariance is None else covariance.diagonal(dim1=1, dim2=2)
    if rigid_noise is not None:
        directions = torch.from_numpy(rigid_directions_of(structure)).to(log_sigma)
        variance = (variance - _known(Generator(couplings, part), log_sigma, directions, rigid_noise)).clamp_min(0)
    found = variance.sqrt().unflatten(1, (-1, 3)).cpu().numpy()
    return ForceNoise(found, None if covariance is None else [covariance.cpu().numpy()])


def _variances(couplings: torch.Tensor, log_sigma: torch.Tensor, graph: Graph) -> torch.Tensor:
    """The diagonal of C, [k, 3n] (eV/Å)²."""
    atoms, generator, sigma = log_sigma.shape[1], Generator(couplings, graph), torch.exp(log_sigma)[..., None, None]
    if couplings.shape[3] == 1:  # atoms alone
        return (sigma.square() * torch.linalg.matrix_exp(generator.diagonal)).diagonal(dim1=2, dim2=3).flatten(1)
    if atoms <= MOST_ATOMS:
        return dense(couplings, log_sigma, graph).diagonal(dim1=1, dim2=2)
    signs = _signs(atoms).to(sigma).expand(len(sigma), -1, -1, -1)
    return (sigma * generator.exponential(signs, 0.5)).flatten(1, 2).square().mean(2)


def _known(generator: Generator, log_sigma: torch.Tensor, directions: torch.Tensor, noise: float) -> torch.Tensor:
    """What the diagonal of C loses as there is no error but `noise` along `directions` R [n, 3, 6], [k, 3n]:
    C R (RᵀCR + ε²)⁻¹ RᵀC."""
    sigma, rows = torch.exp(log_sigma)[..., None, None], directions.expand(len(log_sigma), -1, -1, -1)
    moved = sigma * generator.exponential(generator.exponential(sigma * rows, 0.5), 0.5)
    moved = moved.flatten(1, 2)  # C R
    inner = rows.flatten(1, 2).mT @ moved
    inner = inner + noise**2 * torch.eye(inner.shape[-1]).to(inner)
    return (torch.linalg.solve(inner, moved.mT).mT * moved).sum(2)


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
