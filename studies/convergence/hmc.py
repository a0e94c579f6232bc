"""Hamiltonian Monte Carlo with Metropolis correction: slow, full-batch, and exact whatever its settings.

The reference of the study; it shares nothing with the package's sampler.  K chains run in one pass, each with its own
momentum, its own trajectory and its own acceptance.

    H(θ, p) = u(θ) + ½ pᵀ Σ p,      leapfrog:   p −= ½ε ∇u,   θ += ε Σ p,   p −= ½ε ∇u

The mass matrix is Σ⁻¹, with Σ an estimate of the posterior's covariance.  The distribution does not depend on Σ (the
acceptance ensures that); a good Σ makes all directions equally wide, so that a dozen leapfrog steps cross the
posterior.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

Target = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""θ [K, P] → u [K], ∇u [K, P]"""


@dataclass
class Settings:
    """step_size ε in units of the posterior's width; leapfrog steps per trajectory; target acceptance of the
    warm-up."""

    step_size: float = 0.09
    leapfrogs: int = 14
    acceptance: float = 0.75


class HMC:
    """K chains.  `factor` [P, P] is any A with A Aᵀ = Σ; in z = A⁻¹θ the target is about as wide as N(0, I)."""

    def __init__(
        self, target: Target, start: torch.Tensor, factor: torch.Tensor, settings: Settings, seed: int
    ) -> None:
        self.target, self.factor, self.settings = target, factor, settings
        self.position = start.clone()
        self.potential, self.gradient = target(self.position)
        self.step_size = settings.step_size
        self.random = torch.Generator().manual_seed(seed)
        self.accepted: list[float] = []

    def run(self, draws: int, *, adapt: bool = False) -> Iterator[torch.Tensor]:
        """Yields θ [K, P] after each trajectory.  With `adapt` the step size follows the acceptance: warm-up only."""
        for _ in range(draws):
            rate = self._trajectory()
            self.accepted.append(rate)
            if adapt:
                self.step_size *= float(torch.exp(torch.tensor(0.3 * (rate - self.settings.acceptance))))
            yield self.position

    def _trajectory(self) -> float:
        """One proposal for every chain; returns the mean acceptance probability."""
        # a random length avoids resonance with the period of a mode; it is independent of the state
        ε = self.step_size * (0.8 + 0.4 * float(torch.rand((), generator=self.random)))
        p = torch.randn(self.position.shape, generator=self.random, dtype=torch.float64)  # momentum of z
        before = self.potential + 0.5 * p.square().sum(1)
        θ, u, g = self.position, self.potential, self.gradient
        for _ in range(self.settings.leapfrogs):
            p = p - 0.5 * ε * (g @ self.factor)
            θ = θ + ε * (p @ self.factor.T)
            u, g = self.target(θ)
            p = p - 0.5 * ε * (g @ self.factor)
        change = before - u - 0.5 * p.square().sum(1)
        probability = change.nan_to_num(nan=-torch.inf).clamp(max=0).exp()
        yes = torch.rand(len(θ), generator=self.random, dtype=torch.float64) < probability
        self.position = torch.where(yes[:, None], θ, self.position)
        self.potential = torch.where(yes, u, self.potential)
        self.gradient = torch.where(yes[:, None], g, self.gradient)
        return float(probability.mean())


def hessian(target: Target, point: torch.Tensor, *, at_once: int = 32, step: float = 1e-5) -> torch.Tensor:
    """∇∇u at θ [P] by central differences of the gradient, [P, P]."""
    size = len(point)
    rows = []
    for first in range(0, size, at_once):
        shift = torch.eye(size, dtype=point.dtype)[first : first + at_once] * step
        rows.append((target(point + shift)[1] - target(point - shift)[1]) / (2 * step))
    full = torch.cat(rows)
    return 0.5 * (full + full.T)


def covariance_factor(curvature: torch.Tensor, floor: float) -> torch.Tensor:
    """A with A Aᵀ = Σ ≈ curvature⁻¹ [P, P]: eigenvalues by their absolute value, and none below `floor`.

    Away from a maximum of the posterior the Hessian is indefinite; |λ| is the length scale there too.
    """
    values, vectors = torch.linalg.eigh(curvature)
    return vectors / values.abs().clamp(min=floor).sqrt()
