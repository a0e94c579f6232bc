"""Step → learning rate γ, temperature T, mass freeze, and whether the state after the step is a sample.

A run is a burn-in followed by cycles.  The curves, by name (appendix A.3 of the paper):

    exponential    γ_i = γ_a (γ_b/γ_a)^(i/(S−1))        i = 0 … S−1   the burn-in of the paper
    linear         γ_i = γ_a + (γ_b − γ_a) i/(S−1)      i = 0 … S−1   a burn-in that spends most of its steps at large γ
    rise_and_fall  γ_i = γ0/2·(cos(π + iπ/K) + 1)       i = 1 … 2K    the printed formula: 0 → γ0 → 0, period 2K
    restart        γ_i = γ0/2·(cos(iπ/K) + 1)           i = 0 … K−1   γ0 → 0 (cyclical SG-MCMC, Zhang et al. 2020)
    constant       γ_i = γ0                             i = 0 … K−1

One sample per cycle, at its end: where γ has returned to 0, or (``constant``) every K steps.  ``rise_and_fall`` is the
safe default.  ``restart`` jumps from γ ≈ 0 to γ0 in one step, which can be unstable: see ``stability``.

Samples at epoch ends.  With reshuffled epochs the minibatch errors of one epoch cancel almost exactly at its end, so
phases are lengthened to whole epochs when ``steps_per_epoch`` is given, unless a phase would become more than twice as
long: a short run on many frames stays short.  Burn-in and cycles may use different batch sizes, hence two numbers;
epochs are counted from the start of each phase (``StepPlan.phase_step``).

Tempering.  At temperature T the potential is −ln likelihood − T ln prior and the density likelihood^(1/T)·prior:
only the likelihood is tempered, as if the variance of the labels' noise were T times as large, and weights that the
data leave free keep the prior.  With the whole prior at T < 1 the density would be (posterior)^(1/T), in which these
weights shrink to a variance of T.  A run at T = 0 is an optimiser and keeps its prior (weight 1): it looks for the
maximum of the posterior density.

A cold start.  In the noise-free part of the burn-in, T = 0, the prior is therefore left out: the chain descends the
likelihood alone, from weights that were drawn from the prior.  With the prior it would go to the maximum of the
posterior density, where the many weights that the data leave free are 0, far from where the posterior's mass is (|θ|²
≈ P), and the noise would have to bring them back.

Langevin time.  A mode of curvature λ relaxes at the rate λ/(NM) per unit of Σγ: consecutive samples of one chain have
the correlation exp(−λ/(NM)·Σγ), with the sum over the steps between them.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from equibayes.errors import InputError

CycleKind = Literal["rise_and_fall", "restart", "constant"]
Decay = Literal["exponential", "linear"]
Steps = TypeVar("Steps", float, np.ndarray)


def burn_in(i: Steps, steps: int, initial: float, final: float, decay: Decay) -> Steps:
    """γ_i of the decay; exactly ``initial`` at i = 0 and ``final`` at i = steps − 1."""
    share = i / max(1, steps - 1)
    if decay == "linear":
        return initial * (1 - share) + final * share
    return initial * (final / initial) ** share


def rise_and_fall(i: Steps, length: int, peak: float) -> Steps:
    """The paper's printed formula; 0 at i = 0 and i = 2·length, ``peak`` at i = length."""
    return 0.5 * peak * (np.cos(np.pi + i * np.pi / length) + 1)


def restart(i: Steps, length: int, peak: float) -> Steps:
    """Half a cosine: ``peak`` at i = 0, 0 at i = length."""
    return 0.5 * peak * (np.cos(i * np.pi / length) + 1)


@dataclass(frozen=True)
class BurnIn:
    """The first phase.  Defaults: rMD17 in the paper.  PEDOT: ``steps=500_000, freeze_mass_at=100_000``."""

    steps: int = 1_000_000
    initial: float = 1e-2
    final: float = 1e-5
    decay: Decay = "exponential"
    freeze_mass_at: int | None = None
    """The mass adapts in the steps before this one and is constant from it on; default nine tenths of the burn-in."""
    noise_free_fraction: float = 0.0
    """Share of the burn-in at temperature 0 and without the prior: the fast start of the paper's outlook."""
    balance: float = 0.0
    """In that share: least weight of energies and stress relative to forces, see ``bayes.balance``."""
    ramp_fraction: float = 0.0
    """Share of the burn-in, after the noise-free one, in which the temperature rises linearly to its full value."""
    collect: bool = True
    """Whether the state at the end of the burn-in is the first sample, as in the paper."""

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise InputError(f"burn-in steps {self.steps} must not be negative")
        if self.decay not in ("exponential", "linear"):
            raise InputError(f"burn-in decay '{self.decay}' is unknown: use 'exponential' or 'linear'")
        if not self.initial > 0 or not self.final > 0:
            raise InputError("burn-in learning rates must be positive")
        if self.freeze_mass_at is not None and not 0 <= self.freeze_mass_at <= self.steps:
            raise InputError(f"freeze_mass_at {self.freeze_mass_at} must lie within the {self.steps} burn-in steps")
        if min(self.noise_free_fraction, self.ramp_fraction) < 0 or self.noise_free_fraction + self.ramp_fraction > 1:
            raise InputError("noise_free_fraction and ramp_fraction must be shares of the burn-in, at most 1 together")


@dataclass(frozen=True)
class Cycles:
    """The second phase: ``count`` samples, one per cycle."""

    kind: CycleKind = "rise_and_fall"
    count: int = 7
    length: int = 50_000
    """K.  A cycle of ``rise_and_fall`` has 2K steps, the others K."""
    peak: float = 1e-3
    """γ0."""

    def __post_init__(self) -> None:
        if self.kind not in ("rise_and_fall", "restart", "constant"):
            raise InputError(f"cycle kind '{self.kind}' is unknown: use 'rise_and_fall', 'restart' or 'constant'")
        if self.count < 0 or self.length < 1 or not self.peak >= 0:
            raise InputError("cycles need count >= 0, length >= 1 and peak >= 0")


class StepPlan(NamedTuple):
    """What to do in one step."""

    learning_rate: float
    temperature: float
    phase: Literal["burn_in", "cycle"]
    phase_step: int
    """Steps since the phase began; the step that the minibatch order counts from."""
    cycle: int
    """Number of the cycle, from 0; −1 in burn-in."""
    mass_frozen: bool
    collect: bool
    """Keep θ *after* this step as a sample."""
    prior_weight: float = 1.0
    """Factor of the gradient of the prior."""
    balance: float = 0.0
    """Least weight of energies and stress relative to forces; 0: that of the likelihood."""


@dataclass(frozen=True)
class Schedule:
    """Burn-in, then cycles; a pure function of the step."""

    burn_in: BurnIn = BurnIn()
    cycles: Cycles = Cycles()
    temperature: float = 1.0
    steps_per_epoch: tuple[int, int] = (1, 1)
    """Steps in an epoch in burn-in and in cycles; phases are lengthened to whole epochs, see ``whole_epochs``."""

    def __post_init__(self) -> None:
        if min(self.steps_per_epoch) < 1:
            raise InputError("steps_per_epoch must be at least 1")

    @property
    def burn_in_steps(self) -> int:
        return whole_epochs(self.burn_in.steps, self.steps_per_epoch[0])

    @property
    def cycle_steps(self) -> int:
        """Steps of one cycle.  ``rise_and_fall`` is rounded by half periods, to keep the peak in the middle."""
        whole = whole_epochs(self.cycles.length, self.steps_per_epoch[1])
        return 2 * whole if self.cycles.kind == "rise_and_fall" else whole

    @property
    def total_steps(self) -> int:
        return self.burn_in_steps + self.cycles.count * self.cycle_steps

    @property
    def freeze_mass_at(self) -> int:
        """t_max: the mass adapts in steps 0 … t_max − 1."""
        given = self.burn_in.freeze_mass_at
        return int(0.9 * self.burn_in_steps) if given is None else given

    @property
    def sample_steps(self) -> list[int]:
        """Steps after which θ is kept; never before the freeze: with a changing mass another density is sampled."""
        ends = [self.burn_in_steps + (c + 1) * self.cycle_steps - 1 for c in range(self.cycles.count)]
        first = self.burn_in_steps - 1
        return [first, *ends] if self.burn_in.collect and first >= self.freeze_mass_at else ends

    def at(self, step: int) -> StepPlan:
        """The plan of step 0 ≤ step < total_steps."""
        if not 0 <= step < self.total_steps:
            raise InputError(f"step {step} is outside the schedule of {self.total_steps} steps")
        frozen, γ = step >= self.freeze_mass_at, float(self._learning_rate(np.array([step]))[0])
        if step < self.burn_in_steps:
            collect = frozen and self.burn_in.collect and step == self.burn_in_steps - 1
            temperature = self.temperature * self._burn_in_heat(step)
            balance = 0.0 if self._after_noise_free(step) >= 0 else self.burn_in.balance
            weight = self._prior_weight(temperature)
            return StepPlan(γ, temperature, "burn_in", step, -1, frozen, collect, weight, balance)
        phase_step = step - self.burn_in_steps
        cycle, i = divmod(phase_step, self.cycle_steps)
        collect, weight = i == self.cycle_steps - 1, self._prior_weight(self.temperature)
        return StepPlan(γ, self.temperature, "cycle", phase_step, cycle, frozen, collect, weight)

    def learning_rates(self) -> np.ndarray:
        """γ of every step, [total_steps]."""
        return self._learning_rate(np.arange(self.total_steps))

    def _learning_rate(self, steps: np.ndarray) -> np.ndarray:
        i = (steps - self.burn_in_steps) % self.cycle_steps
        curves = {
            # i + 1: at i = 0 the formula is 0 and the step would do nothing; the cycle ends on its other zero
            "rise_and_fall": lambda: rise_and_fall(i + 1, self.cycle_steps // 2, self.cycles.peak),
            "restart": lambda: restart(i, self.cycle_steps, self.cycles.peak),
            "constant": lambda: np.full(len(i), self.cycles.peak),
        }
        first = self.burn_in
        count = self.burn_in_steps
        start = burn_in(np.minimum(steps, count), count, first.initial, first.final, first.decay)
        return np.where(steps < count, start, curves[self.cycles.kind]())

    def _prior_weight(self, temperature: float) -> float:
        return temperature if self.temperature else 1.0

    def _after_noise_free(self, step: int) -> float:
        """How far beyond the noise-free share a step is, as a share of the burn-in; negative before its end."""
        return step / self.burn_in_steps - self.burn_in.noise_free_fraction

    def _burn_in_heat(self, step: int) -> float:
        """Temperature as a share of the full one."""
        share = self._after_noise_free(step)
        if share < 0:
            return 0.0
        return min(1.0, share / self.burn_in.ramp_fraction) if self.burn_in.ramp_fraction else 1.0


def whole_epochs(steps: int, epoch: int) -> int:
    """A length rounded up to whole epochs; as it is where that would more than double it."""
    rounded = -(-steps // epoch) * epoch
    return rounded if rounded <= 2 * steps else steps
