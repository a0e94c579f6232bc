"""Which neighbours the atoms of the training frames had: what lies outside is novel, whatever a network says.

| an atom                                                | novelty by construction                              |
|--------------------------------------------------------|------------------------------------------------------|
| has a neighbour of a species never seen beside its own | `UNSEEN`                                             |
| has no neighbour, and none such was seen               | `UNSEEN`                                             |
| is further from its nearest neighbour than any such    | 1 where that distance is 5 % longer, 2 for 10 %, …   |
| is closer to a neighbour than any such pair            | 1 where the distance is 5 % shorter, 2 for 10 %, …   |
"""

from dataclasses import dataclass

import numpy as np
import torch

from equibayes.data.graph import Graph
from equibayes.data.structures import FloatArray

UNSEEN = 1000.0
"""The novelty of what is unlike anything learned; no novelty is larger."""
MARGIN = 0.05
"""Part by which a distance must be shorter or longer than any seen for a novelty of 1."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Of the T species of a network.

    shortest  [T, T] float64  Å, the smallest distance of two such atoms; inf where none were within the cutoff
    loneliest [T] float64     Å, the largest distance of such an atom from its nearest neighbour; inf where one without
                              neighbours was seen, 0 where no such atom was
    r_max                     Å, the cutoff
    """

    shortest: np.ndarray
    loneliest: np.ndarray
    r_max: float

    @classmethod
    def none(cls, types: int, r_max: float) -> "Surroundings":
        """Before anything was seen."""
        return cls(np.full((types, types), np.inf), np.zeros(types), r_max)

    def note(self, graph: Graph) -> None:
        """Add what is seen in a graph, in place."""
        species, pairs = graph.species[0].numpy(), Pairs.of(graph)
        length = np.linalg.norm(pairs.shift, axis=1)
        np.minimum.at(self.shortest, (species[pairs.receiver], species[pairs.sender]), length)
        np.maximum.at(self.loneliest, species, pairs.nearest(length, len(species)))

    def watch(self, graph: Graph, positions: FloatArray | None = None, skin: float = 0.0) -> "Watched":
        """What may become novel among the atoms of a graph while none moves further than skin/2.

        positions [n, 3]  where the atoms are, if the graph is a list of all pairs within r_max + skin that is kept
                          while they move
        """
        species, pairs = graph.species[0].cpu().numpy(), Pairs.of(graph, positions)
        shortest = self.shortest[species[pairs.receiver], species[pairs.sender]]
        limit, length = np.where(np.isinf(shortest), self.r_max, shortest), pairs.length(positions)
        nearest, loneliest = pairs.nearest(length, len(species)), self.loneliest[species]
        # a nearest neighbour stays among those that were not much further away
        lonely = nearest + skin > loneliest
        kept = (length < limit + skin) | (lonely[pairs.receiver] & (length <= nearest[pairs.receiver] + skin))
        watched, first = np.unique(pairs.receiver[kept], return_index=True)
        alone = np.flatnonzero(lonely & np.isinf(nearest))
        # of the other atoms, the nearest neighbour need not be among the pairs
        reach = np.where(lonely, loneliest, np.inf)[watched]
        strange, size = np.isinf(shortest[kept]), len(species)
        return Watched(pairs[kept], limit[kept], strange, watched, first, reach, alone, size, self.r_max)


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

    def length(self, positions: FloatArray | None) -> np.ndarray:
        """[e] Å."""
        vector = self.shift if positions is None else self.shift + positions[self.sender] - positions[self.receiver]
        return np.sqrt(np.einsum("ij,ij->i", vector, vector))

    def nearest(self, length: np.ndarray, atoms: int) -> np.ndarray:
        """[atoms] Å to the nearest neighbour; inf without one."""
        found = np.full(atoms, np.inf)
        np.minimum.at(found, self.receiver, length)
        return found

    def __getitem__(self, which: np.ndarray) -> "Pairs":
        return Pairs(self.receiver[which], self.sender[which], self.shift[which])


@dataclass(frozen=True, eq=False)
class Watched:
    """Pairs, sorted by receiver, that may be novel, or tell that an atom is not alone.

    limit [e]      Å, below which a pair is novel
    strange [e]    whether its species were never neighbours
    atoms, first   the atoms with such pairs, and the first pair of each
    loneliest      Å, of each of these atoms, beyond which its nearest neighbour is further away than any seen
    alone          atoms that have no neighbour, nor will have
    size           number of all atoms
    """

    pairs: Pairs
    limit: np.ndarray
    strange: np.ndarray
    atoms: np.ndarray
    first: np.ndarray
    loneliest: np.ndarray
    alone: np.ndarray
    size: int
    r_max: float

    def __call__(self, positions: FloatArray | None = None) -> np.ndarray | None:
        """[n] novelty by construction; None where there is none."""
        length = self.pairs.length(positions)
        near = length < self.limit
        nearest = np.minimum.reduceat(length, self.first) if len(self.first) else length
        far = nearest > self.loneliest
        if not (np.count_nonzero(near) or np.count_nonzero(far) or len(self.alone)):
            return None
        novelty = np.zeros(self.size)
        shorter = (1 - length[near] / self.limit[near]) / MARGIN
        np.maximum.at(novelty, self.pairs.receiver[near], np.where(self.strange[near], UNSEEN, shorter))
        atoms, nearest = self.atoms[far], nearest[far]
        longer = (nearest / self.loneliest[far].clip(min=1e-9) - 1) / MARGIN
        novelty[atoms] = np.maximum(novelty[atoms], np.where(nearest >= self.r_max, UNSEEN, longer))
        novelty[self.alone] = UNSEEN
        return np.minimum(novelty, UNSEEN)
