"""The neighbour list of `neighbors.py` as torch tensors, found on the device where the positions are.

Space is cut into bins about half as wide as the cutoff (linked cells), and atoms are sorted by bin.  Neighbours of an
atom are in its own bin or in one of those around it (the stencil), so that at constant density the work is
proportional to the number of atoms.  A bin beyond the end of the cell is one inside it, moved by a lattice
translation.  Where the cell is thinner than the cutoff, the stencil is wound around it several times.

* Bins are numbers to sort and to search by, not a table.  Empty space costs nothing, however far apart the atoms are.
* Of the two directions of a pair only one is searched: half of the stencil.  The other is its mirror image, so that
  an edge within the cutoff has its opposite within the cutoff, whatever the rounding.
* Bins, and then candidate pairs, are taken `at_once` at a time: at most 250 bytes of temporary memory each, 0.25 GB
  for the default of 2^20.  Beyond that there is the list, 72 bytes an edge, and three times that while it is sorted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from equibayes.data.graph import EMPTY_SLOT_DISTANCE, Graph
from equibayes.errors import InputError
from equibayes.plural import counted

AT_ONCE = 1 << 20
ROOM = 1e-6  # relative margin of the bins, so that no pair is lost by rounding
MAX_BINS = 1 << 20  # along one direction, so that the number of a bin fits into 63 bits
BINS_PER_CUTOFF = 2  # half as many candidate pairs as with 1, and still fewer bins to look into than pairs to measure
MAX_STENCIL = 1 << 21  # bins around one; exceeded if a cell is about 60 times thinner than the cutoff in all directions


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
    bins = _into_bins(positions, _on_host(cell, np.float64), _on_host(pbc, np.bool_), r_max)
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


@dataclass(frozen=True)
class _Bins:
    """n atoms in M occupied bins; a bin has three whole coordinates, from 0 to count - 1."""

    positions: torch.Tensor  # [n, 3] as given, Å
    lattice: torch.Tensor  # [3, 3] Å; zeros where not periodic
    home: torch.Tensor  # [n, 3] lattice translation that brings the cell to where the atom is
    atom: torch.Tensor  # [n] atoms, sorted by bin
    number: torch.Tensor  # [M] the bins' coordinates as one number, rising
    first: torch.Tensor  # [M] where a bin's atoms begin in `atom`
    inside: torch.Tensor  # [M] how many they are
    bin: torch.Tensor  # [M, 3] the bins' coordinates
    count: torch.Tensor  # [3] bins along each direction
    aperiodic: torch.Tensor  # [3] bool
    stencil: torch.Tensor  # [S, 3] half of the bins around a bin that may hold its neighbours, the bin itself first
    images: tuple[int, int, int]  # a search meets lattice translations from -images to +images

    @property
    def image_count(self) -> int:
        x, y, z = self.images
        return (2 * x + 1) * (2 * y + 1) * (2 * z + 1)


class _Blocks(NamedTuple):
    """Pairs of bins [P]."""

    receiver: torch.Tensor
    sender: torch.Tensor
    image: torch.Tensor  # [P, 3] the lattice translation of the sender
    same: torch.Tensor  # whether both are the same bin


def _into_bins(positions: torch.Tensor, cell: np.ndarray, pbc: np.ndarray, r_max: float) -> _Bins:
    device = positions.device

    def there(value: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(value)).to(device)

    box = box_of(cell, pbc)
    inverse = np.linalg.inv(box)
    fraction = positions @ there(inverse)
    low, high = torch.stack([fraction.amin(0), fraction.amax(0)]).cpu().numpy()
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise InputError("positions are not finite numbers; check the structure before this one")
    # where not periodic, the box has a vector of 1 Å at right angles to the rest: fractions are Å there
    width = r_max * (1 + ROOM)
    extent = np.where(pbc, 1.0 / np.linalg.norm(inverse, axis=0), high - low)
    count = np.clip(extent // (width / BINS_PER_CUTOFF), 1, MAX_BINS).astype(np.int64)
    height = np.where(pbc, extent / count, np.maximum(extent / count, width / BINS_PER_CUTOFF))
    bin_vectors = box * np.where(pbc, 1.0 / count, height)[:, None]
    stencil = _stencil(bin_vectors, height, width, np.where(pbc, np.inf, count - 1))
    reach = np.abs(stencil).max(0)
    images = np.where(pbc, (count - 1 + reach) // count, 0)
    if len(positions) ** 2 * int(np.prod(2 * images + 1)) >= 1 << 63:
        raise InputError(
            f"{counted(len(positions), 'atom')} in a cell this thin cannot be numbered; use a smaller structure"
        )
    home = torch.where(there(pbc), fraction.floor(), 0.0)
    steps = (fraction - home - there(np.where(pbc, 0.0, low))) * there(np.where(pbc, count, 1.0 / height))
    coordinate = torch.minimum(steps.long().clamp(min=0), there(count - 1))
    sorted_number, atom = torch.sort(_number(coordinate, there(count)), stable=True)
    number, inside = torch.unique_consecutive(sorted_number, return_counts=True)
    first = inside.cumsum(0) - inside
    return _Bins(
        positions=positions,
        lattice=there(np.where(pbc[:, None], cell, 0.0)),
        home=home.long(),
        atom=atom,
        number=number,
        first=first,
        inside=inside,
        bin=coordinate[atom[first]],
        count=there(count),
        aperiodic=there(~pbc),
        stencil=there(stencil),
        images=(int(images[0]), int(images[1]), int(images[2])),
    )


def box_of(cell: np.ndarray, pbc: np.ndarray) -> np.ndarray:
    """[3, 3] Å: the periodic lattice vectors, completed by unit vectors at right angles to them and to each other."""
    if not np.isfinite(cell[pbc]).all() or np.linalg.matrix_rank(cell[pbc]) < pbc.sum():
        problem = f"cell {cell.tolist()} Å: its periodic vectors do not span a box"
        raise InputError(f"{problem}; give a cell with a volume, or set pbc to False")
    if not pbc.any():
        return np.eye(3)
    box = cell.copy()
    box[~pbc] = np.linalg.svd(cell[pbc])[2][pbc.sum() :]
    return box


def _stencil(bin_vectors: np.ndarray, height: np.ndarray, width: float, furthest: np.ndarray) -> np.ndarray:
    """[S, 3]: bins that may hold neighbours of the atoms in bin 0; of two opposite bins only the later one."""
    # the second term keeps rounding from adding a layer of bins that is not needed
    reach = np.minimum(np.ceil(width / height - 0.1 * ROOM), furthest)
    if np.prod(2 * reach + 1) > MAX_STENCIL:
        problem = f"the cell is too thin for a cutoff of {width:.3g} Å: {height.min():.3g} Å"
        raise InputError(f"{problem}; repeat it, or check its unit of length")
    axes = [np.arange(-r, r + 1, dtype=np.int64) for r in reach.astype(np.int64)]
    every = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    later = every[len(every) // 2 :]
    corners = np.array([[1, 1, 1], [1, 1, -1], [1, -1, 1], [1, -1, -1]])
    # two atoms are at least as far apart as the corners of their bins, less the longest diagonal of a bin
    diagonal = np.linalg.norm(corners @ bin_vectors, axis=1).max()
    return later[np.linalg.norm(later @ bin_vectors, axis=1) <= width + diagonal]


def _in_turn(total: int, at_once: int, device: torch.device) -> Iterator[torch.Tensor]:
    """The numbers from 0 to total - 1, `at_once` at a time."""
    for begin in range(0, total, at_once):
        yield torch.arange(begin, min(begin + at_once, total), device=device)


def _neighbouring_bins(bins: _Bins, at_once: int) -> Iterator[_Blocks]:
    """All pairs of occupied bins that may hold neighbours, by the number of (bin, place in its stencil)."""
    total = len(bins.number) * len(bins.stencil)
    return (_some_neighbouring_bins(bins, some) for some in _in_turn(total, at_once, bins.number.device))


def _some_neighbouring_bins(bins: _Bins, pair: torch.Tensor) -> _Blocks:
    receiver, step = pair // len(bins.stencil), pair % len(bins.stencil)
    coordinate = bins.bin[receiver] + bins.stencil[step]
    image = coordinate.div(bins.count, rounding_mode="floor")
    number = _number(coordinate - image * bins.count, bins.count)
    sender = torch.searchsorted(bins.number, number).clamp_(max=len(bins.number) - 1)
    exists = (bins.number[sender] == number) & ~((image != 0) & bins.aperiodic).any(1)
    found = exists.nonzero().squeeze(1)
    return _Blocks(receiver[found], sender[found], image[found], step[found] == 0)


def _near_pairs(bins: _Bins, blocks: _Blocks, r_max: float, at_once: int) -> list[torch.Tensor]:
    """Keys of the pairs of atoms within the cutoff."""
    end = (bins.inside[blocks.receiver] * bins.inside[blocks.sender]).cumsum(0)
    total = int(end[-1]) if len(end) else 0
    return [_some_near_pairs(bins, blocks, r_max, end, some) for some in _in_turn(total, at_once, end.device)]


def _some_near_pairs(
    bins: _Bins, blocks: _Blocks, r_max: float, end: torch.Tensor, candidate: torch.Tensor
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


def _key(bins: _Bins, receiver: torch.Tensor, sender: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
    return (receiver * len(bins.positions) + sender) * bins.image_count + image


def _parts(bins: _Bins, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    pair, image = key // bins.image_count, key % bins.image_count
    return pair // len(bins.positions), pair % len(bins.positions), image


def _opposite(bins: _Bins, key: torch.Tensor) -> torch.Tensor:
    receiver, sender, image = _parts(bins, key)
    return _key(bins, sender, receiver, bins.image_count - 1 - image)


def _both_ways(bins: _Bins, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys of these edges and their opposites in rising order, and the index of the opposite of each."""
    # keys are distinct: there is only one order
    rising, order = torch.sort(torch.cat([key, _opposite(bins, key)]))
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return rising, place[(order + len(key)) % max(len(order), 1)]


def _edges_of(bins: _Bins, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Receiver, sender and lattice translation (between positions as given)."""
    receiver, sender, image = _parts(bins, key)
    _, y, z = bins.images
    wide_y, wide_z = 2 * y + 1, 2 * z + 1
    moved = torch.stack([image // (wide_y * wide_z), image // wide_z % wide_y, image % wide_z], 1)
    moved -= moved.new_tensor(bins.images)
    return receiver, sender, moved + bins.home[receiver] - bins.home[sender]


def _image_number(bins: _Bins, image: torch.Tensor) -> torch.Tensor:
    """[P, 3] from -images to +images as one number; opposite ones add up to the largest."""
    x, y, z = bins.images
    return ((image[:, 0] + x) * (2 * y + 1) + image[:, 1] + y) * (2 * z + 1) + image[:, 2] + z


def _number(coordinate: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Bin coordinates [P, 3] as one number."""
    return (coordinate[:, 0] * count[1] + coordinate[:, 1]) * count[2] + coordinate[:, 2]


def _vectors(bins: _Bins, receiver: torch.Tensor, sender: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """[P, 3] Å.  Term by term and not as a matrix product, whose rounding may depend on how many rows there are."""
    translation = shift[:, :1] * bins.lattice[0]
    translation += shift[:, 1:2] * bins.lattice[1]
    translation += shift[:, 2:] * bins.lattice[2]
    vector = bins.positions[sender] - bins.positions[receiver]
    return vector.add_(translation)


def _on_host(value: torch.Tensor | np.ndarray, dtype: type) -> np.ndarray:
    return np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value, dtype=dtype)
