"""The loop of a run: K chains from their start to the end of the schedule.

Every `guard.interval` steps, and after each sample, the loop looks at the chains: the guard rolls diverging ones back,
a record is made, and the state becomes the new rollback point.  A checkpoint is a rollback point that is stored.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from equibayes.bayes.potential import Evaluation
from equibayes.data.resident import ResidentData
from equibayes.engine.select import make_stepper
from equibayes.errors import InputError
from equibayes.run import stationarity
from equibayes.run.chains import Chains
from equibayes.run.guard import Guard
from equibayes.run.interrupt import Interrupted, collected_signals
from equibayes.run.patience import Patience
from equibayes.run.progress import Display, Silent
from equibayes.run.recentre import SHIFT, TIMES, recentre
from equibayes.run.records import make_record
from equibayes.run.state import RunState
from equibayes.run.store import Store, check_same_run
from equibayes.run.validation import validate
from equibayes.sampling.basis import factor_size
from equibayes.sampling.chain import Look, MovingAverage, Stepper, looks

# decay of the moving average of the weights, NequIP's own
AVERAGE_DECAY = 0.99

MakeStepper = Callable[..., Stepper[Evaluation]]
"""With the signature of `engine.select.make_stepper`."""


def run(
    chains: Chains,
    store: Store | None = None,
    display: Display | None = None,
    *,
    stepper: MakeStepper = make_stepper,
    stops: list[int] | None = None,
) -> RunState:
    """Run the chains to the end of the schedule, from the checkpoint that the store has or from the start.

    stepper  makes what makes the steps: the reference or a fused engine
    stops    signal numbers; as soon as there is one, the run saves and raises `Interrupted`.  Default: those of this
             process
    """
    loop = Loop(chains, store or Store(), display or Silent(), stepper)
    if stops is not None:
        return loop.run(stops)
    with collected_signals() as pending:
        return loop.run(pending)


@dataclass(frozen=True)
class Rhythm:
    """How often things are done, in looks: records, validations (0: never), corrections of the energy."""

    records: int
    validations: int
    recentring: int

    @classmethod
    def of(cls, chains: Chains) -> "Rhythm":
        output = chains.config.output
        count = max(1, chains.course.schedule.total_steps // chains.config.guard.interval)
        records = max(1, count // output.records)
        # held-back frames are evaluated for some of the records
        often = output.validations
        validations = max(1, count // often // records) * records if often else 0
        return cls(records, validations, max(1, count // TIMES))


class Loop:
    """The parts of one run."""

    def __init__(self, chains: Chains, store: Store, display: Display, stepper: MakeStepper) -> None:
        self.chains, self.store, self.display, self.stepper = chains, store, display, stepper
        config, potential = chains.config, chains.potential
        size = force_size(potential.data)
        self.guard = Guard(config.guard, config.sampler, potential.data_size, chains.key.chains, size, chains.blocks)
        self.rhythm = Rhythm.of(chains)
        self.patience = Patience(config, chains.course.schedule, watched=chains.validation is not None)

    def run(self, stops: list[int]) -> RunState:
        state = self._resume_or_begin()
        self.store.open(state.step)
        try:
            self.display.start(self.chains.course.schedule.total_steps, state.step)
            self._run(state, stops)
        finally:
            self.display.stop()
            self.store.close()
        return state

    def _resume_or_begin(self) -> RunState:
        saved = self.store.load(self.display.say)
        if saved is None:
            state = self.chains.begin()
            self._save(state)  # at once, so that a run can be resumed from the first moment
            return state
        check_same_run(saved.record["about"], self.chains.about)
        there, here = saved.tensors["sampler.position"], self.chains.start
        if (there.shape, there.dtype) != (here.shape, here.dtype):
            raise InputError(
                f"--resume: the checkpoint holds weights of shape {tuple(there.shape)} ({there.dtype}), this run has "
                f"{tuple(here.shape)} ({here.dtype}); start over with --overwrite"
            )
        state = RunState.from_checkpoint(saved, self.chains.device)
        if state.sampler.mass.basis.shape[1] != factor_size(self.chains.blocks):
            raise InputError(
                "--resume: the checkpoint holds a matrix mass of another form; start over with --overwrite"
            )
        return state

    def _run(self, state: RunState, stops: list[int]) -> None:
        # copies, because the state changes in place
        begin, rollback, last_saved = self.chains.begin(), state.copy(), time.monotonic()
        self._limit_learning_rate(state)
        for look in self._looks(state, stops):
            self._guard(state, rollback, begin, look)
            self._recentre(state, look)
            if look.plan.collect:
                self._collect(state)
            self._record(state, look)
            self._stop_early(state)
            self.display.advance(state.step)
            rollback = state.copy()
            if time.monotonic() - last_saved >= self.chains.config.output.checkpoint_seconds:
                self._save(rollback)
                last_saved = time.monotonic()
            self._limit_learning_rate(state)
        self._save(rollback)
        if stops and rollback.step < self.chains.course.schedule.total_steps:
            raise Interrupted(stops[0], rollback.step)

    def _looks(self, state: RunState, stops: list[int]) -> Iterator[Look[Evaluation]]:
        """The steps, with a pause at every look; they go on where the state is, which may have moved meanwhile."""
        chains, config = self.chains, self.chains.config
        stepper = self.stepper(
            chains.potential,
            state.sampler,
            chains.key,
            config.sampler,
            longest=config.guard.interval,
            batch_size=config.burn_in.batch_size,
            precision=config.precision,
            average=None if state.average is None else MovingAverage(state.average, AVERAGE_DECAY),
            begun=state.engine,
            say=self.display.say,
        )
        if state.engine not in ("", stepper.engine):
            self.display.say(
                f"this run began with the engine {state.engine} and goes on with {stepper.engine}: its samples are as good, "
                "but not the same bits as without a break"
            )
        state.engine = stepper.engine
        moved = True
        while moved:
            moved = False
            for look in looks(
                stepper,
                chains.course,
                state.step,
                lambda planned: torch.minimum(planned[:, None] * state.slowdown, state.cap),
                lambda: bool(stops),
            ):
                before = state.step
                yield look
                moved = state.step != before
                if moved:
                    break

    def _guard(self, state: RunState, rollback: RunState, begin: RunState, look: Look[Evaluation]) -> None:
        self._tell(state, self.guard.look(state, rollback, begin, look))
        if bool(state.failed.all()):
            raise InputError("every chain diverged; lower burn_in.initial, or check labels and units of the data")

    def _limit_learning_rate(self, state: RunState) -> None:
        """Before γ jumps up at the start of a cycle, ask the curvature how far it may."""
        course, config = self.chains.course, self.chains.config
        if state.step >= course.schedule.total_steps:
            return
        plan = course.schedule.at(state.step)
        jumps = config.guard.enabled and plan.phase == "cycle" and config.cycles.kind != "rise_and_fall"
        if not jumps or plan.phase_step % course.schedule.cycle_steps:
            return
        fixed = course.batches.indices(self.chains.key, state.step, plan).to(self.chains.device)

        def gradient(position: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():  # the power iteration around it runs without
                return self.chains.potential(position, fixed).gradient

        self._tell(state, self.guard.cap_learning_rate(state, gradient, config.cycles.peak))

    def _recentre(self, state: RunState, look: Look[Evaluation]) -> None:
        """While there is no noise, correct a constant error of the energies, if the network has shifts to correct."""
        number, beside = divmod(state.step, self.chains.config.guard.interval)
        model = self.chains.potential.model
        due = not beside and number % self.rhythm.recentring == 0
        if look.plan.temperature == 0 and due and SHIFT in model.layout.groups:
            recentre(model, state.sampler.position, self.chains.potential.data)

    def _collect(self, state: RunState) -> None:
        """Keep θ of every chain.  The schedule collects only where the mass is frozen."""
        weights = state.sampler.position if state.average is None else state.average
        state.samples.append(weights.detach().cpu().clone())
        state.kept.append(~state.failed)
        state.rollbacks.zero_()
        self.store.collect(len(state.samples) - 1, state.samples[-1], state.kept[-1])

    def _record(self, state: RunState, look: Look[Evaluation]) -> None:
        chains, number = self.chains, state.step // self.chains.config.guard.interval
        if not look.plan.collect and number % self.rhythm.records:
            return
        model, size = chains.potential.model, chains.potential.data_size
        record = make_record(
            state.step,
            look.plan,
            state.sampler,
            look.seen,
            look.learning_rate,
            size,
            chains.config.sampler,
            model.layout,
        )
        record["failed"] = state.failed.tolist()
        if look.plan.collect and look.plan.temperature > 0:
            position, fixed, temperature = state.sampler.position, chains.fixed_frames, look.plan.temperature
            record |= stationarity.at_the_end(chains.potential, position, fixed, temperature, state.engine)
        due = self.rhythm.validations and (look.plan.collect or number % self.rhythm.validations == 0)
        if chains.validation is not None and due:
            record |= validate(model, state.sampler.position, chains.validation, ~state.failed, engine=state.engine)
        weights = state.sampler.position if state.average is None else state.average
        state.waited = self.patience.look(state.waited, record, weights)
        state.history.append(record)
        self.store.record(record)
        self.display.show(record)

    def _stop_early(self, state: RunState) -> None:
        """Skip the rest of a part of the burn-in in which the held-back error does not fall any more."""
        patience, schedule = self.patience, self.chains.course.schedule
        if not patience.over(state.waited, state.step):
            return
        self._tell(state, [patience.sentence(state.step)])
        if state.waited.best is not None:
            for weights in (state.sampler.position, state.average):
                if weights is not None:
                    weights.copy_(state.waited.best)
        state.sampler.step.fill_(patience.end)
        if patience.end - 1 in schedule.sample_steps:
            self._collect(state)

    def _tell(self, state: RunState, messages: list[str]) -> None:
        for message in messages:
            state.events.append(message)
            self.display.say(message)

    def _save(self, state: RunState) -> None:
        self.store.save(state.step, state.to_checkpoint(self.chains.about))


def force_size(data: ResidentData) -> float:
    """Root mean square of a force component, eV/Å; infinite where there are no forces."""
    components = 3 * data.frames.num_atoms.sum()
    return float((data.forces.double().square().sum() / components).sqrt()) or float("inf")
