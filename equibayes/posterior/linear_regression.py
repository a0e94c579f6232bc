"""Exact Bayesian linear regression in float64, in two forms that give the same posterior.

Labels r [R] are linear in the unknown u [m] with rows J [R, m]:

    r = J u + n,     u ~ N(0, s² I),     n ~ N(0, s² Λ),  Λ = diag(noise)

s² maximises the evidence.  Few labels, `FewLabels`: everything follows from the Gram matrix K = J Jᵀ [R, R],

    a = (K + Λ)⁻¹ r,     E[u] = Jᵀ a,     s² = rᵀ a / R

A draw of u given r (Matheron's rule): draw s ε and n from the prior, and correct them by what they get wrong,

    u = E[u] + s [ε − Jᵀ (K + Λ)⁻¹ (J ε + √Λ ν)],     ε, ν ~ N(0, I).

Many labels, `ManyLabels`: from the normal equations with A = Jᵀ Λ⁻¹ J [m, m] and b = Jᵀ Λ⁻¹ r, which are sums over
labels, so that no more than some of them are ever in memory,

    E[u] = (A + I)⁻¹ b,     s² = (rᵀ Λ⁻¹ r − bᵀ E[u]) / R,     u = E[u] + s L⁻ᵀ ε,  L Lᵀ = A + I.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from equibayes.errors import InputError

JITTER, LARGEST_JITTER = 1e-10, 1e-4
"""Relative to the mean of K's diagonal: rounding of the Jacobian must not make K indefinite."""
PANELS = 8
"""A symmetric product is computed in so many panels, of which those above the diagonal are left out."""
AT_ONCE = 1024
"""Columns that are converted to float64 at once."""
Progress = Callable[[Iterable[int]], Iterable[int]]
"""Wraps a loop to show how far it is."""


@dataclass(frozen=True, eq=False)
class Solution:
    """
    mean        [m]     E[u]
    deviations  [n, m]  draws of u − E[u]
    scale               s²
    """

    mean: torch.Tensor
    deviations: torch.Tensor
    scale: float

    def draws(self) -> torch.Tensor:
        """[2n, m] each deviation with either sign, so that the mean of the draws is E[u]."""
        return torch.stack([self.mean + self.deviations, self.mean - self.deviations], 1).flatten(0, 1)


class FewLabels:
    """All labels at once; more can be added."""

    def __init__(
        self, rows: torch.Tensor, residual: torch.Tensor, noise: torch.Tensor, progress: Progress = iter
    ) -> None:
        """J [R, m], r [R] and Λ [R]."""
        self.rows, self.residual, self.noise = rows, residual.double(), noise.double()
        self.gram = gram(rows, progress)

    def __len__(self) -> int:
        return len(self.residual)

    def add(self, rows: torch.Tensor, residual: torch.Tensor, noise: torch.Tensor) -> None:
        """More labels, whose rows border the Gram matrix."""
        across = product(rows, self.rows)
        self.gram = torch.cat([torch.cat([self.gram, across.mT], 1), torch.cat([across, gram(rows)], 1)])
        self.rows = torch.cat([self.rows, rows])
        self.residual, self.noise = torch.cat([self.residual, residual]), torch.cat([self.noise, noise])

    def solve(
        self,
        factors: Sequence[float],
        normal: torch.Tensor,
        of_labels: torch.Tensor | None = None,
        progress: Progress = iter,
    ) -> list[Solution]:
        """With Λ multiplied by each of some factors; ε [n, m] and ν [n, R]."""
        assert of_labels is not None
        projected, found, scales = product(normal, self.rows), [], []
        for number in progress(range(len(factors))):
            noise = factors[number] * self.noise
            wrong = projected + noise.sqrt() * of_labels
            found.append(_solve(self.gram, noise, torch.cat([self.residual[None], wrong])))
            scales.append(float(self.residual @ found[-1][0]) / len(self.residual))
        moved = product(torch.cat(found), self.rows.mT).reshape(len(factors), -1, normal.shape[1])
        return [Solution(each[0], s**0.5 * (normal - each[1:]), s) for each, s in zip(moved, scales)]

    def left_out(self, factor: float, groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """How wrong each label [R] is predicted by those of the other groups, and the variance of that.

        groups [R]: numbers; Λ is multiplied by `factor`.  With P = (K + Λ)⁻¹, of a group g: P_gg⁻¹ (P r)_g, s² P_gg⁻¹.
        """
        inverse = _solve(self.gram, factor * self.noise, torch.eye(len(self), dtype=torch.float64))
        solved = inverse @ self.residual
        error, variance = torch.empty_like(solved), torch.empty_like(solved)
        for group in groups.unique():
            own = (groups == group).nonzero()[:, 0]
            block = torch.linalg.inv(inverse[own][:, own])
            error[own], variance[own] = block @ solved[own], block.diagonal()
        return error, variance * float(self.residual @ solved) / len(self)


class ManyLabels:
    """Sums over labels."""

    def __init__(self, size: int) -> None:
        self.matrix = torch.zeros(size, size, dtype=torch.float64)
        self.vector = torch.zeros(size, dtype=torch.float64)
        self.squares, self.count = 0.0, 0

    def __len__(self) -> int:
        return self.count

    def add(self, rows: torch.Tensor, residual: torch.Tensor, noise: torch.Tensor) -> None:
        """Some labels: J [R, m], r [R] and Λ [R]."""
        inverse = noise.double().rsqrt()
        white, wrong = inverse[:, None] * rows.double(), inverse * residual
        add_gram(self.matrix, white.mT)
        self.vector += white.mT @ wrong
        self.squares, self.count = self.squares + float(wrong @ wrong), self.count + len(wrong)

    def solve(
        self,
        factors: Sequence[float],
        normal: torch.Tensor,
        of_labels: torch.Tensor | None = None,
        progress: Progress = iter,
    ) -> list[Solution]:
        """As of `FewLabels`; draws need no ν."""
        return [self._solve(factors[number], normal.double()) for number in progress(range(len(factors)))]

    def _solve(self, factor: float, normal: torch.Tensor) -> Solution:
        precision = self.matrix / factor
        precision.diagonal().add_(1.0)
        cholesky = torch.linalg.cholesky(precision)
        mean = torch.cholesky_solve(self.vector[:, None] / factor, cholesky)[:, 0]
        scale = max(0.0, (self.squares - float(self.vector @ mean)) / factor / self.count)
        spread = torch.linalg.solve_triangular(cholesky.mT, normal.mT, upper=True).mT
        return Solution(mean, scale**0.5 * spread, scale)


def gram(rows: torch.Tensor, progress: Progress = iter) -> torch.Tensor:
    """J Jᵀ in float64."""
    result = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for start in progress(range(0, rows.shape[1], AT_ONCE)):
        add_gram(result, rows[:, start : start + AT_ONCE].double())
    return result


def add_gram(result: torch.Tensor, rows: torch.Tensor) -> None:
    """Add J Jᵀ to a symmetric matrix: panels below the diagonal are computed, the others copied."""
    size = max(256, -(-len(rows) // PANELS))
    for start in range(0, len(rows), size):
        own, rest = slice(start, start + size), slice(start, None)
        result[rest, own].addmm_(rows[rest], rows[own].mT)
        result[own, rest] = result[rest, own].mT.clone()


def product(left: torch.Tensor, right: torch.Tensor, at_once: int = AT_ONCE) -> torch.Tensor:
    """J J'ᵀ in float64, from [R, m] and [S, m], some columns at a time."""
    result = torch.zeros(len(left), len(right), dtype=torch.float64)
    for some, others in zip(left.split(at_once, 1), right.split(at_once, 1)):
        result.addmm_(some.double(), others.double().mT)
    return result


def _solve(gram_matrix: torch.Tensor, noise: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """(K + Λ)⁻¹ applied to rows [n, R], with the least jitter that makes the matrix positive definite."""
    jitter = 0.0
    while jitter <= LARGEST_JITTER:
        matrix = gram_matrix.clone()
        matrix.diagonal().add_(noise + jitter * gram_matrix.diagonal().mean())
        factor, info = torch.linalg.cholesky_ex(matrix)
        if not info and bool(factor.diagonal().isfinite().all()):  # NaN reaches the diagonal
            return torch.cholesky_solve(right.mT, factor).mT
        jitter = max(JITTER, 10 * jitter)
    raise InputError(
        "the labels are too alike for the model to tell apart (singular Gram matrix): remove repeated frames"
    )
