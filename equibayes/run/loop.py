"""Runs K chains from random weights to posterior samples: the loop around `sghmc.step_`.

Everything that depends on the step is a pure function of it (schedule, minibatches, noise), so a run that is killed and resumed from a
checkpoint repeats the very same steps.  Looks, records, rollback points and checkpoints all fall on the same steps, every
`guard.interval`; a checkpoint is a rollback point written to disk.
"""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from equibayes.bayes.potential import Evaluation, Potential
from equibayes.data.resident import ResidentData
from equibayes.engine.select import make_evaluate, make_stepper
from equibayes.errors import InputError
from equibayes.run import checkpoint
from equibayes.run.guard import Guard
from equibayes.run.progress import Display, Silent
from equibayes.run.recentre import SHIFT, TIMES, recentre
from equibayes.run.records import MetricsLog, make_record
from equibayes.run.settings import SampleConfig
from equibayes.run.state import RunState
from equibayes.run.validation import validate
from equibayes.sampling import sghmc
from equibayes.sampling.chain import MovingAverage, ReferenceStepper, Stepper, Stretch
from equibayes.sampling.minibatch import batch_indices
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan

# decay of the moving average of the weights, NequIP's own
AVERAGE_DECAY = 0.99
# streams of the counter-based shuffling, one for each part of a run
STREAM_EARLY, STREAM_BURN_IN, STREAM_CYCLES = 2, 3, 4


class Interrupted(Exception):
    """The user asked to stop; a checkpoint has been written."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"interrupted at step {step}")
        self.signal, self.step = number, step


class ChainRunner:
    """One run: K chains of one posterior on one device."""

    def __init__(
        self,
        potential: Potential,
        config: SampleConfig,
        *,
        validation: ResidentData | None = None,
        folder: Path | None = None,
        about: dict[str, Any] | None = None,
        display: Display | None = None,
        identities: Sequence[int] | None = None,
        start: torch.Tensor | None = None,
        average: bool = False,
    ) -> None:
        """folder: where checkpoints and metrics go (none: nothing is written); about: what identifies the run;
        identities: the numbers of the K chains, from which their weights, noise and minibatches follow (default 0 … K−1);
        start: the weights [K, P] to begin with, if not those that the model begins with;
        average: keep a moving average of the weights instead of the weights (for a point estimate, never for a posterior)."""
        self.potential, self.config, self.validation = potential, config, validation
        self.folder, self.about = folder, about or {}
        self.display, self.start, self.average = display or Silent(), start, average
        size = potential.data_size
        self.schedule = config.schedule(size)
        self.early_steps = config.early_steps(size)
        self.key = NoiseKey(config.seed, tuple(range(config.chains) if identities is None else identities))
        self.guard = Guard(config.guard, config.sampler, size, self.key.chains, force_size(potential.data))
        self.device = potential.data.forces.device
        self.evaluate = make_evaluate(potential)
        self.fused: Stepper[Evaluation] | None = None
        self._prepared: Stretch | None = None
        looks = max(1, self.schedule.total_steps // config.guard.interval)
        self.record_every = max(1, looks // config.output.records)
        self.recentre_every = max(1, looks // TIMES)
        # held-back frames are evaluated for some of the records
        often, every = config.output.validations, self.record_every
        self.validate_every = max(1, looks // often // every) * every if often else 0

    def run(self, *, resume: bool = False) -> RunState:
        """From the start, or from the newest checkpoint, to the end of the schedule."""
        state = self._resumed() if resume else self._started()
        tensorboard = self.config.output.tensorboard
        log = MetricsLog(self.folder, keep_until=state.step, tensorboard=tensorboard) if self.folder else None
        try:
            self.display.start(self.schedule.total_steps, state.step)
            with collected_signals() as pending:
                self._loop(state, log, pending)
        finally:
            self.display.stop()
            if log:
                log.close()
        return state

    def _begin(self) -> RunState:
        """The state before the first step: each chain's own weights."""
        start = self.start
        if start is None:
            layout, dtype = self.potential.model.layout, self.potential.data.forces.dtype
            start = layout.start(max(self.key.chains) + 1, self.config.seed, dtype)[list(self.key.chains)]
        return RunState.start(start.to(self.device), average=self.average)

    def _started(self) -> RunState:
        """A new run, with a checkpoint at once, so that --resume works from the first moment."""
        state = self._begin()
        self._save(state)
        return state

    def _resumed(self) -> RunState:
        if self.folder is None:
            raise InputError("nothing to resume: the run has no folder")
        found = checkpoint.load_newest(self.folder, self.display.say)
        check_same_run(found.record["about"], self.about)
        return RunState.from_checkpoint(found, self.device)

    def _loop(self, state: RunState, log: MetricsLog | None, pending: list[int]) -> None:
        # copies: the state changes in place
        begin, rollback, last_saved = self._begin(), state.copy(), time.monotonic()
        self.fused, self._prepared = self._fused_steps(state), None
        while state.step < self.schedule.total_steps:
            if pending:
                self._save(rollback)
                raise Interrupted(pending[0], rollback.step)
            self._before_cycle(state, self.schedule.at(state.step))
            plan, evaluation, learning_rate = self._advance(state)
            if not (plan.collect or state.step % self.config.guard.interval == 0):
                continue
            for message in self.guard.look(state, rollback, begin, plan, evaluation):
                state.events.append(message)
                self.display.say(message)
            if bool(state.failed.all()):
                raise InputError("every chain diverged; lower burn_in.initial, or check labels and units of the data")
            self._recentre(state, plan)
            if plan.collect:
                self._collect(state)
            self._record(state, plan, evaluation, learning_rate, log)
            self.display.advance(state.step)
            rollback = state.copy()
            if time.monotonic() - last_saved >= self.config.output.checkpoint_seconds:
                self._save(rollback)
                last_saved = time.monotonic()
        self._save(rollback)

    def _advance(self, state: RunState) -> tuple[StepPlan, Evaluation, torch.Tensor]:
        """One step, or all steps up to the next look where the fused kernels do them; the last plan and what was seen there."""
        if self.fused is None:
            plan = self.schedule.at(state.step)
            return plan, *self._step(state, plan)
        if self._prepared is None or self._prepared.first != state.step:
            self._prepared = self._stretch(state.step)
        stretch = self._prepared
        planned = torch.tensor([plan.learning_rate for plan in stretch.plans], dtype=torch.float64)
        learning_rates = torch.minimum(planned[:, None] * state.slowdown, state.cap)
        evaluation = self.fused.advance(stretch, learning_rates)
        assert evaluation is not None
        # while the GPU works
        end = stretch.first + len(stretch.plans)
        self._prepared = self._stretch(end) if end < self.schedule.total_steps else None
        return stretch.plans[-1], evaluation, learning_rates[-1]

    def _stretch(self, first: int) -> "Stretch":
        """Steps with one batch size up to the next look, sample or end."""
        plans: list[StepPlan] = []
        indices: list[torch.Tensor] = []
        end = first
        while end < self.schedule.total_steps:
            plan = self.schedule.at(end)
            chosen = self._indices(end, plan, "cpu")
            if indices and chosen.shape != indices[0].shape:
                break
            plans.append(plan)
            indices.append(chosen)
            end += 1
            if plan.collect or end % self.config.guard.interval == 0:
                break
        return Stretch(first, plans, torch.stack(indices))

    def _fused_steps(self, state: RunState) -> Stepper[Evaluation] | None:
        """Whole steps by a fused engine, if there is one."""
        stepper = make_stepper(
            self.potential,
            state.sampler,
            self.key,
            self.config.sampler,
            longest=self.config.guard.interval,
            batch_size=self.config.burn_in.batch_size,
            precision=self.config.precision,
            average=None if state.average is None else MovingAverage(state.average, AVERAGE_DECAY),
            say=self.display.say,
        )
        return None if isinstance(stepper, ReferenceStepper) else stepper

    def _step(self, state: RunState, plan: StepPlan) -> tuple[Evaluation, torch.Tensor]:
        indices = self._indices(state.step, plan, self.device)
        mask = self.potential.mask(state.step, self.key.chains, indices.shape[1])
        position = state.sampler.position
        evaluation = self.potential.with_prior_weight(
            self.evaluate(position, indices, mask), position, plan.prior_weight
        )
        learning_rate = torch.minimum(plan.learning_rate * state.slowdown, state.cap)
        sghmc.step_(
            state.sampler,
            evaluation.gradient,
            self.key,
            learning_rate=learning_rate.to(self.device),
            data_size=self.potential.data_size,
            config=self.config.sampler,
            temperature=plan.temperature,
            adapt_mass=not plan.mass_frozen,
        )
        if state.average is not None:
            state.average.lerp_(state.sampler.position, 1 - AVERAGE_DECAY)
        return evaluation, learning_rate

    def _indices(self, step: int, plan: StepPlan, device: torch.device | str) -> torch.Tensor:
        """The minibatch [K, B] of a step; burn-in has a first part with smaller batches."""
        if plan.phase == "cycle":
            size, number, stream = self.config.cycles.batch_size, plan.phase_step, STREAM_CYCLES
        elif step < self.early_steps:
            size, number, stream = self.config.burn_in.early_batch_size, step, STREAM_EARLY
        else:
            size, number, stream = self.config.burn_in.batch_size, step - self.early_steps, STREAM_BURN_IN
        return batch_indices(self.key, number, self.potential.data_size, size, stream=stream).to(device)

    def _before_cycle(self, state: RunState, plan: StepPlan) -> None:
        """Where γ jumps up at once, ask the curvature first how far it may."""
        cycles, guard = self.config.cycles, self.config.guard
        jumps = guard.enabled and plan.phase == "cycle" and cycles.kind != "rise_and_fall"
        if not jumps or plan.phase_step % self.schedule.cycle_steps:
            return
        fixed = self._indices(state.step, plan, self.device)

        def gradient(position: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():  # the estimate itself runs without
                return self.evaluate(position, fixed).gradient

        for message in self.guard.cap_learning_rate(state, gradient, cycles.peak):
            state.events.append(message)
            self.display.say(message)

    def _recentre(self, state: RunState, plan: StepPlan) -> None:
        """Where there is no noise yet, energies are kept where they belong, if the network has numbers for that."""
        look, beside = divmod(state.step, self.config.guard.interval)
        model = self.potential.model
        if plan.temperature == 0 and not beside and look % self.recentre_every == 0 and SHIFT in model.layout.groups:
            recentre(model, state.sampler.position, self.potential.data)

    def _collect(self, state: RunState) -> None:
        """Keep θ of every chain; the mass has been frozen long before (the schedule sees to it)."""
        weights = state.sampler.position if state.average is None else state.average
        state.samples.append(weights.detach().cpu().clone())
        state.kept.append(~state.failed)
        state.rollbacks.zero_()

    def _record(
        self,
        state: RunState,
        plan: StepPlan,
        evaluation: Evaluation,
        learning_rate: torch.Tensor,
        log: MetricsLog | None,
    ) -> None:
        look = state.step // self.config.guard.interval
        if not plan.collect and look % self.record_every:
            return
        size, sampler, layout = self.potential.data_size, self.config.sampler, self.potential.model.layout
        record = make_record(state.step, plan, state.sampler, evaluation, learning_rate, size, sampler, layout)
        record["failed"] = state.failed.tolist()
        due = self.validate_every and (plan.collect or look % self.validate_every == 0)
        if self.validation is not None and due:
            record |= validate(self.potential.model, state.sampler.position, self.validation, ~state.failed)
        state.history.append(record)
        if log:
            log.write(record)
        self.display.show(record)

    def _save(self, state: RunState) -> None:
        if self.folder:
            checkpoint.save(self.folder, state.step, state.to_checkpoint(self.about))


def force_size(data: ResidentData) -> float:
    """Root mean square of a force component, eV/Å; infinite where there are no forces."""
    components = 3 * data.frames.num_atoms.sum()
    return float((data.forces.double().square().sum() / components).sqrt()) or float("inf")


def check_same_run(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """An `InputError` that names the first difference between a checkpoint's run and this one."""
    remedy = "resume with the same data and settings, or begin another run with another -o"
    for key in sorted(set(saved) | set(now)):
        if key != "config" and saved.get(key) != now.get(key):
            raise InputError(f"--resume: {key} changed since the run began; {remedy}")
    before, after = _flat(saved.get("config", {})), _flat(now.get("config", {}))
    for key in sorted(set(before) | set(after)):
        if before.get(key) != after.get(key):
            raise InputError(
                f"--resume: {key} was {before.get(key)} when the run began and is {after.get(key)} now; {remedy}"
            )


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        result |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return result


@contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM instead of dying of them; outside the main thread there is nothing to collect."""
    pending: list[int] = []
    try:
        old = {s: signal.signal(s, lambda number, _: pending.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:
        old = {}
    try:
        yield pending
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
