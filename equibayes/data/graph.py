"""Graph: the only thing the network sees.

Every atom owns D neighbour slots, so that all arrays are dense and the sum over neighbours is a matrix product, not a
scatter.  An empty slot has a vector beyond the cutoff, where the cutoff function makes its contribution exactly 0.

| field          | shape        | unit | meaning                                                                    |
|----------------|--------------|------|----------------------------------------------------------------------------|
| species        | [G, N]       |      | index into the model's `type_names`                                        |
| sender         | [G, N, D]    |      | the neighbour in each slot; an atom's own index in an empty slot           |
| reverse        | [G, N, D]    |      | flat slot (n·D + d) of the opposite edge; an empty slot points to itself   |
| vector         | [G, N, D, 3] | Å    | r_sender − r_receiver; periodic images included                            |
| structure      | [G, N]       |      | which structure an atom belongs to; `num_structures` for padding atoms     |
| num_atoms      | [G, B]       |      | atoms in each structure                                                    |
| volume         | [G, B]       | Å³   | cell volume; NaN where the structure is not periodic in three directions   |

G is 1 where all chains look at the same atoms (prediction), or K where every chain has its own minibatch (sampling).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch

from equibayes.data.elements import symbol
from equibayes.data.neighbors import NeighborList, neighbor_list
from equibayes.data.structures import Structure
from equibayes.errors import InputError

# Length of an empty slot's vector, Å: beyond any cutoff, and far from 0, where directions are undefined.
EMPTY_SLOT_DISTANCE = 1000.0


@dataclass(frozen=True)
class Graph:
    """A batch of structures; see the table at the top of this file."""

    species: torch.Tensor
    sender: torch.Tensor
    reverse: torch.Tensor
    vector: torch.Tensor
    structure: torch.Tensor
    num_atoms: torch.Tensor
    volume: torch.Tensor

    @property
    def num_structures(self) -> int:
        return self.num_atoms.shape[1]

    @property
    def real(self) -> torch.Tensor:
        """[G, N] bool: atoms that belong to a structure, not to the padding."""
        return self.structure < self.num_structures

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Graph":
        """Move to a device; `dtype` applies to the floating-point fields only."""
        moved = {}
        for field in fields(self):
            value = getattr(self, field.name)
            moved[field.name] = value.to(device, dtype if value.is_floating_point() else None)
        return Graph(**moved)


def graph_of(structure: Structure, *, r_max: float, species_of: dict[int, int]) -> Graph:
    """Graph of one structure, float64 on the CPU; `species_of` maps atomic numbers to the model's type indices."""
    check_species(structure, species_of)
    edges = neighbor_list(structure.positions, structure.cell, structure.pbc, r_max)
    return graph_of_edges(structure, edges, species_of=species_of)


def check_species(structure: Structure, species_of: dict[int, int]) -> None:
    """An `InputError` for atoms that the model does not know."""
    unknown = sorted(set(structure.numbers.tolist()) - species_of.keys())
    if unknown:
        missing, known = (", ".join(map(symbol, numbers)) for numbers in (unknown, sorted(species_of)))
        raise InputError(
            f"{structure.source or 'structure'}: species {missing} unknown to this model, which knows {known}; "
            "remove such structures or sample on data that contain them"
        )


def graph_of_edges(structure: Structure, edges: NeighborList, *, species_of: dict[int, int]) -> Graph:
    """The same where the neighbours are known already."""
    numbers, count = structure.numbers, len(structure)
    degree = np.bincount(edges.receiver, minlength=count)
    slots = max(int(degree.max(initial=0)), 1)
    # edges are sorted by receiver: the slot of an edge is its rank among the edges of its receiver
    first = np.concatenate([[0], np.cumsum(degree)[:-1]]) if count else np.zeros(0, dtype=np.int64)
    slot_of_edge = edges.receiver * slots + np.arange(len(edges.receiver)) - first[edges.receiver]

    sender = np.repeat(np.arange(count), slots)
    reverse = np.arange(count * slots)
    vector = np.zeros((count * slots, 3))
    vector[:, 0] = EMPTY_SLOT_DISTANCE
    sender[slot_of_edge] = edges.sender
    reverse[slot_of_edge] = slot_of_edge[edges.reverse]
    vector[slot_of_edge] = edges.vector

    volume = structure.volume if np.all(structure.pbc) else np.nan
    return Graph(
        species=torch.tensor([[species_of[int(z)] for z in numbers]], dtype=torch.int64).reshape(1, count),
        sender=torch.from_numpy(sender).reshape(1, count, slots),
        reverse=torch.from_numpy(reverse).reshape(1, count, slots),
        vector=torch.from_numpy(vector).reshape(1, count, slots, 3),
        structure=torch.zeros(1, count, dtype=torch.int64),
        num_atoms=torch.tensor([[count]], dtype=torch.int64),
        volume=torch.tensor([[volume]], dtype=torch.float64),
    )


def pad_graph(graph: Graph, num_atoms: int, num_slots: int) -> Graph:
    """The same graph with static shapes: `num_atoms` atoms of `num_slots` slots each.

    The added atoms have no neighbours and belong to no structure (index `num_structures`); other results stay the same.
    """
    groups, atoms, slots = graph.sender.shape
    if num_atoms < atoms or num_slots < slots:
        raise ValueError(f"cannot pad {atoms} atoms with {slots} slots down to {num_atoms} with {num_slots}")
    far = graph.vector.new_tensor([EMPTY_SLOT_DISTANCE, 0.0, 0.0])
    own = torch.arange(num_atoms, device=graph.sender.device)
    species = graph.species.new_zeros(groups, num_atoms)
    structure = graph.structure.new_full((groups, num_atoms), graph.num_structures)
    sender = own[None, :, None].repeat(groups, 1, num_slots)
    reverse = torch.arange(num_atoms * num_slots, device=own.device).reshape(1, num_atoms, num_slots)
    reverse = reverse.repeat(groups, 1, 1)
    vector = far.repeat(groups, num_atoms, num_slots, 1)

    species[:, :atoms], structure[:, :atoms] = graph.species, graph.structure
    sender[:, :atoms, :slots], vector[:, :atoms, :slots] = graph.sender, graph.vector
    reverse[:, :atoms, :slots] = graph.reverse // slots * num_slots + graph.reverse % slots
    return Graph(species, sender, reverse, vector, structure, graph.num_atoms, graph.volume)


def concatenate(graphs: Sequence[Graph]) -> Graph:
    """One graph of several (each with the same G): atoms one after the other, slots widened to the largest."""
    slots = max(graph.sender.shape[2] for graph in graphs)
    wide = [g if g.sender.shape[2] == slots else pad_graph(g, g.species.shape[1], slots) for g in graphs]
    atoms = np.cumsum([0] + [graph.species.shape[1] for graph in wide])
    total = sum(graph.num_structures for graph in wide)
    structures = np.cumsum([0] + [graph.num_structures for graph in wide])
    structure = [
        # padding atoms still belong to no structure
        torch.where(graph.real, graph.structure + int(first), total)
        for graph, first in zip(wide, structures)
    ]
    return Graph(
        species=torch.cat([graph.species for graph in wide], 1),
        sender=torch.cat([graph.sender + int(first) for graph, first in zip(wide, atoms)], 1),
        reverse=torch.cat([graph.reverse + int(first) * slots for graph, first in zip(wide, atoms)], 1),
        vector=torch.cat([graph.vector for graph in wide], 1),
        structure=torch.cat(structure, 1),
        num_atoms=torch.cat([graph.num_atoms for graph in wide], 1),
        volume=torch.cat([graph.volume for graph in wide], 1),
    )
