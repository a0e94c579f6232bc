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

While the mass adapts, its change from M to M' leaves the physical momentum w = M^(1/2) r alone, as Algorithm 1 does
(v does not change when M does), hence r ← r·√(M/M').  Once M is frozen the factor is 1 and is not computed.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.sampling import mass as mass_rule
from equibayes.sampling.mass import MassState
from equibayes.sampling.noise import STREAM_INITIAL_MOMENTUM, NoiseKey, standard_normal

Integrator = Literal["baoa", "paper"]
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


class State(NamedTuple):
    """The complete state of the chains as tensors; [K, P] except the two counters (int64 scalars on the CPU)."""

    position: torch.Tensor
    """θ."""
    momentum: torch.Tensor
    """r, normalised: variance T in equilibrium."""
    mass: MassState
    step: torch.Tensor
    """Steps done; the index of the next step in schedule and noise."""


def init(
    position: torch.Tensor,
    momentum: torch.Tensor | NoiseKey | None = None,
    *,
    temperature: PerChain = 1.0,
    mass: torch.Tensor | float = 1.0,
) -> State:
    """A state at θ = ``position`` [K, P] (copied).

    ``momentum`` is r [K, P], or a key from which r ~ N(0, T) is drawn, or None for rest.  ``mass`` is the M that
    holds until the first adaptation: a number, [P] or [K, P].
    """
    if position.ndim != 2:
        raise InputError(f"position must be [chains, parameters], not {tuple(position.shape)}; one chain is [1, P]")
    if isinstance(momentum, NoiseKey):
        deviation = _column(temperature, position).sqrt()
        momentum = deviation * _draw(momentum, 0, position, STREAM_INITIAL_MOMENTUM)
    return State(
        position=position.detach().clone(),
        momentum=torch.zeros_like(position) if momentum is None else momentum.detach().clone(),
        mass=mass_rule.init(position.detach(), mass),
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
    inplace: bool = False,
) -> State:
    """One step of all chains.

    gradient       ∇û(θ) [K, P] at ``state.position``
    noise          ξ [K, P], or the key from which the noise of this step is drawn
    learning_rate  γ, for all chains or [K]
    data_size      N, the number of training configurations
    temperature    T of this step, if not that of the configuration
    adapt_mass     update M from this gradient; False once the mass is frozen
    inplace        change ``state`` itself and return it (for large P); otherwise ``state`` is left untouched

    Products and sums are separate torch calls, never fused, so each result is rounded as IEEE prescribes and the bits
    of a chain do not depend on which other chains share the tensor.
    """
    if not inplace:
        state = clone(state)
    θ, r, α = state.position, state.momentum, config.friction
    T = config.temperature if temperature is None else temperature
    if adapt_mass:
        _adapt_mass(state, gradient, data_size, config)
    Δt = _column(learning_rate, θ, factor=α / data_size).sqrt()
    h = Δt / state.mass.mass.sqrt()

    if config.integrator == "paper":
        r.mul_(1 - α).sub_(h * gradient)
        _add_noise(r, noise, state.step, 2 * α, T)
        θ.add_(h.mul_(r))
    else:
        r.sub_(h * gradient)
        half = h.mul_(0.5)
        θ.add_(half * r)
        r.mul_(1 - α)
        _add_noise(r, noise, state.step, 1 - (1 - α) ** 2, T)
        θ.add_(half.mul_(r))
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
    return own | {f"mass.{name}": tensor for name, tensor in state.mass._asdict().items()}


def from_tensors(tensors: dict[str, torch.Tensor]) -> State:
    """The inverse of :func:`to_tensors`."""
    mass = MassState(**{name: tensors[f"mass.{name}"] for name in MassState._fields})
    return State(tensors["position"], tensors["momentum"], mass, tensors["step"])


def _adapt_mass(state: State, gradient: torch.Tensor, data_size: float, config: SGHMCConfig) -> None:
    """M_{t−1} → M_t at constant w = M^(1/2) r.  The first M replaces a placeholder, so r stays unchanged."""
    first = int(state.mass.updates) == 0
    before = None if first else state.mass.mass.clone()
    mass_rule.update(state.mass, gradient / data_size, config.beta, config.epsilon, inplace=True)
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
