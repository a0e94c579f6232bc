"""Atoms sorted into bins about half as wide as the cutoff, for the search of `neighbors.py`.

Bins are numbers to sort and to search by, not a table.  Empty space costs nothing, however far apart the atoms are.
"""

from dataclasses import dataclass

import numpy as np
import torch

from equibayes.errors import InputError
from equibayes.plural import counted

ROOM = 1e-6  # relative margin of the bins, so that no pair is lost by rounding
MAX_BINS = 1 << 20  # along one direction, so that the number of a bin fits into 63 bits
BINS_PER_CUTOFF = 2  # half as many candidate pairs as with 1, and still fewer bins to look into than pairs to measure
MAX_STENCIL = 1 << 21  # bins around one; exceeded if a cell is about 60 times thinner than the cutoff in all directions


@dataclass(frozen=True)
class Bins:
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


def into_bins(positions: torch.Tensor, cell: np.ndarray, pbc: np.ndarray, r_max: float) -> Bins:
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
    sorted_number, atom = torch.sort(number_of(coordinate, there(count)), stable=True)
    number, inside = torch.unique_consecutive(sorted_number, return_counts=True)
    first = inside.cumsum(0) - inside
    return Bins(
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


def number_of(coordinate: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Bin coordinates [P, 3] as one number."""
    return (coordinate[:, 0] * count[1] + coordinate[:, 1]) * count[2] + coordinate[:, 2]
