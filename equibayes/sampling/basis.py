"""The basis of a matrix mass: the eigenvectors of the Kronecker factors of the gradients of weight matrices.

A diagonal mass sees every weight by itself.  The gradients G [m, n] of a weight matrix are strongly correlated, and
their covariance is close to a Kronecker product of two small matrices,

    L = ⟨G Gᵀ⟩ [m, m],     R = ⟨Gᵀ G⟩ [n, n]        (running means).

With their eigenvectors Q_L and Q_R, the weights in the *basis* are W' = Q_Lᵀ W Q_R, where the gradients are nearly
uncorrelated, and a diagonal mass (``mass.py``) in that basis is a mass matrix M = Q diag(m) Qᵀ in the original one
(Gupta et al. 2018, Vyas et al. 2024, for optimisers).  Any constant symmetric positive M leaves the posterior
unchanged; like m, the basis adapts during burn-in and is then held constant.

Tiles.  A rotation costs 4mn(m+n) operations per step, so that matrices are cut into tiles with sides of at most
``SIDE``, each with factors of its own.  Vectors stay diagonal.

Gathering.  Every ``GATHER``-th gradient enters the running means, with the decay ``DECAY``; the subsample is unbiased,
since minibatches are drawn independently of the step.

Refreshing.  From time to time the eigenvectors follow the factors by one power step and an orthogonalisation,

    Q ← qr(A Q),     A = L/mean(diag L) + ``SHRINKAGE``·I,

with the signs that make the diagonal of the triangular factor positive, so that columns keep order and sign, and the
second moments gathered in the old basis stay meaningful in the new one.  The first is Q = I.  The shrinkage keeps
directions without gradients where they are.  Gradients change quickly at first, slowly later: there are
``REFRESHES`` refreshes in every e-fold of the gathered gradients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import floor, log
from typing import NamedTuple

import torch

SIDE = 32
GATHER = 4
DECAY = 0.8
SHRINKAGE = 1e-3
REFRESHES = 10


@dataclass(frozen=True)
class Block:
    """Tiles of one shape in the flat buffer.

    firsts   entry of the flat buffer in the upper left corner of each tile
    strides  entries from one of its rows to the next
    left     where the left factors or eigenvectors [T, rows, rows] lie in their buffer;  right: [T, columns, columns]
    """

    firsts: tuple[int, ...]
    strides: tuple[int, ...]
    rows: int
    columns: int
    left: slice
    right: slice

    def index(self, device: torch.device) -> torch.Tensor:
        """Entries of the flat buffer, [T, rows, columns]."""
        return _index(self.firsts, self.strides, self.rows, self.columns, device)

    def matrices(self, flat: torch.Tensor) -> torch.Tensor:
        """[K, P] → a copy [K, T, rows, columns]."""
        return flat[:, self.index(flat.device)]

    def put(self, flat: torch.Tensor, matrices: torch.Tensor) -> None:
        """The inverse, in place."""
        flat[:, self.index(flat.device)] = matrices


Blocks = Sequence[Block]


@cache
def _index(
    firsts: tuple[int, ...], strides: tuple[int, ...], rows: int, columns: int, device: torch.device
) -> torch.Tensor:
    first, stride = (torch.tensor(each, device=device)[:, None, None] for each in (firsts, strides))
    return first + stride * torch.arange(rows, device=device)[:, None] + torch.arange(columns, device=device)


class Side(NamedTuple):
    """The left or the right factors of a block, matrices of ``size`` rows at ``place`` in their buffer."""

    block: Block
    left: bool
    size: int
    place: slice

    def matrices(self, flat: torch.Tensor) -> torch.Tensor:
        """[K, B] → a view [K, T, size, size]."""
        return flat[:, self.place].unflatten(1, (-1, self.size, self.size))


def matrix_blocks(shapes: Sequence[tuple[int, ...]]) -> tuple[Block, ...]:
    """The tiles of parameters with these shapes, which follow each other in the flat buffer; the last two axes are
    those of a matrix."""
    tiles: dict[tuple[int, int], list[tuple[int, int]]] = {}
    first = 0
    for shape in shapes:
        size = torch.Size(shape).numel()
        rows, columns = (tile_size(side) for side in shape[-2:]) if len(shape) >= 2 else (1, 1)
        if min(shape[-2:]) > 1 and rows * columns > 1:
            corners = range(first, first + size, rows * shape[-1])
            found = [(corner + column, shape[-1]) for corner in corners for column in range(0, shape[-1], columns)]
            tiles.setdefault((rows, columns), []).extend(found)
        first += size
    blocks, start = [], 0
    for (rows, columns), found in tiles.items():
        middle = start + len(found) * rows**2
        end = middle + len(found) * columns**2
        firsts, strides = zip(*found)
        blocks.append(Block(firsts, strides, rows, columns, slice(start, middle), slice(middle, end)))
        start = end
    return tuple(blocks)


def tile_size(side: int) -> int:
    """The largest divisor up to SIDE."""
    return max(size for size in range(1, SIDE + 1) if side % size == 0)


def sides(blocks: Blocks) -> Iterator[Side]:
    """All factors, in the order in which they are stored."""
    for block in blocks:
        yield Side(block, True, block.rows, block.left)
        yield Side(block, False, block.columns, block.right)


def factor_size(blocks: Blocks) -> int:
    """B, entries of a flat buffer of factors or eigenvectors."""
    return max((block.right.stop for block in blocks), default=0)


def gathers(updates: int) -> bool:
    """Whether the gradient of the next update of the mass, of which there were so many, enters the factors."""
    return updates % GATHER == 0


def refreshes(updates: int) -> bool:
    """Whether the basis follows then: when REFRESHES·ln(gathered gradients) passes an integer."""
    count = updates // GATHER + 1
    return gathers(updates) and (count == 1 or floor(REFRESHES * log(count)) > floor(REFRESHES * log(count - 1)))


def into_basis(blocks: Blocks, basis: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Qᵀ x: X' = Q_Lᵀ X Q_R for each tile X of [K, P]."""
    x = x.clone()
    for block in blocks:
        left, right = _eigenvectors(block, basis)
        block.put(x, left.mT @ block.matrices(x) @ right)
    return x


def from_basis(blocks: Blocks, basis: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Q x, the inverse of `into_basis`."""
    x = x.clone()
    for block in blocks:
        left, right = _eigenvectors(block, basis)
        block.put(x, left @ block.matrices(x) @ right.mT)
    return x


def _eigenvectors(block: Block, basis: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    left, right = sides([block])
    return left.matrices(basis), right.matrices(basis)


def gather(blocks: Blocks, factors: torch.Tensor, gradient: torch.Tensor) -> None:
    """Update the running means L and R [K, B] with the gradients [K, P], in place."""
    for block in blocks:
        G = block.matrices(gradient)
        for side, product in zip(sides([block]), (G @ G.mT, G.mT @ G)):
            side.matrices(factors).mul_(DECAY).add_(product, alpha=1 - DECAY)


def refresh(blocks: Blocks, factors: torch.Tensor, basis: torch.Tensor) -> None:
    """Let the eigenvectors [K, B] follow the factors, in place."""
    for side in sides(blocks):
        # a chain that has diverged is restored later; until then NaN must not stop the others
        factor, Q = side.matrices(factors).nan_to_num(0.0, 0.0, 0.0), side.matrices(basis)
        scale = factor.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(torch.finfo(factor.dtype).tiny)
        triangular = torch.linalg.qr(factor / scale[..., None, None] @ Q + SHRINKAGE * Q)
        sign = torch.where(triangular.R.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(Q)
        Q.copy_(triangular.Q * sign[..., None, :])


def unit_basis(blocks: Blocks, like: torch.Tensor) -> torch.Tensor:
    """Q = I, [K, B]."""
    basis = like.new_zeros(len(like), factor_size(blocks))
    for side in sides(blocks):
        side.matrices(basis).copy_(torch.eye(side.size, dtype=like.dtype, device=like.device))
    return basis
