"""Stochastic-gradient Hamiltonian Monte Carlo with an AMSGrad mass: ``init`` and ``step`` on flat vectors.

Target: the law of θ is p(θ) ∝ exp(−u(θ)/T), for a potential u = −ln prior − Σ ln likelihood and a temperature T (1:
the posterior).  The caller supplies ∇û, the gradient of the *whole* stochastic potential (prior included, likelihood
scaled by N/|batch|); K chains are rows of [K, P] tensors.

State.  Instead of the paper's v we keep the normalised momentum r = M^(−1/2) w, which is N(0, T) whatever γ and M
are. With Δt = √(αγ/N) the two are related by v = r·√(αM/(Nγ)).  No 1/γ occurs, so γ = 0 is harmless, a jump of γ
needs no correction (keeping v would change the sampled density), and mean(r²) is a thermometer.

Integrators (one gradient per step; h = Δt M^(−1/2), ξ ~ N(0, I)):

``paper``, Algorithm 1 written in r:

    r ← (1−α) r − h ∇û + √(2αT) ξ,     θ ← θ + h r.

``baoa`` (default): kick, half drift, exact friction and noise, half drift:

    r ← r − h ∇û,   θ ← θ + ½h r,   r ← (1−α) r + √(T(1−(1−α)²)) ξ,   θ ← θ + ½h r.

On a Gaussian of curvature λ, with κ = γλ/(NM):

    ``paper``  λ Var(θ) = T/(1 − ακ/(4−2α)),  Var(r) = T/(1 − α/2 − ακ/4),  stable for κ < (4−2α)/α
    ``baoa``   λ Var(θ) = T exactly,          Var(r) = T exactly,           stable for κ < 4/α.

So the thermometer of ``paper`` reads T/(1−α/2), 5 % high at α = 0.1, also in the limit γ → 0 (see ``diagnostics``).

Temperature.  T multiplies the variance of the injected noise and nothing else; then r ~ N(0, T) and θ ~ exp(−u/T).
At T = 0 and constant γ the trajectory is AMSGrad's, with first moment v, no bias correction on v, and learning rate γ
(``paper``) or (1−α/2)γ (``baoa``).  While γ changes, keeping r instead of v multiplies v by √(γ_t/γ_{t+1}): by 1 + 3e-6
per step in the paper's burn-in, negligible compared with the friction.

A matrix mass M = Q diag(m) Qᵀ (``basis.py``) is the same step in rotated coordinates: θ' = Qᵀθ, ∇'û = Qᵀ∇û, with r, m
and ξ in the basis, where everything above holds word for word.  θ itself stays in the original coordinates.

While the mass adapts, its change from M to M' leaves the physical momentum w = M^(1/2) r alone, as Algorithm 1 does
(v does not change when M does), hence r ← r·√(M/M').  A change of Q leaves w alone too: w is turned back by the old Q
and into the new one.  Once M is frozen the factor is 1 and is not computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.sampling import basis as eigenbasis
from equibayes.sampling import mass as mass_rule
from equibayes.sampling.basis import Blocks, matrix_blocks
from equibayes.sampling.mass import MassState
from equibayes.sampling.noise import STREAM_INITIAL_MOMENTUM, NoiseKey, standard_normal

Integrator = Literal["baoa", "paper"]
Mass = Literal["diagonal", "matrix"]
PerChain = float | torch.Tensor
"""A number for all chains, or a tensor [K] with one per chain."""


@dataclass(frozen=True)
class SGHMCConfig:
    """Settings that are constant during a run.  Defaults are the paper's (appendix A.3), except for the integrator."""

    integrator: Integrator = "baoa"
    friction: float = 0.1
    """α, the fraction of momentum lost per step."""
    temperature: float = 1.0
    """T; 1 samples the posterior."""
    beta: float = 0.999
    """β of the running mean of squared gradients."""
    epsilon: float = 1e-3
    """ε added to the mass."""
    mass: Mass = "diagonal"
    """``diagonal``: a mass for each weight, the paper's.  ``matrix``: in the eigenbasis of each weight matrix."""

    def __post_init__(self) -> None:
        if self.integrator not in ("baoa", "paper"):
            raise InputError(f"integrator '{self.integrator}' is unknown: use 'baoa' or 'paper'")
        if not 0 < self.friction <= 1:
            raise InputError(f"friction {self.friction} must lie in (0, 1]")
        if not self.temperature >= 0:
            raise InputError(f"temperature {self.temperature} must not be negative")
        if not 0 < self.beta < 1:
            raise InputError(f"beta {self.beta} must lie between 0 and 1")
        if not self.epsilon > 0:
            raise InputError(f"epsilon {self.epsilon} must be positive, or a parameter without gradient has no mass")
        if self.mass not in ("diagonal", "matrix"):
            raise InputError(f"mass '{self.mass}' is unknown: use 'diagonal' or 'matrix'")

    def blocks(self, shapes: Sequence[tuple[int, ...]]) -> Blocks:
        """The matrices that the mass acts on, among parameters with these shapes."""
        return matrix_blocks(shapes) if self.mass == "matrix" else ()


class State(NamedTuple):
    """The complete state of the chains as tensors; [K, …] except the two counters (int64 scalars on the CPU)."""

    position: torch.Tensor
    """θ."""
    momentum: torch.Tensor
    """r, normalised: variance T in equilibrium.  With a matrix mass, in its basis."""
    mass: MassState
    step: torch.Tensor
    """Steps done; the index of the next step in schedule and noise."""


def init(
    position: torch.Tensor,
    momentum: torch.Tensor | NoiseKey | None = None,
    *,
    temperature: PerChain = 1.0,
    mass: torch.Tensor | float = 1.0,
    blocks: Blocks = (),
) -> State:
    """A state at θ = ``position`` [K, P] (copied).

    ``momentum`` is r [K, P], or a key from which r ~ N(0, T) is drawn, or None for rest.  ``mass`` is the M that
    holds until the first adaptation: a number, [P] or [K, P].  ``blocks``: the weight matrices that a matrix mass acts
    on.
    """
    if position.ndim != 2:
        raise InputError(f"position must be [chains, parameters], not {tuple(position.shape)}; one chain is [1, P]")
    if isinstance(momentum, NoiseKey):
        deviation = _column(temperature, position).sqrt()
        momentum = deviation * _draw(momentum, 0, position, STREAM_INITIAL_MOMENTUM)
    return State(
        position=position.detach().clone(),
        momentum=torch.zeros_like(position) if momentum is None else momentum.detach().clone(),
        mass=mass_rule.init(position.detach(), mass, blocks),
        step=torch.zeros((), dtype=torch.int64),
    )


@torch.no_grad()
def step(
    state: State,
    gradient: torch.Tensor,
    noise: torch.Tensor | NoiseKey,
    *,
    learning_rate: PerChain,
    data_size: float,
    config: SGHMCConfig,
    temperature: PerChain | None = None,
    adapt_mass: bool = True,
    blocks: Blocks = (),
    inplace: bool = False,
) -> State:
    """One step of all chains.

    gradient       ∇û(θ) [K, P] at ``state.position``
    noise          ξ [K, P], or the key from which the noise of this step is drawn
    learning_rate  γ, for all chains or [K]
    data_size      N, the number of training configurations
    temperature    T of this step, if not that of the configuration
    adapt_mass     update M from this gradient; False once the mass is frozen
    blocks         those of the state
    inplace        change ``state`` itself and return it (for large P); otherwise ``state`` is left untouched

    Products and sums are separate torch calls, never fused, so each result is rounded as IEEE prescribes and the bits
    of a chain do not depend on which other chains share the tensor.
    """
    if not inplace:
        state = clone(state)
    θ, r, α = state.position, state.momentum, config.friction
    T = config.temperature if temperature is None else temperature
    if adapt_mass and blocks:
        adapt_basis(state, gradient / data_size, int(state.mass.updates), config, blocks)
    gradient = eigenbasis.into_basis(blocks, state.mass.basis, gradient) if blocks else gradient
    if adapt_mass:
        _adapt_mass(state, gradient / data_size, config)
    Δt = _column(learning_rate, θ, factor=α / data_size).sqrt()
    h = Δt / state.mass.mass.sqrt()

    if config.integrator == "paper":
        r.mul_(1 - α).sub_(h * gradient)
        _add_noise(r, noise, state.step, 2 * α, T)
        _drift(state, [h.mul_(r)], blocks)
    else:
        r.sub_(h * gradient)
        half = h.mul_(0.5)
        before = half * r
        r.mul_(1 - α)
        _add_noise(r, noise, state.step, 1 - (1 - α) ** 2, T)
        _drift(state, [before, half.mul_(r)], blocks)
    state.step.add_(1)
    return state


def clone(state: State) -> State:
    """An independent copy."""
    return State(
        state.position.clone(), state.momentum.clone(), MassState(*(t.clone() for t in state.mass)), state.step.clone()
    )


def to_tensors(state: State) -> dict[str, torch.Tensor]:
    """A flat dictionary, fit for a safetensors file; :func:`from_tensors` restores the state bit for bit."""
    own = {"position": state.position, "momentum": state.momentum, "step": state.step}
    mass = {
        f"mass.{name}": tensor for name, tensor in state.mass._asdict().items() if tensor.ndim == 0 or tensor.numel()
    }
    return own | mass


def from_tensors(tensors: dict[str, torch.Tensor]) -> State:
    """The inverse of :func:`to_tensors`; a state without a basis has a diagonal mass, as in earlier versions."""
    none = tensors["position"].new_zeros(len(tensors["position"]), 0)
    tensors = {"mass.factors": none, "mass.basis": none.clone()} | tensors
    mass = MassState(**{name: tensors[f"mass.{name}"] for name in MassState._fields})
    return State(tensors["position"], tensors["momentum"], mass, tensors["step"])


def _drift(state: State, moves: list[torch.Tensor], blocks: Blocks) -> None:
    """θ += Σ moves, which are in the basis; turned back together, because θ is not needed in between."""
    if blocks:
        moves = [eigenbasis.from_basis(blocks, state.mass.basis, torch.stack(moves).sum(0))]
    for move in moves:
        state.position.add_(move)


def adapt_basis(state: State, scaled_gradient: torch.Tensor, updates: int, config: SGHMCConfig, blocks: Blocks) -> None:
    """Gather the gradient per configuration and refresh the basis, where this is due after so many updates of the mass.

    w = Q √m r stays: r becomes Q'ᵀ Q √m r / √m, which the update of the mass refers to the new m.
    """
    mass, r = state.mass, state.momentum
    if eigenbasis.gathers(updates):
        eigenbasis.gather(blocks, mass.factors, scaled_gradient)
    if not eigenbasis.refreshes(updates):
        return
    if updates:
        r.copy_(eigenbasis.from_basis(blocks, mass.basis, r.mul_(mass.mass.sqrt())))
    eigenbasis.refresh(blocks, mass.factors, mass.basis, config.epsilon)
    if updates:
        r.copy_(eigenbasis.into_basis(blocks, mass.basis, r)).div_(mass.mass.sqrt())


def _adapt_mass(state: State, scaled_gradient: torch.Tensor, config: SGHMCConfig) -> None:
    """M_{t−1} → M_t at constant w = M^(1/2) r.  The first M replaces a placeholder, so r stays unchanged."""
    before = None if int(state.mass.updates) == 0 else state.mass.mass.clone()
    mass_rule.update(state.mass, scaled_gradient, config.beta, config.epsilon, inplace=True)
    if before is not None:
        state.momentum.mul_(before.div_(state.mass.mass).sqrt_())


def _add_noise(
    r: torch.Tensor, noise: torch.Tensor | NoiseKey, step: torch.Tensor, variance: float, T: PerChain
) -> None:
    """r += √(variance·T) ξ.  At T = 0 nothing is drawn."""
    if not isinstance(T, torch.Tensor) and T == 0:
        return
    ξ = _draw(noise, int(step), r) if isinstance(noise, NoiseKey) else noise
    r.add_(_column(T, r, factor=variance).sqrt() * ξ)


def _draw(key: NoiseKey, step: int, like: torch.Tensor, stream: int = 0) -> torch.Tensor:
    if len(key.chains) != len(like):
        raise InputError(
            f"{counted(len(key.chains), 'chain identity', 'chain identities')} for {counted(len(like), 'chain')}"
        )
    return standard_normal(key, step, like.shape[1], stream=stream, dtype=like.dtype, device=like.device)


def _column(value: PerChain, like: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """``factor·value`` as a tensor [K, 1] or [1, 1], computed in double precision whatever the weights are."""
    column = torch.as_tensor(value, dtype=torch.float64, device=like.device).reshape(-1, 1)
    return (column * factor).to(like.dtype)


def stability_limit(config: SGHMCConfig) -> float:
    """The largest stable κ = γλ/(NM) on a Gaussian: 4/α (``baoa``) or (4−2α)/α (``paper``)."""
    α = config.friction
    return (4 - 2 * α) / α if config.integrator == "paper" else 4 / α
