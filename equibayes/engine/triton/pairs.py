"""Graphs as the kernels read them: atoms sorted by species, pairs of atoms instead of directed edges."""

from dataclasses import dataclass

import torch

from equibayes.data.graph import EMPTY_SLOT_DISTANCE, Graph


@dataclass(frozen=True)
class Pairs:
    """G groups of N atoms with D slots and Q pairs each; int32, but vectors as in the Graph and order int64."""

    species: torch.Tensor  # [G, N] type of each atom; rows of one type lie together as far as possible
    degree: torch.Tensor  # [G, N] filled slots
    sender: torch.Tensor  # [G, N, D] neighbour in each slot, filled slots first
    pair: (
        torch.Tensor
    )  # [G, N, D] 2·pair + direction: 0 if the vector to the neighbour is the pair's, 1 if its opposite
    vector: torch.Tensor  # [G, Q, 3] Å, from first to second atom of a pair; beyond every cutoff in padding rows
    ends: torch.Tensor  # [G, Q, 2] first and second atom
    order: torch.Tensor  # [G, N] the atom of the Graph that each row holds


def pairs_of(graph: Graph, types: int) -> Pairs:
    """From a Graph on any device; padding atoms come last."""
    groups, atoms, slots = graph.sender.shape
    device = graph.sender.device
    flat = torch.arange(atoms * slots, device=device)
    reverse = graph.reverse.reshape(groups, -1)
    filled = reverse != flat
    forward = flat < reverse  # one of the two directions of a pair
    key = torch.where(graph.real, graph.species, types)
    order = key.argsort(dim=1, stable=True)
    place = torch.empty_like(order).scatter_(1, order, torch.arange(atoms, device=device).expand(groups, -1))
    most = max(int(forward.sum(1).max()), 1) if forward.numel() else 1
    number = (forward.cumsum(1) - 1) * forward  # of a pair, on its forward edge
    number = torch.where(forward, number, number.gather(1, reverse))
    vector = graph.vector.reshape(groups, -1, 3)
    pair_vector = vector.new_zeros(groups, most, 3)
    pair_vector[..., 0] = EMPTY_SLOT_DISTANCE
    ends = torch.zeros(groups, most, 2, dtype=torch.int64, device=device)
    group, edge = forward.nonzero(as_tuple=True)
    pair_vector[group, number[group, edge]] = vector[group, edge]
    sender = place.gather(1, graph.sender.reshape(groups, -1))
    receiver = place.repeat_interleave(slots, 1)
    ends[group, number[group, edge], 0] = receiver[group, edge]
    ends[group, number[group, edge], 1] = sender[group, edge]
    # slots of each atom, filled ones first, atoms in their new order
    filled = filled.reshape(groups, atoms, slots)
    first = (~filled).int().argsort(dim=2, stable=True)
    code = (2 * number + (~forward).long()).reshape(groups, atoms, slots)
    rows = order[..., None].expand(-1, -1, slots)

    def arranged(values: torch.Tensor) -> torch.Tensor:
        values = torch.where(filled, values.reshape(groups, atoms, slots), 0)
        return values.gather(2, first).gather(1, rows).int().contiguous()

    return Pairs(
        species=graph.species.gather(1, order).int().contiguous(),
        degree=filled.sum(2).gather(1, order).int().contiguous(),
        sender=arranged(sender),
        pair=arranged(code),
        vector=pair_vector,
        ends=ends.int(),
        order=order,
    )
