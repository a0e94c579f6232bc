"""A neighbour list that is reused while atoms move little (Verlet's list).

Pairs are searched up to r_max + skin.  As long as no atom has moved further than skin/2 since then, every pair within
r_max is among them, because two atoms approach each other by at most the skin.  At each call the pairs within r_max
are selected in a fixed order, so the graph depends on the structure alone and not on when the list was made: a
simulation that is continued from a file repeats the same bits.
"""

import numpy as np
import torch

from equibayes.data.checks import FARTHEST, check_geometry
from equibayes.data.graph import Graph, check_species, graph_of_edges
from equibayes.data.neighbors import NeighborList, neighbor_list
from equibayes.data.structures import Structure
from equibayes.engine.neighbors import graph_of_torch_edges, neighbor_list_torch
from equibayes.errors import InputError


class SkinList:
    """Graphs of one structure that moves.  r_max and skin in Å; `searches` counts the neighbour searches."""

    def __init__(self, r_max: float, species_of: dict[int, int], skin: float) -> None:
        if not 0 <= skin < float("inf"):
            raise InputError(f"skin={skin:g}: must be 0 or more, in Å")
        self.r_max, self.species_of, self.skin = r_max, species_of, skin
        self.searches = 0
        self._made_for: Structure | None = None
        self._pairs: NeighborList | None = None

    def graph(self, structure: Structure) -> Graph:
        """The graph of a structure, as `data.graph.graph_of` gives it."""
        if self.renew(structure) or self._pairs is None:
            made_for, reach = self._searched(), self.r_max + self.skin
            self._pairs = _ordered(neighbor_list(made_for.positions, made_for.cell, made_for.pbc, reach))
        return graph_of_edges(structure, _within(self._pairs, structure, self.r_max), species_of=self.species_of)

    def renew(self, structure: Structure) -> bool:
        """Whether this structure needs a new search; for callers that keep all pairs of the last one."""
        if self._holds_for(structure):
            return False
        self._check(structure)
        self.searches += 1
        self._made_for, self._pairs = structure, None
        return True

    def wide_graph(self, device: torch.device | str) -> Graph:
        """All pairs within r_max + skin of the structure last given to `renew`, found on that device."""
        structure = self._searched()
        positions = torch.from_numpy(np.ascontiguousarray(structure.positions)).to(device)
        edges = neighbor_list_torch(positions, structure.cell, structure.pbc, self.r_max + self.skin)
        species = torch.tensor([self.species_of[int(z)] for z in structure.numbers], device=device)
        return graph_of_torch_edges(edges, species, structure.cell, structure.pbc)

    def _searched(self) -> Structure:
        assert self._made_for is not None
        return self._made_for

    def _holds_for(self, structure: Structure) -> bool:
        old = self._made_for
        if old is None or not all(
            np.array_equal(getattr(structure, name), getattr(old, name)) for name in ("numbers", "cell", "pbc")
        ):
            return False
        # False for positions that are NaN
        return bool((_lengths(structure.positions - old.positions) <= self.skin / 2).all())

    def _check(self, structure: Structure) -> None:
        check_species(structure, self.species_of)
        where = structure.source or "structure"
        if not (np.isfinite(structure.positions).all() and np.isfinite(structure.cell).all()):
            raise InputError(
                f"{where}: positions or cell are not finite numbers; the simulation has exploded: use a shorter time "
                "step or a start closer to the training data"
            )
        if max(np.abs(structure.positions).max(initial=0.0), np.abs(structure.cell).max()) > FARTHEST:
            raise InputError(f"{where}: coordinates are beyond {FARTHEST:.0e} Å; the simulation has exploded")
        check_geometry(structure)


def _ordered(pairs: NeighborList) -> NeighborList:
    """Sorted by receiver, sender and lattice translation."""
    shift = pairs.shift
    order = np.lexsort((shift[:, 2], shift[:, 1], shift[:, 0], pairs.sender, pairs.receiver))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return NeighborList(
        pairs.receiver[order], pairs.sender[order], pairs.vector[order], place[pairs.reverse[order]], shift[order]
    )


def _within(pairs: NeighborList, structure: Structure, r_max: float) -> NeighborList:
    """Those pairs that are within r_max now, with their vectors of now."""
    positions = structure.positions
    vector = positions[pairs.sender] - positions[pairs.receiver]
    if structure.pbc.any():
        vector += pairs.shift @ structure.cell
    near = _lengths(vector) < r_max
    place = np.cumsum(near) - 1
    return NeighborList(
        pairs.receiver[near], pairs.sender[near], vector[near], place[pairs.reverse[near]], pairs.shift[near]
    )


def _lengths(vectors: np.ndarray) -> np.ndarray:
    """[n] lengths of [n, 3], the same to the last bit for v and −v."""
    return np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
