"""The basis of a matrix mass: the eigenvectors of the Kronecker factors of each weight matrix.

A diagonal mass sees every weight by itself.  The gradients G [m, n] of a weight matrix are strongly correlated, and
their covariance is close to a Kronecker product of two small matrices,

    L = ⟨G Gᵀ⟩ [m, m],     R = ⟨Gᵀ G⟩ [n, n]        (running means with decay ``DECAY``).

With their eigenvectors Q_L and Q_R, the weights in the *basis* are W' = Q_Lᵀ W Q_R, where the gradients are nearly
uncorrelated, and a diagonal mass (``mass.py``) in that basis is a mass matrix M = Q diag(m) Qᵀ in the original one
(Gupta et al. 2018, Vyas et al. 2024, for optimisers).  Any constant symmetric positive M leaves the posterior
unchanged; like m, the basis adapts during burn-in and is then held constant.

The eigenvectors follow the factors by one power step and a QR decomposition at a time, Q ← qr(L Q), which keeps the
order of the columns, so that the second moments gathered in the old basis remain meaningful in the new one.

Vectors stay diagonal.  Sides longer than ``LONGEST_SIDE`` keep the unit basis, so a very wide matrix is treated from
its short side alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch

DECAY = 0.95
LONGEST_SIDE = 512


@dataclass(frozen=True)
class Block:
    """Weight matrices [count, rows, columns] in the flat buffer, from entry ``first`` on."""

    first: int
    count: int
    rows: int
    columns: int

    @property
    def place(self) -> slice:
        return slice(self.first, self.first + self.count * self.rows * self.columns)

    def matrices(self, flat: torch.Tensor) -> torch.Tensor:
        """[K, P] → a view [K, count, rows, columns]."""
        return flat[:, self.place].unflatten(1, (self.count, self.rows, self.columns))


Blocks = Sequence[Block]


class Side(NamedTuple):
    """One factor of a block: ``size`` rows or columns; ``place`` in a flat buffer of factors or eigenvectors."""

    block: Block
    left: bool
    size: int
    place: slice

    def matrices(self, flat: torch.Tensor) -> torch.Tensor:
        """[K, B] → a view [K, count, size, size]."""
        return flat[:, self.place].unflatten(1, (self.block.count, self.size, self.size))


def matrix_blocks(shapes: Sequence[tuple[int, ...]]) -> tuple[Block, ...]:
    """The blocks of parameters with these shapes, which follow each other in the flat buffer; the last two axes are
    those of a matrix."""
    blocks, first = [], 0
    for shape in shapes:
        if len(shape) >= 2 and min(shape[-2:]) > 1 and min(shape[-2:]) <= LONGEST_SIDE:
            blocks.append(Block(first, prod(shape[:-2]), *shape[-2:]))
        first += prod(shape)
    return tuple(blocks)


def sides(blocks: Blocks) -> Iterator[Side]:
    """All factors, in the order in which they are stored."""
    first = 0
    for block in blocks:
        for left, size in ((True, block.rows), (False, block.columns)):
            if size <= LONGEST_SIDE:
                end = first + block.count * size * size
                yield Side(block, left, size, slice(first, end))
                first = end


def factor_size(blocks: Blocks) -> int:
    """B, entries of a flat buffer of factors or eigenvectors."""
    return max((side.place.stop for side in sides(blocks)), default=0)


def into_basis(blocks: Blocks, basis: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Qᵀ x: X' = Q_Lᵀ X Q_R for each matrix X of [K, P]."""
    x = x.clone()
    for side in sides(blocks):
        matrices, Q = side.block.matrices(x), side.matrices(basis)
        matrices.copy_(Q.mT @ matrices if side.left else matrices @ Q)
    return x


def from_basis(blocks: Blocks, basis: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Q x, the inverse of `into_basis`."""
    x = x.clone()
    for side in sides(blocks):
        matrices, Q = side.block.matrices(x), side.matrices(basis)
        matrices.copy_(Q @ matrices if side.left else matrices @ Q.mT)
    return x


def gather(blocks: Blocks, factors: torch.Tensor, gradient: torch.Tensor) -> None:
    """Update the running means L and R [K, B] with the gradients [K, P], in place."""
    for side in sides(blocks):
        G = side.block.matrices(gradient)
        product = G @ G.mT if side.left else G.mT @ G
        side.matrices(factors).mul_(DECAY).add_(product, alpha=1 - DECAY)


def refresh(blocks: Blocks, factors: torch.Tensor, basis: torch.Tensor, *, first: bool) -> None:
    """Let the eigenvectors [K, B] follow the factors, in place; the first time they are computed outright."""
    for side in sides(blocks):
        factor, Q = side.matrices(factors), side.matrices(basis)
        # a chain that has diverged is restored later; until then NaN must not stop the others
        Q.copy_(torch.linalg.eigh(factor.nan_to_num()).eigenvectors if first else torch.linalg.qr(factor @ Q).Q)


def unit_basis(blocks: Blocks, like: torch.Tensor) -> torch.Tensor:
    """Q = I, [K, B]."""
    basis = like.new_zeros(len(like), factor_size(blocks))
    for side in sides(blocks):
        side.matrices(basis).copy_(torch.eye(side.size, dtype=like.dtype, device=like.device))
    return basis
