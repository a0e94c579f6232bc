"""Which neighbours the atoms of the training frames had: what lies outside is novel, whatever a network says.

| an atom                                             | novelty by construction                                |
|-----------------------------------------------------|--------------------------------------------------------|
| has a neighbour of a species never seen beside its  | `UNSEEN`                                                |
| has no neighbour, and none such was seen            | `UNSEEN`                                                |
| is closer to a neighbour than any such pair was     | 1 where the distance is 5 % shorter, 2 for 10 %, …     |
"""

from dataclasses import dataclass

import numpy as np
import torch

from equibayes.data.graph import Graph
from equibayes.data.structures import FloatArray

UNSEEN = 1000.0
"""The novelty of what is unlike anything learned; no novelty is larger."""
SHORTER = 0.05
"""Fraction by which a distance must be shorter than any seen for a novelty of 1."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Of the T species of a network.

    shortest [T, T] float64  Å, the smallest distance of two such atoms; inf where none were within the cutoff
    alone    [T] bool        whether such an atom was seen without any neighbour
    r_max                    Å, the cutoff
    """

    shortest: np.ndarray
    alone: np.ndarray
    r_max: float

    @classmethod
    def none(cls, types: int, r_max: float) -> "Surroundings":
        """Before anything was seen."""
        return cls(np.full((types, types), np.inf), np.zeros(types, dtype=bool), r_max)

    def note(self, graph: Graph) -> None:
        """Add what is seen in a graph, in place."""
        species, pairs = graph.species[0].numpy(), Pairs.of(graph)
        kinds = species[pairs.receiver], species[pairs.sender]
        np.minimum.at(self.shortest, kinds, np.linalg.norm(pairs.shift, axis=1))
        lonely = np.ones(len(species), dtype=bool)
        lonely[pairs.receiver] = False
        self.alone[species[lonely]] = True

    def watch(self, graph: Graph, positions: FloatArray | None = None, skin: float = 0.0) -> "Watched":
        """What may become novel among the atoms of a graph while none moves further than skin/2.

        positions [n, 3]  where the atoms are, if the graph is a list of all pairs within r_max + skin that is kept
                          while they move
        """
        species, pairs = graph.species[0].cpu().numpy(), Pairs.of(graph, positions)
        limit = np.where(np.isinf(self.shortest), self.r_max, self.shortest)[
            species[pairs.receiver], species[pairs.sender]
        ]
        strange = np.isinf(self.shortest)[species[pairs.receiver], species[pairs.sender]]
        vector = pairs.vector(positions)
        length = np.sqrt(np.einsum("ij,ij->i", vector, vector))
        nearest = np.full(len(species), np.inf)
        np.minimum.at(nearest, pairs.receiver, length)
        lonely = ~self.alone[species] & (nearest > self.r_max - skin)
        kept = (length < limit + skin) | lonely[pairs.receiver]
        return Watched(pairs[kept], limit[kept], strange[kept], np.flatnonzero(lonely), len(species), self.r_max)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Directed pairs of atoms: receiver, sender [e], and r_sender − r_receiver without the difference of positions
    [e, 3] (where positions are not given: all of it)."""

    receiver: np.ndarray
    sender: np.ndarray
    shift: np.ndarray

    @classmethod
    def of(cls, graph: Graph, positions: FloatArray | None = None) -> "Pairs":
        slots = graph.sender.shape[2]
        flat = torch.arange(graph.reverse.numel(), device=graph.reverse.device)
        edges = (graph.reverse.flatten() != flat).nonzero().flatten()
        receiver, sender = (edges // slots).cpu().numpy(), graph.sender.flatten()[edges].cpu().numpy()
        shift = graph.vector.reshape(-1, 3)[edges].double().cpu().numpy()
        if positions is not None:
            shift = shift - (positions[sender] - positions[receiver])
        return cls(receiver, sender, shift)

    def vector(self, positions: FloatArray | None) -> np.ndarray:
        """[e, 3] Å."""
        return self.shift if positions is None else self.shift + positions[self.sender] - positions[self.receiver]

    def __getitem__(self, which: np.ndarray) -> "Pairs":
        return Pairs(self.receiver[which], self.sender[which], self.shift[which])


@dataclass(frozen=True, eq=False)
class Watched:
    """Pairs that may be novel: closer than `limit` [e]; `strange` [e]: of species that were never neighbours.
    lonely: atoms that may have no neighbour; all their pairs are among those above."""

    pairs: Pairs
    limit: np.ndarray
    strange: np.ndarray
    lonely: np.ndarray
    atoms: int
    r_max: float

    def __call__(self, positions: FloatArray | None = None) -> np.ndarray | None:
        """[n] novelty by construction; None where there is none."""
        vector = self.pairs.vector(positions)
        square = np.einsum("ij,ij->i", vector, vector)
        near = square < self.limit * self.limit
        if not near.any() and not len(self.lonely):
            return None
        length = np.sqrt(square)
        novelty, receiver = np.zeros(self.atoms), self.pairs.receiver
        shorter = (1 - length[near] / self.limit[near]) / SHORTER
        np.maximum.at(novelty, receiver[near], np.where(self.strange[near], UNSEEN, shorter))
        accompanied = np.zeros(self.atoms, dtype=bool)
        accompanied[receiver[length < self.r_max]] = True
        novelty[self.lonely[~accompanied[self.lonely]]] = UNSEEN
        return novelty
