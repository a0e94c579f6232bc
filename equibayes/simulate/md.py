"""Molecular dynamics that watches its own uncertainty at every step.

    result = run_md(Calculator("ethanol.posterior"), atoms, Conditions("bussi", temperature=300), 2000, "traj.xyz",
                    trust=Trust(0.1, 0.5), on_uncertain="write")

Beside traj.xyz a folder traj-md holds md.log, candidates.xyz, md.svg and the state to resume from.

| on_uncertain | a frame that is a candidate             | one beyond the upper level, or unknown |
|--------------|-----------------------------------------|----------------------------------------|
| log          | a line in the log when it becomes one   | a line in the log when it becomes one  |
| write        | also goes to candidates.xyz             | ends the simulation, is not kept       |
| label        | the same, and to the teacher, who may   | ends the simulation, is never asked    |
|              | give a better calculator to go on with  | about                                  |
| stop         | goes to candidates.xyz and ends it      | ends the simulation, is not kept       |

Positions or forces that are not numbers, or an atom that leaps by 1 Å in one step, end it always.
"""

import hashlib
import json
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms, units

from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import lock, make_folder, remove_leftovers
from equibayes.run.interrupt import Interrupted, collected_signals
from equibayes.simulate import log
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.display import MdDisplay, Silent
from equibayes.simulate.frames import candidate_frame, trajectory_frame
from equibayes.simulate.growing import GrowingFile
from equibayes.simulate.integrators import Conditions, Integrator
from equibayes.simulate.state import State, load_state
from equibayes.simulate.statistics import Statistics
from equibayes.simulate.teacher import Question, Teacher
from equibayes.simulate.trust import Deviation, Trust

ON_UNCERTAIN = ("log", "write", "stop", "label")
PLOT_SECONDS = 60.0
LEAP = 1.0
"""Å that no atom can move in one step of a simulation that means anything."""


@dataclass(frozen=True)
class Watch:
    """What is looked at and written.

    deviation      "total" or "epistemic": which σ is held against the trust levels
    every          steps between frames of the trajectory and lines of the log
    save_every     steps between states to resume from
    candidate_gap  at most one candidate is written or asked about in so many steps: neighbours in time are nearly the same
    """

    trust: Trust = field(default_factory=Trust)
    on_uncertain: str = "log"
    deviation: str = "total"
    every: int = 10
    save_every: int = 100
    candidate_gap: int = 10

    def __post_init__(self) -> None:
        if self.on_uncertain not in ON_UNCERTAIN:
            raise InputError(f"on-uncertain {self.on_uncertain}: choose one of {', '.join(ON_UNCERTAIN)}")
        if self.deviation not in ("total", "epistemic"):
            raise InputError(f"deviation {self.deviation}: choose total or epistemic")
        for name in ("every", "save_every", "candidate_gap"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', '-')} {getattr(self, name)}: must be at least 1 step")
        if self.on_uncertain == "label" and self.trust.lower is None:
            raise InputError("on-uncertain label: needs a lower trust level, which says when to ask; give --trust-lo")

    @property
    def key(self) -> str:
        return "forces_uncertainty" if self.deviation == "total" else "forces_epistemic"


@dataclass(frozen=True, eq=False)
class MdResult:
    """ended: None where all steps were done, else why not;  asked: questions to the teacher.

    `seconds` and `steps_done` are those of this call.
    """

    atoms: Atoms
    step: int
    statistics: Statistics
    candidates: int
    ended: str | None
    steps_done: int
    seconds: float
    asked: int = 0

    @property
    def exploded(self) -> bool:
        """Ended by impossible forces or motion, and not because it was told to stop."""
        return (self.ended or "").startswith("exploded")


def folder_of(output: str | Path) -> Path:
    """Where everything but the trajectory goes: traj.xyz has traj-md, and hot.300K.xyz has hot.300K-md."""
    output = Path(output)
    return output.with_name(f"{output.stem}-md")


def check_output(output: str | Path, *, resume: bool, overwrite: bool) -> None:
    """Before any work: a trajectory that is there is not lost by mistake."""
    output = Path(output)
    if output.suffix not in (".xyz", ".extxyz"):
        raise InputError(f"-o {output}: the name of the trajectory must end in .xyz or .extxyz")
    if not resume and not overwrite and output.exists():
        raise InputError(f"{output}: is there already; continue it with --resume or replace it with --overwrite")
    folder = folder_of(output)
    if not resume and not overwrite and (folder / "state.safetensors").exists():
        raise InputError(
            f"{folder}: holds an earlier run, whose log and labels would be lost; choose another name with -o, or add --overwrite"
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
    display: MdDisplay | None = None,
    teacher: Teacher | None = None,
) -> MdResult:
    """Simulate `steps` steps in all, or what is left of them with `resume`.

    teacher  who is asked about candidates with `on_uncertain="label"`
    """
    watch = watch or Watch()
    if (teacher is not None) != (watch.on_uncertain == "label"):
        raise InputError("on-uncertain label needs somebody to ask, and only label does; name a labeller")
    if steps < 1:
        raise InputError(f"steps {steps}: must be at least 1")
    check_output(output, resume=resume, overwrite=overwrite)
    run = _Run(calculator, start, conditions, watch, Path(output), display or Silent(), teacher)
    run.atoms.get_forces()  # says what is wrong with the start before anything is written
    with lock(make_folder(run.folder)):
        remove_leftovers(run.folder)
        return run(steps, resume)


def can_go_on(calculator: Calculator, start: Atoms, conditions: Conditions, watch: Watch, output: str | Path) -> bool:
    """Whether `output` is a trajectory of exactly this simulation, which `run_md` can resume."""
    path = folder_of(output) / "state.safetensors"
    if not path.exists():
        return False
    try:
        load_state(path, _about(calculator, start, conditions, watch))
    except InputError:
        return False
    return True


class _Run:
    """One simulation with its files."""

    def __init__(
        self,
        calculator: Calculator,
        start: Atoms,
        conditions: Conditions,
        watch: Watch,
        output: Path,
        display: MdDisplay,
        teacher: Teacher | None,
    ) -> None:
        self.atoms = Atoms(start.numbers, start.positions, cell=start.cell, pbc=start.pbc)
        self.atoms.calc = self.calculator = calculator
        self.conditions, self.watch, self.display, self.teacher = conditions, watch, display, teacher
        self.output, self.folder = output, folder_of(output)
        self.about = _about(calculator, self.atoms, conditions, watch) | (teacher.about if teacher else {})
        self.integrator = Integrator(self.atoms, conditions)
        self.statistics = Statistics()
        self.step = self.steps = self.candidates = self.asked = 0
        self.jump = 0.0  # eV by which the potential energy changed where the calculator was exchanged
        self.last_candidate: int | None = None
        self.last_state = "trusted"
        self.files: dict[str, GrowingFile] = {}

    def __call__(self, steps: int, resume: bool) -> MdResult:
        state = load_state(self.folder / "state.safetensors", self.about) if resume else None
        begun, self.steps = time.monotonic(), steps
        with ExitStack() as stack:
            self._open(state, stack)
            first = self.step
            self.display.start(steps, first)
            stack.callback(self.display.stop)
            ended = None
            if state is None:
                log_header = log.header(self.watch.trust, self.watch.deviation)
                self.files["md.log"].append(log_header)
                self._save(looked=False)  # a question about the start may take long
            pending = stack.enter_context(collected_signals())
            if state is None or not state.looked:
                ended = self._look()
                self._save()
            ended = self._loop(ended, pending)
        seconds = time.monotonic() - begun
        self._plot()
        done = self.step - first
        return MdResult(self.atoms, self.step, self.statistics, self.candidates, ended, done, seconds, self.asked)

    def _open(self, state: State | None, stack: ExitStack) -> None:
        if state is not None:
            self.step, self.statistics, self.last_candidate = state.step, state.statistics, state.last_candidate
            self.candidates, self.last_state = state.candidates, state.last_state
            self.asked, self.jump = state.asked, state.jump
            self.integrator.remember(state.memory)
            self.integrator.rng.bit_generator.state = state.rng
        else:
            (self.folder / "state.safetensors").unlink(missing_ok=True)
        if self.teacher is not None:
            better = self.teacher.begin(self.folder, None if state is None else state.asked, self.display)
            if better is not None:
                self.atoms.calc = self.calculator = better
        paths = {name: self.folder / name for name in ("md.log", "candidates.xyz")} | {"trajectory": self.output}
        for name, path in paths.items():
            self.files[name] = GrowingFile(path, 0 if state is None else state.lengths[name])
            stack.callback(self.files[name].close)

    def _loop(self, ended: str | None, pending: list[int]) -> str | None:
        saved, plotted = self.step, time.monotonic()
        while ended is None and self.step < self.steps:
            asked = self.asked
            ended = self._advance()
            if ended is None and (self.step % self.watch.save_every == 0 or self.asked != asked):
                self._save()
                saved = self.step
                if self.calculator.fused:
                    # last bits depend on where neighbours were searched: now, as a run would that is resumed here
                    self.calculator.forget()
                if time.monotonic() - plotted > PLOT_SECONDS:
                    self._plot()
                    plotted = time.monotonic()
            if pending and not (self.calculator.fused and saved != self.step):
                self._save()
                raise Interrupted(pending[0], self.step)
        if saved != self.step and np.isfinite(self.atoms.positions).all():
            self._save()
        return ended

    def _advance(self) -> str | None:
        """One step and a look at it; why the simulation must end, if it must."""
        try:
            self.integrator.step()
        except InputError:
            if np.isfinite(self.atoms.positions).all():
                raise
            return f"exploded in step {self.step + 1}: positions are no numbers any more"
        self.step += 1
        return self._look()

    def _look(self) -> str | None:
        """Judge the frame, write what is to be written; why the simulation must end, if it must."""
        atoms, watch = self.atoms, self.watch
        forces = atoms.get_forces()  # already there: the integrator ended here
        results = self.calculator.results
        deviation = Deviation.of(results[watch.key])
        state = watch.trust.state(deviation.largest)
        time_fs, temperature = self.step * self.conditions.timestep, self.integrator.temperature()
        conserved = self.integrator.conserved() - self.jump
        self.statistics.add(self.step, time_fs, temperature, conserved, deviation, state)
        regular = self.step % watch.every == 0
        crossed, self.last_state = state != self.last_state, state
        if regular or crossed:
            kinetic = float(atoms.get_kinetic_energy())
            numbers = (temperature, results["energy"], kinetic, conserved)
            self.files["md.log"].append(
                log.line(self.step, time_fs, *numbers, deviation, results["energy_uncertainty"], state)
            )
        if regular or self.step == self.steps:
            largest = log.words(1e3 * deviation.largest, 0)
            # without levels nobody said what is to be trusted
            verdict = "" if watch.trust == Trust() and state == "trusted" else f"  {state}"
            self.display.show(self.step, f"T {temperature:.0f} K  largest σ {largest} meV/Å{verdict}")
        ended = self._verdict(forces, deviation, state)
        if state == "candidate" and watch.on_uncertain != "log":
            ended = self._keep(deviation, time_fs, ask=ended is None) or ended
        if regular and np.isfinite(forces).all():
            atoms.get_forces()  # with which it goes on: of another calculator, where there is one
            self.files["trajectory"].append(trajectory_frame(atoms, self.calculator.results, self.step, time_fs))
        return ended

    def _keep(self, deviation: Deviation, time_fs: float, *, ask: bool) -> str | None:
        """Write a candidate and ask about it, unless there was one just before; why the simulation must end, if it must."""
        if self.last_candidate is not None and self.step - self.last_candidate < self.watch.candidate_gap:
            return None
        self.last_candidate, self.candidates = self.step, self.candidates + 1
        results = self.calculator.results
        frame = candidate_frame(self.atoms, results, deviation, self.step, time_fs, self.output.name)
        self.files["candidates.xyz"].append(frame)
        if self.teacher is None or not ask:
            return None
        try:
            lesson = self.teacher.answer(Question(self.asked, self.step, self.atoms.copy(), results, deviation))
        except Interrupted as stop:  # while it learned; the step that counts is ours
            raise Interrupted(stop.signal, self.step) from stop
        self.asked += 1
        if lesson.calculator is not None:
            self.atoms.calc = self.calculator = lesson.calculator
            self.jump += float(self.atoms.get_potential_energy()) - float(results["energy"])
        return lesson.ended

    def _verdict(self, forces: np.ndarray, deviation: Deviation, state: str) -> str | None:
        where = f"at step {self.step}: σ of atom {deviation.atom} ({self.atoms.symbols[deviation.atom]})"
        if not np.isfinite(forces).all():
            return f"exploded at step {self.step}: forces are no numbers any more"
        leap = np.abs(self.atoms.get_velocities()).max() * self.conditions.timestep * units.fs
        if not leap < LEAP:
            return f"exploded at step {self.step}: an atom moves by {leap:.3g} Å in one step"
        if state == "trusted" or self.watch.on_uncertain == "log":
            return None
        if state == "unknown":
            return f"{where} is not finite: the model does not know"
        if state == "exploded":
            return f"{where} is {deviation.largest:.3f} eV/Å, above the upper trust level"
        if self.watch.on_uncertain == "stop":
            return f"{where} is {deviation.largest:.3f} eV/Å, above the lower trust level"
        return None

    def _save(self, looked: bool = True) -> None:
        """Files first: a state never knows more of them than the disk does."""
        State(
            step=self.step,
            memory=self.integrator.memory(),
            rng=dict(self.integrator.rng.bit_generator.state),
            statistics=self.statistics,
            lengths={name: file.settle() for name, file in self.files.items()},
            last_candidate=self.last_candidate,
            candidates=self.candidates,
            last_state=self.last_state,
            asked=self.asked,
            jump=self.jump,
            looked=looked,
            about=self.about,
        ).save(self.folder / "state.safetensors")

    def _plot(self) -> None:
        from equibayes.simulate.plot import plot_log

        wanted = None if self.conditions.ensemble == "nve" else self.conditions.temperature
        plot_log(self.folder / "md.log", self.folder / "md.svg", self.watch.trust, wanted)


def _about(calculator: Calculator, start: Atoms, conditions: Conditions, watch: Watch) -> dict[str, Any]:
    """What must be the same to go on; names are those of the options."""
    posterior = calculator.posterior
    digest = hashlib.sha256(posterior.samples.numpy().tobytes())
    digest.update(json.dumps(posterior.calibration, sort_keys=True).encode())
    settings = {**asdict(conditions), **asdict(watch)}
    levels = settings.pop("trust")
    return {
        "posterior": digest.hexdigest(),
        "start": Structure.from_atoms(start.copy()).geometry_digest().hex(),
        "dtype": calculator.dtype or posterior.network.model_dtype,
        **{name.replace("_", "-"): value for name, value in settings.items() if name != "save_every"},
        "trust-lo": levels["lower"],
        "trust-hi": levels["upper"],
    }
