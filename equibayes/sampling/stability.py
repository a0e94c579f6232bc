"""Stability of a step: the largest learning rate that the curvature allows.

Both integrators are stable on a Gaussian of curvature λ while κ = γλ/(NM) stays below a limit
(``sghmc.stability_limit``: 4/α for ``baoa``, (4−2α)/α for ``paper``).  The posterior is not Gaussian: while γ decays,
predicted deviations σ shrink, and the curvature, which goes like 1/σ², outgrows the frozen mass.  A γ that was
harmless on the way down can then be fatal when a cycle returns to it in one jump.  So, before γ rises:

1. estimate the largest curvature in units of the mass (``largest_curvature``),
2. cap γ by it (``max_learning_rate``),

and detect a chain that diverges nevertheless (``diverging``), which is cheaper to roll back before NaN than after.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from equibayes.sampling.noise import NoiseKey, standard_normal
from equibayes.sampling.sghmc import SGHMCConfig, stability_limit

VectorMap = Callable[[torch.Tensor], torch.Tensor]
"""[K, P] → [K, P], chain by chain."""


class Curvature(NamedTuple):
    """Top eigenvalue of M^(−1/2) H M^(−1/2) of each chain."""

    value: torch.Tensor
    """λ/M, [K]: the Rayleigh quotient, a lower bound of the top eigenvalue."""
    residual: torch.Tensor
    """‖Av − λv‖, [K]: an eigenvalue lies within this distance of ``value``; large means not converged."""
    direction: torch.Tensor
    """v [K, P], normalised; start the next estimate from it."""


@torch.no_grad()
def largest_curvature(
    hessian_product: VectorMap,
    mass: torch.Tensor,
    *,
    iterations: int = 20,
    start: torch.Tensor | None = None,
    seed: int = 0,
) -> Curvature:
    """Power iteration on A = M^(−1/2) H M^(−1/2), all chains at once; one Hessian product [K, P] per iteration.

    Power iteration finds the eigenvalue largest in size.  If that is negative (a saddle), it is used as a shift and
    the iteration repeated: A − λ_min I has the top of A as its largest.  Only the top matters for stability.
    """
    scale = mass.rsqrt()

    def scaled(v: torch.Tensor) -> torch.Tensor:
        return scale * hessian_product(scale * v)

    if start is None:
        start = standard_normal(NoiseKey(seed, range(len(mass))), 0, mass.shape[1], dtype=mass.dtype).to(mass.device)
    first = _power_iteration(scaled, start, torch.zeros_like(mass[:, 0]), iterations)
    if bool((first.value >= 0).all()):
        return first
    return _power_iteration(scaled, start, first.value.clamp(max=0), iterations)


def _power_iteration(A: VectorMap, start: torch.Tensor, shift: torch.Tensor, iterations: int) -> Curvature:
    """Of A − shift·I; the value returned is the eigenvalue of A."""
    v = start / start.norm(dim=1, keepdim=True)
    for _ in range(iterations):
        w = A(v) - shift[:, None] * v
        v = w / w.norm(dim=1, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)
    w = A(v)
    value = (v * w).sum(1)
    return Curvature(value, (w - value[:, None] * v).norm(dim=1), v)


def finite_difference_product(
    gradient: VectorMap, position: torch.Tensor, relative_step: float | None = None
) -> VectorMap:
    """v ↦ Hv ≈ (∇u(θ+ηv) − ∇u(θ−ηv))/(2η), for a model without second derivatives.  ``gradient`` must be deterministic.

    η moves θ by ``relative_step`` of its norm; by default the cube root of the machine precision.
    """
    share = torch.finfo(position.dtype).eps ** (1 / 3) if relative_step is None else relative_step
    size = position.norm(dim=1, keepdim=True).clamp_min(1.0) * share

    def product(v: torch.Tensor) -> torch.Tensor:
        η = size / v.norm(dim=1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)
        return (gradient(position + η * v) - gradient(position - η * v)) / (2 * η)

    return product


def max_learning_rate(
    curvature: torch.Tensor, data_size: float, config: SGHMCConfig, safety: float = 0.5
) -> torch.Tensor:
    """γ_max = safety·κ_limit·N/(λ/M) for each chain, [K]; infinite where the curvature is not positive.

    ``curvature`` is λ/M.  ``safety`` covers what the estimate leaves out: power iteration approaches from below, and
    the curvature elsewhere on the trajectory differs from that at its start.
    """
    limit = safety * stability_limit(config) * data_size / curvature.clamp_min(torch.finfo(curvature.dtype).tiny)
    return torch.where(curvature > 0, limit, torch.inf)


def diverging(
    kinetic: torch.Tensor,
    potential: torch.Tensor,
    parameters: int,
    temperature: float = 1.0,
    *,
    heating: torch.Tensor | float = 0.0,
    kinetic_factor: float = 2.0,
    potential_rise: float = 2.0,
) -> torch.Tensor:
    """Which chains are diverging, [K] bool, from recent records of kinetic temperature and û, both [H, K].

    A chain is diverging if, in the last record,
    - a value is not finite, or
    - mean(r²) > T·max(kinetic_factor, 1 + 10√(2/P)) and mean(r²) − T > kinetic_factor·heating.  In equilibrium
      mean(r²) = T ± T√(2/P), so for a network (P > 10³) even 1.5 T does not occur by chance.  ``heating`` [K] is the
      most that minibatches can add to T (``diagnostics.temperature_rise_bound``): little at T = 1, but many times T in
      a cold chain.  Not judged at T = 0, where r is the speed of an optimiser; or
    - û has risen above its lowest recent value by more than potential_rise·P·max(T, 1).  Equipartition gives u a mean
      of PT/2 above the minimum and a scatter of T√(P/2), so a rise of 2PT is far outside, while the end of a noise-free
      phase (a rise of PT/2) is not mistaken for a divergence.

    An unstable mode grows exponentially, so frequent records show it tens of steps before NaN.  û of a minibatch
    scatters by N·sd(ln p)/√|batch|; where that is not small compared with P, pass means over an epoch.
    """
    finite = (kinetic[-1].isfinite()) & (potential[-1].isfinite())
    warm = kinetic[-1] > temperature * max(kinetic_factor, 1 + 10 * (2 / parameters) ** 0.5)
    hot = warm & (kinetic[-1] - temperature > kinetic_factor * heating) & (temperature > 0)
    lowest = potential.nan_to_num(nan=torch.inf).amin(dim=0)
    high = potential[-1] - lowest > potential_rise * parameters * max(temperature, 1.0)
    return ~finite | hot | high
