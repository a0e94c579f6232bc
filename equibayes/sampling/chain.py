"""K chains through a schedule, for any log density.

    samples = sample(density, start, schedule, data_size=N, batch_size=32)

``density(position, indices, step, plan)`` evaluates û at θ [K, P] with the configurations ``indices`` [K, B] of each
chain and returns an object with its ``gradient`` ∇û [K, P].  Where the gradient needs no minibatch (``data_size=1``),
the indices can be ignored.

Steps are made in *stretches*: from one look of the caller to the next, with one minibatch size.  A ``Stepper`` makes
all steps of a stretch; :class:`ReferenceStepper` makes them one by one with :mod:`sghmc`, a fused engine in its own
way. Everything about a step follows from its number, so a run that is killed and resumed repeats the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

from equibayes.sampling import sghmc
from equibayes.sampling.basis import Blocks
from equibayes.sampling.minibatch import batch_indices
from equibayes.sampling.noise import STREAM_MINIBATCH, NoiseKey
from equibayes.sampling.schedule import Schedule, StepPlan

# each part of a run shuffles with a stream of its own
STREAM_EARLY, STREAM_BURN_IN, STREAM_CYCLES = STREAM_MINIBATCH, 3, 4


class HasGradient(Protocol):
    """What a density returns: ∇û [K, P], and anything else that the caller wants to see."""

    @property
    def gradient(self) -> torch.Tensor: ...


Seen = TypeVar("Seen", bound=HasGradient)
Seen_co = TypeVar("Seen_co", bound=HasGradient, covariant=True)
Density = Callable[[torch.Tensor, torch.Tensor, int, StepPlan], Seen]


@dataclass(frozen=True)
class Batches:
    """Minibatch sizes of the parts of a run; the burn-in can begin with a smaller one."""

    data_size: int
    burn_in: int
    cycles: int
    early: int = 1
    early_steps: int = 0

    def indices(self, key: NoiseKey, step: int, plan: StepPlan) -> torch.Tensor:
        """The configurations of each chain in a step, int64 [K, B]."""
        if plan.phase == "cycle":
            size, number, stream = self.cycles, plan.phase_step, STREAM_CYCLES
        elif step < self.early_steps:
            size, number, stream = self.early, step, STREAM_EARLY
        else:
            size, number, stream = self.burn_in, step - self.early_steps, STREAM_BURN_IN
        return batch_indices(key, number, self.data_size, size, stream=stream)


@dataclass(frozen=True)
class Stretch:
    """Consecutive steps: their plans and minibatches, int64 [n, K, B]."""

    first: int
    plans: list[StepPlan]
    indices: torch.Tensor


@dataclass(frozen=True)
class Course:
    """All steps of a run; the caller looks every ``interval`` steps and at each sample."""

    schedule: Schedule
    batches: Batches
    key: NoiseKey
    interval: int

    def look_due(self, step: int, plan: StepPlan) -> bool:
        """Whether the caller looks when ``step`` steps are done, of which ``plan`` was the last."""
        return plan.collect or step % self.interval == 0

    def stretch(self, first: int) -> Stretch:
        """Steps with one batch size up to the next look or the end of the schedule."""
        plans: list[StepPlan] = []
        indices: list[torch.Tensor] = []
        for step in range(first, self.schedule.total_steps):
            plan = self.schedule.at(step)
            chosen = self.batches.indices(self.key, step, plan)
            if indices and chosen.shape != indices[0].shape:
                break
            plans.append(plan)
            indices.append(chosen)
            if self.look_due(step + 1, plan):
                break
        return Stretch(first, plans, torch.stack(indices))


@dataclass(frozen=True)
class MovingAverage:
    """θ̄ ← decay·θ̄ + (1 − decay)·θ after each step, in place.  For point estimates, never for a posterior."""

    weights: torch.Tensor
    decay: float

    def update(self, position: torch.Tensor) -> None:
        self.weights.lerp_(position, 1 - self.decay)


class Stepper(Protocol[Seen_co]):
    """Makes steps on the tensors of one sampler state, in place."""

    @property
    def engine(self) -> str:
        """What makes the steps.  Another engine gives samples of the same density, but other bits."""
        ...

    def advance(
        self, stretch: Stretch, learning_rates: torch.Tensor, stopping: Callable[[], bool] = ...
    ) -> Seen_co | None:
        """Make all steps of a stretch with learning rates γ [n, K]; what the last one saw.

        A stepper whose steps are slow asks ``stopping`` before each step, and breaks off with None where it is true.
        """
        ...


class ReferenceStepper(Generic[Seen]):
    """One step after the other: evaluate the density, then :func:`sghmc.step`."""

    engine = "reference"

    def __init__(
        self,
        density: Density[Seen],
        state: sghmc.State,
        key: NoiseKey,
        config: sghmc.SGHMCConfig,
        data_size: int,
        average: MovingAverage | None = None,
        blocks: Blocks = (),
    ) -> None:
        """blocks: the weight matrices of a matrix mass, those of the state."""
        self.density, self.state, self.key, self.config = density, state, key, config
        self.data_size, self.average, self.blocks = data_size, average, blocks

    def advance(
        self, stretch: Stretch, learning_rates: torch.Tensor, stopping: Callable[[], bool] = lambda: False
    ) -> Seen | None:
        state, device = self.state, self.state.position.device
        seen: Seen | None = None
        for step, (plan, indices, γ) in enumerate(zip(stretch.plans, stretch.indices, learning_rates), stretch.first):
            if stopping():
                return None
            seen = self.density(state.position, indices.to(device), step, plan)
            sghmc.step(
                state,
                seen.gradient,
                self.key,
                learning_rate=γ.to(device),
                data_size=self.data_size,
                config=self.config,
                temperature=plan.temperature,
                adapt_mass=not plan.mass_frozen,
                blocks=self.blocks,
                inplace=True,
            )
            if self.average is not None:
                self.average.update(state.position)
        return seen


@dataclass(frozen=True)
class Look(Generic[Seen]):
    """What the last step of a stretch did and saw, with its learning rates [K]."""

    plan: StepPlan
    seen: Seen
    learning_rate: torch.Tensor


def looks(
    stepper: Stepper[Seen],
    course: Course,
    first: int,
    learning_rates: Callable[[torch.Tensor], torch.Tensor],
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Look[Seen]]:
    """Run from step ``first`` to the end of the schedule, with a pause for the caller at every look.

    ``learning_rates`` turns the planned γ [n] of the next steps into those of each chain, [n, K]; it is asked after the
    caller's look, who may have slowed a chain down.  Ends early where ``stopping`` says so.
    """
    stretch: Stretch | None = course.stretch(first) if first < course.schedule.total_steps else None
    while stretch is not None and not stopping():
        rates = learning_rates(torch.tensor([plan.learning_rate for plan in stretch.plans], dtype=torch.float64))
        seen = stepper.advance(stretch, rates, stopping)
        # prepared while a device may still be at work on the steps above
        plan, end = stretch.plans[-1], stretch.first + len(stretch.plans)
        stretch = course.stretch(end) if end < course.schedule.total_steps else None
        if seen is None:
            return
        if course.look_due(end, plan):
            yield Look(plan, seen, rates[-1])


def sample(
    density: Density[Seen],
    start: torch.Tensor,
    schedule: Schedule,
    *,
    data_size: int = 1,
    batch_size: int = 1,
    seed: int = 0,
    config: sghmc.SGHMCConfig | None = None,
    blocks: Blocks = (),
) -> torch.Tensor:
    """Samples [n, K, P] of K chains that begin at ``start`` [K, P], one for each sample of the schedule.

    blocks: matrices within θ for a matrix mass (``basis.matrix_blocks``).
    """
    key, state = NoiseKey(seed, range(len(start))), sghmc.init(start, blocks=blocks)
    course = Course(schedule, Batches(data_size, batch_size, batch_size), key, schedule.total_steps + 1)
    stepper = ReferenceStepper(density, state, key, config or sghmc.SGHMCConfig(), data_size, blocks=blocks)
    rates = looks(stepper, course, 0, lambda planned: planned[:, None].expand(-1, len(start)))
    return torch.stack([state.position.clone() for look in rates if look.plan.collect])
