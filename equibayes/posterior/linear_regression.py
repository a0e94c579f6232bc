"""Exact Bayesian linear regression in function space, in float64.

Labels r [R] are linear in the unknown δ [P] with rows J [R, P]:

    r = J δ + n,     δ ~ N(0, s² I),     n ~ N(0, s² Λ),  Λ = diag(noise)

With few labels everything follows from the Gram matrix K = J Jᵀ [R, R]:

    a = (K + Λ)⁻¹ r,     E[δ] = Jᵀ a,     s² = rᵀ a / R          (s² maximises the evidence)

A draw of δ given r (Matheron's rule): draw s ε and n from the prior, and correct them by what they get wrong,

    δ = s ε + Jᵀ (K + Λ)⁻¹ (r − s (J ε + √Λ ν)),     ε, ν ~ N(0, I).
"""

from dataclasses import dataclass

import torch

from equibayes.errors import InputError

JITTER, LARGEST_JITTER = 1e-10, 1e-4
"""Relative to the mean of K's diagonal: rounding of the Jacobian must not make K indefinite."""


@dataclass(frozen=True, eq=False)
class Regression:
    """
    factor    [R, R]  Cholesky factor of K + Λ
    residual  [R]     r
    noise     [R]     Λ
    weights   [R]     a
    scale             s²
    """

    factor: torch.Tensor
    residual: torch.Tensor
    noise: torch.Tensor
    weights: torch.Tensor
    scale: float

    @classmethod
    def of(cls, gram: torch.Tensor, residual: torch.Tensor, noise: torch.Tensor) -> "Regression":
        """gram K [R, R], residual r [R], noise Λ [R]; float64."""
        factor = _factorise(gram, noise)
        weights = torch.cholesky_solve(residual[:, None], factor)[:, 0]
        return cls(factor, residual, noise, weights, float(residual @ weights) / len(residual))

    def draw(self, projected: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
        """(K + Λ)⁻¹ (r − s (J ε + √Λ ν)) [R, n], which Jᵀ turns into the correction of s ε; J ε and ν are [R, n]."""
        wrong = self.scale**0.5 * (projected + self.noise.sqrt()[:, None] * normal)
        return torch.cholesky_solve(self.residual[:, None] - wrong, self.factor)

    def variance(self, cross: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Posterior variance of J' δ [S], from J' Jᵀ [S, R] and the diagonal of J' J'ᵀ [S]."""
        half = torch.linalg.solve_triangular(self.factor, cross.mT, upper=False)
        return self.scale * (own - half.square().sum(0))


def gram(rows: torch.Tensor, others: torch.Tensor | None = None, at_once: int = 4096) -> torch.Tensor:
    """J J'ᵀ in float64 from float32 rows [R, P] and [S, P] (default: the same), some columns at a time."""
    others = rows if others is None else others
    result = torch.zeros(len(rows), len(others), dtype=torch.float64)
    for left, right in zip(rows.split(at_once, 1), others.split(at_once, 1)):
        result.addmm_(left.double(), right.double().mT)
    return result


def _factorise(gram: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Cholesky factor of K + Λ, with the least jitter that makes it positive definite."""
    jitter = 0.0
    while jitter <= LARGEST_JITTER:
        matrix = gram + torch.diag(noise + jitter * gram.diagonal().mean())
        factor, info = torch.linalg.cholesky_ex(matrix)
        if not info and bool(factor.isfinite().all()):
            return factor
        jitter = max(JITTER, 10 * jitter)
    raise InputError(
        "the labels are too alike for the model to tell apart (singular Gram matrix): remove repeated frames"
    )
