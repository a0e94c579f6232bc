"""The mass M: the denominator of AMSGrad, adapted during burn-in and then held constant.

With g = ∇û/N, the stochastic gradient per training configuration (Algorithm 1 of the paper), elementwise:

    a_t = (1−β) g² + β a_{t−1},     D_t = max(D_{t−1}, a_t),     M_t = √(D_t/(1−β^t)) + ε.

Any constant M leaves the posterior exp(−u) unchanged; it only sets how far each parameter moves per step.  A mass that
follows the gradients does not: a chain whose M tracks θ drifts towards M(θ) exp(−u(θ)).  So no sample may be taken
before M is frozen.  What is frozen is *M* itself.  Freezing a and D but still dividing by 1−β^t would keep M moving
for thousands of steps, so after the freeze :func:`update` is simply no longer called.

``diagonal`` applies this to each weight, as the paper does.  ``matrix`` applies it in the eigenbasis Q of the gradients
of each weight matrix (``basis.py``), M = Q diag(m) Qᵀ; here M, a and D are then the diagonals in that basis, and
g = Qᵀ∇û/N.
"""

import math
from typing import NamedTuple

import torch

from equibayes.sampling.basis import Blocks, unit_basis


class MassState(NamedTuple):
    """Tensors of the adaptive mass: [K, P], but for the counter and the two of the basis, [K, B] (B = 0: diagonal)."""

    average: torch.Tensor
    """a, running mean of squared gradients per configuration."""
    maximum: torch.Tensor
    """D, the largest a so far."""
    mass: torch.Tensor
    """M, what the integrator uses."""
    updates: torch.Tensor
    """t, the number of updates so far: int64 scalar, on the CPU so that reading it never waits for a device."""
    factors: torch.Tensor
    """L and R, running means of products of gradients."""
    basis: torch.Tensor
    """Q_L and Q_R, their eigenvectors."""


def init(like: torch.Tensor, mass: torch.Tensor | float = 1.0, blocks: Blocks = ()) -> MassState:
    """Before the first update: a = D = 0, Q = I and a given M > 0, used until :func:`update` replaces it."""
    basis = unit_basis(blocks, like)
    return MassState(
        average=torch.zeros_like(like),
        maximum=torch.zeros_like(like),
        mass=torch.as_tensor(mass, dtype=like.dtype, device=like.device).expand_as(like).clone(),
        updates=torch.zeros((), dtype=torch.int64),
        factors=torch.zeros_like(basis),
        basis=basis,
    )


def update(
    state: MassState, scaled_gradient: torch.Tensor, beta: float, epsilon: float, *, inplace: bool = False
) -> MassState:
    """One adaptation.  ``scaled_gradient`` is g, [K, P]; ``inplace`` changes and returns ``state`` itself.

    Every torch call below is a single correctly rounded operation, so the bits do not depend on how chains are batched.
    """
    if not inplace:
        state = MassState(*(tensor.clone() for tensor in state))
    state.updates.add_(1)
    bias_correction = -math.expm1(int(state.updates) * math.log(beta))  # 1 − β^t, accurate for small t too
    state.average.mul_(beta).add_(scaled_gradient.square().mul_(1 - beta))
    torch.maximum(state.maximum, state.average, out=state.maximum)
    torch.div(state.maximum, bias_correction, out=state.mass).sqrt_().add_(epsilon)
    return state
