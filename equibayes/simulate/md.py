"""Molecular dynamics that monitors its own uncertainty at every step.

    from ase.build import molecule
    from equibayes import Calculator
    from equibayes.simulate.integrators import Conditions
    from equibayes.simulate.md import run_md
    from equibayes.simulate.trust import Trust
    from equibayes.simulate.watch import Watch

    atoms = molecule("CH3CH2OH")
    watch = Watch(Trust(0.1, 0.5), on_uncertain="write")
    result = run_md(Calculator("ethanol.posterior"), atoms, Conditions("bussi", 300), 2000, "traj.xyz", watch=watch)

`watch.py` says what happens to uncertain frames, `reporter.py` which files are written.
"""

import hashlib
import json
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from equibayes.data.checks import FARTHEST
from equibayes.errors import InputError
from equibayes.files import RESUME, lock, make_folder, remedy, remove_leftovers
from equibayes.notebook import html_table
from equibayes.run.interrupt import Interrupted, collected_signals
from equibayes.run.progress import Display, default_display
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.integrators import Conditions, Integrator
from equibayes.simulate.log import describe_step
from equibayes.simulate.oracle import Oracle, Query
from equibayes.simulate.reporter import MdReporter, check_trajectory, state_file
from equibayes.simulate.start import moving_part, start_digest
from equibayes.simulate.state import MdState, load_state
from equibayes.simulate.statistics import Statistics
from equibayes.simulate.trust import Deviation
from equibayes.simulate.watch import Ending, Observation, Watch, ending_of


@dataclass(frozen=True, eq=False)
class MdResult:
    """A simulation after its last step.

    ended                None if all steps were done, else the reason
    exploded             whether it ended by impossible forces or motion
    steps_done, seconds  of this call
    asked                queries to the oracle
    engine               what computed the forces
    """

    atoms: Atoms
    step: int
    statistics: Statistics
    candidates: int
    ended: str | None
    exploded: bool
    steps_done: int
    seconds: float
    asked: int = 0
    engine: str = ""

    def _repr_html_(self) -> str:
        found = self.statistics
        sigma = f"{1e3 * found.largest:.1f} meV/Å, in step {found.largest_step}, atom {found.largest_atom}"
        return html_table(
            [
                ("steps", f"{self.step}, {self.ended or 'all done'}"),
                ("temperature", f"{found.mean_temperature:.1f} ± {found.temperature_spread:.1f} K"),
                ("largest σ", sigma),
                ("candidates", f"{self.candidates}, asked {self.asked}"),
            ],
            "Simulation",
        )


def run_md(
    calculator: Calculator,
    start: Atoms,
    conditions: Conditions,
    steps: int,
    output: str | Path,
    *,
    watch: Watch | None = None,
    resume: bool = False,
    overwrite: bool = False,
    display: Display | None = None,
    oracle: Oracle | None = None,
) -> MdResult:
    """Simulate `steps` steps in all, or the remaining ones with `resume`.

    start   its masses and constraints are kept; its velocities start the run, if it has any
    oracle  is asked about candidates with `on_uncertain="label"`
    """
    watch, output = watch or Watch(), Path(output)
    display = display or default_display("dynamics", describe_step)
    if (oracle is not None) != (watch.on_uncertain == "label"):
        raise InputError("on-uncertain label, and only label, needs an oracle to ask; name a labeller")
    if steps < 1:
        raise InputError(f"steps {steps}: must be at least 1")
    check_trajectory(output, resume=resume, overwrite=overwrite)
    identity = _identity(calculator, start, conditions, watch) | (oracle.identity if oracle else {})
    reporter = MdReporter(output, steps, conditions, watch, identity, display)
    simulation = _Simulation(calculator, start, conditions, watch, reporter, oracle)
    simulation.atoms.get_forces()  # reports a faulty start before anything is written
    with lock(make_folder(reporter.folder)), remedy(RESUME):
        remove_leftovers(reporter.folder)
        state = load_state(state_file(output), identity) if resume else None
        return simulation.run(steps, state)


def can_resume(calculator: Calculator, start: Atoms, conditions: Conditions, watch: Watch, output: str | Path) -> bool:
    """Whether `output` is a trajectory of exactly this simulation, which `run_md` can resume."""
    if not state_file(output).exists():
        return False
    try:
        load_state(state_file(output), _identity(calculator, start, conditions, watch))
    except InputError:
        return False
    return True


class _Simulation:
    """The atoms, what moves them, and how far they have come."""

    def __init__(
        self,
        calculator: Calculator,
        start: Atoms,
        conditions: Conditions,
        watch: Watch,
        reporter: MdReporter,
        oracle: Oracle | None,
    ) -> None:
        self.atoms = moving_part(start).to_atoms()
        self.atoms.calc = self.calculator = calculator
        self.watch, self.reporter, self.oracle = watch, reporter, oracle
        self.timestep = conditions.timestep
        self.integrator = Integrator(self.atoms, conditions)
        self.step = self.asked = 0
        self.jump = 0.0  # eV by which the potential energy changed when the calculator was replaced

    def run(self, steps: int, state: MdState | None) -> MdResult:
        begun, reporter = time.monotonic(), self.reporter
        with ExitStack() as stack:
            stack.callback(reporter.close)
            self._begin(state)
            first = self.step
            reporter.display.start(steps, first)
            stack.callback(reporter.display.stop)
            if state is None:
                self._save(looked=False)  # a query about the start may take long
            pending = stack.enter_context(collected_signals())
            ending = None
            if state is None or not state.looked:
                ending = self._look()
                self._save()
            ending = self._loop(steps, ending, pending)
        seconds = time.monotonic() - begun
        reporter.plot()
        return MdResult(
            self.atoms,
            self.step,
            reporter.statistics,
            reporter.candidates,
            ended=None if ending is None else ending.reason,
            exploded=ending is not None and ending.exploded,
            steps_done=self.step - first,
            seconds=seconds,
            asked=self.asked,
            engine=self.calculator.engine,
        )

    def _loop(self, steps: int, ending: Ending | None, pending: list[int]) -> Ending | None:
        """Advance to the last step; a state is saved at intervals, after each query, at the end and on a signal."""
        while ending is None and self.step < steps:
            asked = self.asked
            ending = self._advance()
            if ending is None and (self.step % self.watch.save_every == 0 or self.asked != asked):
                self._save()
                if self.calculator.fused:
                    # last bits depend on where neighbours were searched: search now, as a resumed run would
                    self.calculator.forget()
            if pending and not (self.calculator.fused and self.reporter.saved_step != self.step):
                self._save()
                raise Interrupted(pending[0], self.step)
        if self.reporter.saved_step != self.step and np.isfinite(self.atoms.positions).all():
            self._save()
        return ending

    def _begin(self, state: MdState | None) -> None:
        if state is None:
            state_file(self.reporter.output).unlink(missing_ok=True)
        else:
            self.step, self.asked, self.jump = state.step, state.asked, state.jump
            self.integrator.remember(state.memory)
            self.integrator.rng.bit_generator.state = state.rng
        if self.oracle is not None:
            asked = None if state is None else state.asked
            self._replace(self.oracle.begin(self.reporter.folder, asked, self.reporter.display))
        if state is not None:
            self._continue_with(state.engine)
        self.reporter.open(state, self.calculator.engine)

    def _continue_with(self, engine: str) -> None:
        self.calculator.continue_with(engine)
        now = self.calculator.engine
        if engine not in ("", now):
            self.reporter.display.say(
                f"this simulation began with the engine {engine} and goes on with {now}: its forces are as good, but not "
                "the same bits as without a break"
            )

    def _advance(self) -> Ending | None:
        """One step, and a look at it."""
        try:
            self.integrator.step()
        except InputError:
            if (np.abs(self.atoms.positions) <= FARTHEST).all():
                raise
            finite = np.isfinite(self.atoms.positions).all()
            what = f"positions are beyond {FARTHEST:.0e} Å" if finite else "positions are not finite"
            return Ending(f"exploded in step {self.step + 1}: {what}", exploded=True)
        self.step += 1
        return self._look()

    def _look(self) -> Ending | None:
        """Judge the present frame and report it."""
        now = self._observe()
        self.reporter.record(now)
        ending = ending_of(now, self.watch, self.timestep)
        keep = now.state == "candidate" and self.watch.on_uncertain != "log" and self.reporter.candidate(now)
        if keep and ending is None and self.oracle is not None:
            ending = self._ask(now)
        if self.reporter.regular(self.step) and np.isfinite(now.results["forces"]).all():
            self.atoms.get_forces()  # those that the next step starts from: of the new calculator, if there is one
            self.reporter.frame(now, self.calculator.results)
        return ending

    def _observe(self) -> Observation:
        self.atoms.get_forces()  # known already: the integrator ended here
        results = self.calculator.results
        deviation = Deviation.of(results[self.watch.sigma_key])
        return Observation(
            self.step,
            self.step * self.timestep,
            self.atoms,
            results,
            self.integrator.temperature(),
            self.integrator.conserved() - self.jump,
            deviation,
            self.watch.trust.state(deviation.largest),
        )

    def _ask(self, now: Observation) -> Ending | None:
        """Send a candidate to the oracle, and continue with its reply."""
        assert self.oracle is not None
        try:
            reply = self.oracle.answer(Query(self.asked, self.step, self.atoms.copy(), now.results, now.deviation))
        except Interrupted as stop:  # while it learned; the step to report is ours
            raise Interrupted(stop.signal, self.step) from stop
        self.asked += 1
        if reply.calculator is not None:
            self._replace(reply.calculator)
            self.jump += float(self.atoms.get_potential_energy()) - float(now.results["energy"])
        return None if reply.ended is None else Ending(reply.ended)

    def _replace(self, calculator: Calculator | None) -> None:
        if calculator is not None:
            self.atoms.calc = self.calculator = calculator

    def _save(self, looked: bool = True) -> None:
        engine = self.calculator.engine
        self.reporter.save(self.step, self.integrator, asked=self.asked, jump=self.jump, engine=engine, looked=looked)


def _identity(calculator: Calculator, start: Atoms, conditions: Conditions, watch: Watch) -> dict[str, Any]:
    """What must not change when a simulation is resumed, by the names of the options."""
    posterior = calculator.posterior
    digest = hashlib.sha256(posterior.samples.numpy().tobytes())
    if posterior.tangent is not None:
        digest.update(posterior.tangent.numpy().tobytes())
    digest.update(json.dumps(posterior.calibration, sort_keys=True).encode())
    settings = {**asdict(conditions), **asdict(watch)}
    levels = settings.pop("trust")
    return {
        "posterior": digest.hexdigest(),
        "start": start_digest(moving_part(start)),
        "dtype": calculator.dtype or posterior.network.model_dtype,
        **{name.replace("_", "-"): value for name, value in settings.items() if name != "save_every"},
        "trust-lo": levels["lower"],
        "trust-hi": levels["upper"],
    }
