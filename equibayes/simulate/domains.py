"""The atoms of one structure, divided among processes by where they are.

Every process has a compact part of the cell with as many atoms as the others.  It also needs the neighbours of its
atoms within one cutoff, its *ghosts*; their features come from the processes that they belong to (`engine.interface`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from equibayes.data.graph import Graph
from equibayes.data.structures import BoolArray, FloatArray, IntArray, Structure
from equibayes.engine.bins import box_of
from equibayes.engine.interface import DynamicsOutput
from equibayes.engine.neighbors import TorchNeighborList, graph_of_torch_edges, neighbor_list_torch

ROOM = 1e-6
"""Relative margin of the space in which neighbours are searched, so that none is lost by rounding."""


def owners(structure: Structure, processes: int) -> IntArray:
    """[n] the process of each atom: the cell is halved again and again across its longest side."""
    fractions, heights = _fractions(structure)
    found = np.zeros(len(structure), dtype=np.int64)

    def halve(atoms: IntArray, first: int, count: int) -> None:
        if count == 1 or not len(atoms):
            found[atoms] = first
            return
        axis = int(np.argmax(np.ptp(fractions[atoms], axis=0) * heights))
        rising = atoms[np.argsort(fractions[atoms, axis], kind="stable")]
        lower = count // 2
        cut = len(atoms) * lower // count
        halve(rising[:cut], first, lower)
        halve(rising[cut:], first + lower, count - lower)

    halve(np.arange(len(structure)), 0, processes)
    return found


def near(structure: Structure, own: BoolArray, reach: float) -> BoolArray:
    """[n] atoms that may be within `reach` (Å) of one of these: those in a box around them."""
    if not own.any():
        return own
    fractions, heights = _fractions(structure)
    margin = reach * (1 + ROOM) / heights + ROOM
    low, high = fractions[own].min(0) - margin, fractions[own].max(0) + margin
    above = np.where(structure.pbc, (fractions - low) % 1.0, fractions - low)
    return np.asarray(((above >= 0) & (above <= high - low)).all(1))


def _fractions(structure: Structure) -> tuple[FloatArray, FloatArray]:
    """Coordinates [n, 3] in units of the lattice vectors (Å where not periodic), distances [3] of opposite faces."""
    inverse = np.linalg.inv(box_of(structure.cell, structure.pbc))
    fractions = structure.positions @ inverse
    return np.where(structure.pbc, fractions % 1.0, fractions), 1 / np.linalg.norm(inverse, axis=0)


@dataclass(frozen=True)
class Domain:
    """
    atoms     [m] the atoms and ghosts of one process, rising
    is_ghost  [m]
    graph     all pairs of these atoms within the cutoff and a skin; not those between ghosts
    """

    atoms: IntArray
    is_ghost: BoolArray
    graph: Graph

    @classmethod
    def of(cls, structure: Structure, own: BoolArray, reach: float, species: torch.Tensor) -> "Domain":
        """own [n]: the atoms of this process;  species [n]: type indices."""
        around = np.flatnonzero(near(structure, own, reach))
        positions = torch.from_numpy(np.ascontiguousarray(structure.positions[around]))
        edges = neighbor_list_torch(positions, structure.cell, structure.pbc, reach)
        mine = torch.from_numpy(own[around])
        edges, kept = _touching(edges, mine)
        atoms = around[kept.numpy()]
        graph = graph_of_torch_edges(edges, species[torch.from_numpy(atoms)], structure.cell, structure.pbc)
        return cls(atoms, ~own[atoms], graph)


def _touching(edges: TorchNeighborList, mine: torch.Tensor) -> tuple[TorchNeighborList, torch.Tensor]:
    """Edges of which an end is mine, with the atoms numbered anew, and the atoms [m] that are left, rising."""
    chosen = (mine[edges.receiver] | mine[edges.sender]).nonzero().squeeze(1)
    needed = mine.clone()
    needed[edges.sender[chosen]] = True
    atom, edge = (torch.zeros(count, dtype=torch.int64) for count in (len(mine), len(edges.receiver)))
    kept = needed.nonzero().squeeze(1)
    atom[kept], edge[chosen] = torch.arange(len(kept)), torch.arange(len(chosen))
    left = TorchNeighborList(
        atom[edges.receiver[chosen]],
        atom[edges.sender[chosen]],
        edges.vector[chosen],
        edge[edges.reverse[chosen]],
        edges.shift[chosen],
    )
    return left, kept


@dataclass(frozen=True)
class Share:
    """What the atoms of one process contribute (see `PartDynamics`): own [a] of n, with ghosts atoms [m].

    novelty [a] of its own atoms
    """

    own: IntArray
    atoms: IntArray
    is_ghost: BoolArray
    output: DynamicsOutput
    novelty: FloatArray | None = None


def joined(shares: Sequence[Share], count: int) -> DynamicsOutput:
    """The results for all atoms, `count` of them."""
    shares = [share for share in shares if len(share.own)]
    outputs = [share.output for share in shares]
    k = len(outputs[0].energy)
    forces, log_sigma_forces = np.zeros((k, count, 3)), np.zeros((k, count))
    for share in shares:
        forces[:, share.atoms] += share.output.forces
        log_sigma_forces[:, share.own] = share.output.log_sigma_forces[:, ~share.is_ghost]
    # deviations of energies are means over atoms, those of virials sums
    weights = np.log([len(share.own) / count for share in shares])[:, None]
    return DynamicsOutput(
        energy=np.sum([each.energy for each in outputs], axis=0),
        forces=forces,
        virial=np.sum([each.virial for each in outputs], axis=0),
        log_sigma_energy=np.logaddexp.reduce([each.log_sigma_energy for each in outputs] + weights, axis=0),
        log_sigma_forces=log_sigma_forces,
        log_sigma_virial=_log_sum([each.log_sigma_virial for each in outputs]),
        invariants=np.zeros((count, 0), np.float32),  # each process has used its own
    )


def joined_novelty(shares: Sequence[Share], count: int) -> FloatArray | None:
    """Of all atoms, `count` of them."""
    novelty = np.zeros(count)
    for share in shares:
        if share.novelty is None:
            return None
        novelty[share.own] = share.novelty
    return novelty


def _log_sum(values: Sequence[FloatArray]) -> FloatArray:
    """ln Σ exp; NaN where stress is not learned."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.logaddexp.reduce(values, axis=0))
