"""The neighbour list of `data/neighbors.py` as torch tensors, found on the device where the positions are.

Space is cut into bins about half as wide as the cutoff (linked cells), and atoms are sorted by bin (`bins.py`).
Neighbours of an atom are in its own bin or in one of those around it (the stencil), so that at constant density the
work is proportional to the number of atoms.  A bin beyond the end of the cell is one inside it, moved by a lattice
translation.  Where the cell is thinner than the cutoff, the stencil is wound around it several times.

* Of the two directions of a pair only one is searched: half of the stencil.  The other is its mirror image, so that
  an edge within the cutoff has its opposite within the cutoff, whatever the rounding.
* Bins, and then candidate pairs, are taken `at_once` at a time: at most 250 bytes of temporary memory each, 0.25 GB
  for the default of 2^20.  Beyond that there is the list, 72 bytes an edge, and three times that while it is sorted.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from equibayes.data.graph import EMPTY_SLOT_DISTANCE, Graph
from equibayes.engine.bins import Bins, into_bins, number_of
from equibayes.errors import InputError

AT_ONCE = 1 << 20


class TorchNeighborList(NamedTuple):
    """Directed edges within the cutoff, sorted by receiver, sender and lattice translation; see `NeighborList`."""

    receiver: torch.Tensor  # [E] int64, the atom that collects
    sender: torch.Tensor  # [E] int64, its neighbour
    vector: torch.Tensor  # [E, 3] float64, r_sender - r_receiver (+ lattice translation), Å
    reverse: torch.Tensor  # [E] int64, position of the opposite edge (same atoms, opposite vector)
    shift: torch.Tensor  # [E, 3] int64, the lattice translation in lattice vectors, for the positions as given


@torch.no_grad()
def neighbor_list_torch(
    positions: torch.Tensor,
    cell: torch.Tensor | np.ndarray,
    pbc: torch.Tensor | np.ndarray,
    r_max: float,
    at_once: int = AT_ONCE,
) -> TorchNeighborList:
    """All directed pairs closer than `r_max` (Å) for positions [n, 3], cell [3, 3] (rows) and pbc [3].

    Positions may lie outside the cell; lattice vectors along directions that are not periodic are ignored.
    """
    if not 0 < r_max < float("inf"):
        raise InputError(f"r_max={r_max:g}: must be a positive number, in Å")
    positions = positions.to(torch.float64)
    if len(positions) == 0:
        empty = torch.zeros(0, dtype=torch.int64, device=positions.device)
        return TorchNeighborList(empty, empty, positions.reshape(0, 3), empty, empty.reshape(0, 3))
    bins = into_bins(positions, _on_host(cell, np.float64), _on_host(pbc, np.bool_), r_max)
    blocks = _neighbouring_bins(bins, at_once)
    one_way = torch.cat([key for some in blocks for key in _near_pairs(bins, some, r_max, at_once)])
    key, reverse = _both_ways(bins, one_way)
    receiver, sender, shift = _edges_of(bins, key)
    return TorchNeighborList(receiver, sender, _vectors(bins, receiver, sender, shift), reverse, shift)


@torch.no_grad()
def graph_of_torch_edges(
    edges: TorchNeighborList, species: torch.Tensor, cell: torch.Tensor | np.ndarray, pbc: torch.Tensor | np.ndarray
) -> Graph:
    """The graph of one structure, as by `graph_of_edges`, on the device of the edges; species [n]: type indices."""
    device, count = edges.receiver.device, len(species)
    degree = torch.bincount(edges.receiver, minlength=count)
    slots = max(int(degree.max()), 1) if count else 1
    # edges are sorted by receiver: the slot of an edge is its rank among the edges of its receiver
    first = degree.cumsum(0) - degree
    slot_of_edge = torch.arange(len(edges.receiver), device=device) + (edges.receiver * slots - first[edges.receiver])
    sender = torch.arange(count, device=device).repeat_interleave(slots)
    reverse = torch.arange(count * slots, device=device)
    vector = torch.zeros(count * slots, 3, dtype=torch.float64, device=device)
    vector[:, 0] = EMPTY_SLOT_DISTANCE
    sender[slot_of_edge] = edges.sender
    reverse[slot_of_edge] = slot_of_edge[edges.reverse]
    vector[slot_of_edge] = edges.vector
    volume = torch.linalg.det(torch.as_tensor(cell, dtype=torch.float64, device=device)).abs()
    periodic = torch.as_tensor(pbc, dtype=torch.bool, device=device).all()
    return Graph(
        species=species.to(device, torch.int64).reshape(1, count),
        sender=sender.reshape(1, count, slots),
        reverse=reverse.reshape(1, count, slots),
        vector=vector.reshape(1, count, slots, 3),
        structure=torch.zeros(1, count, dtype=torch.int64, device=device),
        num_atoms=torch.full((1, 1), count, dtype=torch.int64, device=device),
        volume=torch.where(periodic, volume, torch.nan).reshape(1, 1),
    )


class _Blocks(NamedTuple):
    """Pairs of bins [P]."""

    receiver: torch.Tensor
    sender: torch.Tensor
    image: torch.Tensor  # [P, 3] the lattice translation of the sender
    same: torch.Tensor  # whether both are the same bin


def _in_turn(total: int, at_once: int, device: torch.device) -> Iterator[torch.Tensor]:
    """The numbers from 0 to total - 1, `at_once` at a time."""
    for begin in range(0, total, at_once):
        yield torch.arange(begin, min(begin + at_once, total), device=device)


def _neighbouring_bins(bins: Bins, at_once: int) -> Iterator[_Blocks]:
    """All pairs of occupied bins that may hold neighbours, by the number of (bin, place in its stencil)."""
    total = len(bins.number) * len(bins.stencil)
    return (_some_neighbouring_bins(bins, some) for some in _in_turn(total, at_once, bins.number.device))


def _some_neighbouring_bins(bins: Bins, pair: torch.Tensor) -> _Blocks:
    receiver, step = pair // len(bins.stencil), pair % len(bins.stencil)
    coordinate = bins.bin[receiver] + bins.stencil[step]
    image = coordinate.div(bins.count, rounding_mode="floor")
    number = number_of(coordinate - image * bins.count, bins.count)
    sender = torch.searchsorted(bins.number, number).clamp_(max=len(bins.number) - 1)
    exists = (bins.number[sender] == number) & ~((image != 0) & bins.aperiodic).any(1)
    found = exists.nonzero().squeeze(1)
    return _Blocks(receiver[found], sender[found], image[found], step[found] == 0)


def _near_pairs(bins: Bins, blocks: _Blocks, r_max: float, at_once: int) -> list[torch.Tensor]:
    """Keys of the pairs of atoms within the cutoff."""
    end = (bins.inside[blocks.receiver] * bins.inside[blocks.sender]).cumsum(0)
    total = int(end[-1]) if len(end) else 0
    return [_some_near_pairs(bins, blocks, r_max, end, some) for some in _in_turn(total, at_once, end.device)]


def _some_near_pairs(
    bins: Bins, blocks: _Blocks, r_max: float, end: torch.Tensor, candidate: torch.Tensor
) -> torch.Tensor:
    """Of candidates by number: those of block b, one row for each receiver, end before number `end[b]`."""
    block = torch.searchsorted(end, candidate, right=True)
    from_end = end[block] - 1 - candidate
    to, of = blocks.receiver[block], blocks.sender[block]
    row = from_end.div(bins.inside[of], rounding_mode="floor")
    column = from_end - row * bins.inside[of]
    # within one bin every pair comes twice, and every atom meets itself
    once = ~blocks.same[block] | (row < column)
    receiver, sender = bins.atom[bins.first[to] + row], bins.atom[bins.first[of] + column]
    del candidate, from_end, to, of, row, column  # frees memory for the vectors
    shift = blocks.image[block] + bins.home[receiver]
    shift -= bins.home[sender]
    x, y, z = _vectors(bins, receiver, sender, shift).unbind(1)
    distance = (x * x + y * y + z * z).sqrt()
    near = (once & (distance < r_max)).nonzero().squeeze(1)
    return _key(bins, receiver[near], sender[near], _image_number(bins, blocks.image[block[near]]))


# A key is (receiver, sender, image) as one number that sorts in this order.  The image is the lattice translation
# between the atoms as moved into the cell.  For two given atoms it differs from that between the atoms as given by a
# constant: the order is the same, and the numbers stay small however far the atoms have drifted.


def _key(bins: Bins, receiver: torch.Tensor, sender: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
    return (receiver * len(bins.positions) + sender) * bins.image_count + image


def _parts(bins: Bins, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    pair, image = key // bins.image_count, key % bins.image_count
    return pair // len(bins.positions), pair % len(bins.positions), image


def _opposite(bins: Bins, key: torch.Tensor) -> torch.Tensor:
    receiver, sender, image = _parts(bins, key)
    return _key(bins, sender, receiver, bins.image_count - 1 - image)


def _both_ways(bins: Bins, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys of these edges and their opposites in rising order, and the index of the opposite of each."""
    # keys are distinct: there is only one order
    rising, order = torch.sort(torch.cat([key, _opposite(bins, key)]))
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return rising, place[(order + len(key)) % max(len(order), 1)]


def _edges_of(bins: Bins, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Receiver, sender and lattice translation (between positions as given)."""
    receiver, sender, image = _parts(bins, key)
    _, y, z = bins.images
    wide_y, wide_z = 2 * y + 1, 2 * z + 1
    moved = torch.stack([image // (wide_y * wide_z), image // wide_z % wide_y, image % wide_z], 1)
    moved -= moved.new_tensor(bins.images)
    return receiver, sender, moved + bins.home[receiver] - bins.home[sender]


def _image_number(bins: Bins, image: torch.Tensor) -> torch.Tensor:
    """[P, 3] from -images to +images as one number; opposite ones add up to the largest."""
    x, y, z = bins.images
    return ((image[:, 0] + x) * (2 * y + 1) + image[:, 1] + y) * (2 * z + 1) + image[:, 2] + z


def _vectors(bins: Bins, receiver: torch.Tensor, sender: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """[P, 3] Å.  Term by term and not as a matrix product, whose rounding may depend on how many rows there are."""
    translation = shift[:, :1] * bins.lattice[0]
    translation += shift[:, 1:2] * bins.lattice[1]
    translation += shift[:, 2:] * bins.lattice[2]
    vector = bins.positions[sender] - bins.positions[receiver]
    return vector.add_(translation)


def _on_host(value: torch.Tensor | np.ndarray, dtype: type) -> np.ndarray:
    return np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value, dtype=dtype)
