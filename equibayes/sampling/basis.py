"""The basis of a matrix mass: the eigenvectors of the Kronecker factors of the gradients of weight matrices.

A diagonal mass sees every weight by itself.  The gradients G [m, n] of a weight matrix are strongly correlated, and
their covariance is close to a Kronecker product of two small matrices,

    L = ⟨G Gᵀ⟩ [m, m],     R = ⟨Gᵀ G⟩ [n, n]        (running means).

With their eigenvectors Q_L and Q_R, the weights in the *basis* are W' = Q_Lᵀ W Q_R, where the gradients are nearly
uncorrelated, and a diagonal mass (``mass.py``) in that basis is a mass matrix M = Q diag(m) Qᵀ in the original one
(Gupta et al. 2018, Vyas et al. 2024, for optimisers).  Any constant symmetric positive M leaves the posterior
unchanged; like m, the basis adapts during burn-in and is then held constant.

Blocks.  A rotation costs 4mn(m+n) operations per step.  Of the factors of long sides only the diagonal blocks of up to
``SIDE`` rows are therefore kept, and Q_L and Q_R are block-diagonal.  Vectors stay diagonal.

Gathering and refreshing.  Gradients change quickly at first, slowly later.  In every e-fold of updates of the mass,
``GATHERS`` gradients enter the running means, with the decay ``DECAY``, and ``REFRESHES`` times the eigenvectors follow
by one power step and an orthogonalisation,

    Q ← qr(A Q),     A = L/(mean(diag L) + ε²) + ``SHRINKAGE``·I,

where the diagonal of the triangular factor is positive, so that columns keep order and sign, and the second moments
gathered in the old basis stay meaningful in the new one.  The first is Q = I.  The shrinkage keeps directions without
gradients where they are; so does ε, which is added to the mass, for gradients far below it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, log, prod

import torch

SIDE = 32
GATHERS, DECAY = 100, 0.8
REFRESHES, SHRINKAGE = 10, 0.1


@dataclass(frozen=True)
class Block:
    """Weight matrices [count, rows, columns] in the flat buffer, from entry ``first`` on.

    row_side, column_side  size of the diagonal blocks of their factors
    left, right            where these lie in a flat buffer of factors or eigenvectors:
                           [count, rows/row_side, row_side, row_side], and likewise of the columns
    """

    first: int
    count: int
    rows: int
    columns: int
    row_side: int
    column_side: int
    left: slice
    right: slice

    def matrices(self, flat: torch.Tensor) -> torch.Tensor:
        """[K, P] → a view [K, count, rows, columns]."""
        place = slice(self.first, self.first + self.count * self.rows * self.columns)
        return flat[:, place].unflatten(1, (self.count, self.rows, self.columns))

    def left_factors(self, flat: torch.Tensor) -> torch.Tensor:
        """[K, B] → a view [K, count, rows/side, side, side]."""
        return flat[:, self.left].unflatten(1, (self.count, -1, self.row_side, self.row_side))

    def right_factors(self, flat: torch.Tensor) -> torch.Tensor:
        """[K, B] → a view [K, count, columns/side, side, side]."""
        return flat[:, self.right].unflatten(1, (self.count, -1, self.column_side, self.column_side))

    def of_rows(self, X: torch.Tensor) -> torch.Tensor:
        """[…, rows, columns] → a view […, rows/side, side, columns]."""
        return X.unflatten(-2, (-1, self.row_side))

    def of_columns(self, X: torch.Tensor) -> torch.Tensor:
        """[…, rows, columns] → a view […, columns/side, rows, side]."""
        return X.unflatten(-1, (-1, self.column_side)).transpose(-3, -2)


Blocks = Sequence[Block]


def matrix_blocks(shapes: Sequence[tuple[int, ...]]) -> tuple[Block, ...]:
    """The matrices among parameters with these shapes, which follow each other in the flat buffer; the last two axes
    are those of a matrix."""
    blocks, first, start = [], 0, 0
    for shape in shapes:
        if len(shape) >= 2 and min(shape[-2:]) > 1:
            count, (rows, columns) = prod(shape[:-2]), shape[-2:]
            row_side, column_side = block_size(rows), block_size(columns)
            middle = start + count * rows * row_side
            end = middle + count * columns * column_side
            places = slice(start, middle), slice(middle, end)
            blocks.append(Block(first, count, rows, columns, row_side, column_side, *places))
            start = end
        first += prod(shape)
    return tuple(blocks)


def block_size(side: int) -> int:
    """The largest divisor up to SIDE."""
    return max(size for size in range(1, SIDE + 1) if side % size == 0)


def factors_of(blocks: Blocks, flat: torch.Tensor) -> Iterator[torch.Tensor]:
    """Views [K, count, number, side, side] of all factors or eigenvectors in a flat buffer [K, B]."""
    for block in blocks:
        yield block.left_factors(flat)
        yield block.right_factors(flat)


def factor_size(blocks: Blocks) -> int:
    """B, entries of a flat buffer of factors or eigenvectors."""
    return max((block.right.stop for block in blocks), default=0)


def gathers(updates: int) -> bool:
    """Whether the gradient of the next update of the mass, after so many, enters the factors."""
    return _passes_integer(GATHERS, updates)


def refreshes(updates: int) -> bool:
    """Whether the basis follows then: where it does, a gradient has been gathered too."""
    return _passes_integer(REFRESHES, updates)


def _passes_integer(rate: int, updates: int) -> bool:
    """rate·ln(1 + updates) rises above an integer, or is 0."""
    return updates == 0 or floor(rate * log(updates + 1)) > floor(rate * log(updates))


def into_basis(blocks: Blocks, basis: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Qᵀ x: X' = Q_Lᵀ X Q_R for each matrix X of [K, P]."""
    x = x.clone()
    for block in blocks:
        _rotate(block, x, block.left_factors(basis).mT, block.right_factors(basis))
    return x


def from_basis(blocks: Blocks, basis: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Q x, the inverse of `into_basis`."""
    x = x.clone()
    for block in blocks:
        _rotate(block, x, block.left_factors(basis), block.right_factors(basis).mT)
    return x


def _rotate(block: Block, x: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """X ← left X right, in place."""
    X = block.matrices(x)
    block.of_rows(X).copy_(left @ block.of_rows(X))
    block.of_columns(X).copy_(block.of_columns(X) @ right)


def gather(blocks: Blocks, factors: torch.Tensor, gradient: torch.Tensor) -> None:
    """Update the running means L and R [K, B] with the gradients [K, P], in place."""
    for block in blocks:
        rows, columns = block.of_rows(block.matrices(gradient)), block.of_columns(block.matrices(gradient))
        block.left_factors(factors).mul_(DECAY).add_(rows @ rows.mT, alpha=1 - DECAY)
        block.right_factors(factors).mul_(DECAY).add_(columns.mT @ columns, alpha=1 - DECAY)


def refresh(blocks: Blocks, factors: torch.Tensor, basis: torch.Tensor, epsilon: float) -> None:
    """Let the eigenvectors [K, B] follow the factors, in place."""
    for factor, Q in zip(factors_of(blocks, factors), factors_of(blocks, basis)):
        # a chain that has diverged is restored later; until then NaN must not stop the others
        factor = factor.double().nan_to_num(0.0, 0.0, 0.0)
        scale = factor.diagonal(dim1=-2, dim2=-1).mean(-1) + epsilon**2
        Y = factor / scale[..., None, None] @ Q.double() + SHRINKAGE * Q.double()
        # Y = Q' R with Rᵀ R = Yᵀ Y; accurate in double precision, because the shrinkage bounds the condition of A
        R = torch.linalg.cholesky_ex(Y.mT @ Y, upper=True).L
        Q.copy_(torch.linalg.solve_triangular(R, Y, upper=True, left=False))


def unit_basis(blocks: Blocks, like: torch.Tensor) -> torch.Tensor:
    """Q = I, [K, B]."""
    basis = like.new_zeros(len(like), factor_size(blocks))
    for Q in factors_of(blocks, basis):
        Q.copy_(torch.eye(Q.shape[-1], dtype=like.dtype, device=like.device))
    return basis
