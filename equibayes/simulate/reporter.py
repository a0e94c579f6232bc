"""The files of a simulation: trajectory, log, candidates, plot, and the state to resume from.

traj.xyz has a folder traj-md beside it with md.log, candidates.xyz, md.svg and state.safetensors.
"""

import time
from pathlib import Path
from typing import Any

from equibayes.errors import InputError
from equibayes.run.progress import Display
from equibayes.simulate import log
from equibayes.simulate.frames import candidate_frame, trajectory_frame
from equibayes.simulate.integrators import Conditions, Integrator
from equibayes.simulate.resumable_file import ResumableFile
from equibayes.simulate.state import MdState
from equibayes.simulate.statistics import Statistics
from equibayes.simulate.trust import Trust
from equibayes.simulate.watch import Observation, Watch

PLOT_SECONDS = 60.0


def folder_of(output: str | Path) -> Path:
    """The folder of all files but the trajectory: traj-md for traj.xyz, hot.300K-md for hot.300K.xyz."""
    output = Path(output)
    return output.with_name(f"{output.stem}-md")


def state_file(output: str | Path) -> Path:
    return folder_of(output) / "state.safetensors"


def check_trajectory(output: str | Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse, before any work, to replace an existing trajectory by mistake."""
    output = Path(output)
    if output.suffix not in (".xyz", ".extxyz"):
        raise InputError(f"-o {output}: the name of the trajectory must end in .xyz or .extxyz")
    if resume or overwrite:
        return
    if output.exists():
        raise InputError(f"{output}: exists already; continue it with --resume or replace it with --overwrite")
    if state_file(output).exists():
        raise InputError(
            f"{folder_of(output)}: contains an earlier run, whose log and labels would be lost; "
            "choose another name with -o, or add --overwrite"
        )


class MdReporter:
    """Writes what a simulation reports; counts candidates and gathers statistics.

    steps     steps in all
    identity  stored with the state (see `state.py`)
    """

    def __init__(
        self, output: Path, steps: int, conditions: Conditions, watch: Watch, identity: dict[str, Any], display: Display
    ) -> None:
        self.output, self.folder, self.steps = output, folder_of(output), steps
        self.conditions, self.watch, self.identity, self.display = conditions, watch, identity, display
        self.statistics = Statistics()
        self.candidates = 0
        self.last_candidate: int | None = None
        self.last_state = "trusted"
        self.saved_step: int | None = None
        self.columns = log.columns_for(conditions.ensemble)
        self._files: dict[str, ResumableFile] = {}
        self._plotted = time.monotonic()

    def open(self, state: MdState | None, engine: str) -> None:
        """Start new files, or cut those of an earlier run back to its saved state; engine: for the log."""
        paths = {name: self.folder / name for name in ("md.log", "candidates.xyz")} | {"trajectory": self.output}
        for name, path in paths.items():
            self._files[name] = ResumableFile(path, 0 if state is None else state.lengths[name])
        if state is None:
            self._files["md.log"].append(log.header(self.watch.trust, self.watch.deviation, engine, self.columns))
            return
        self.columns = log.columns_in(paths["md.log"].read_text(encoding="utf-8"))  # of the version that began it
        self.statistics, self.candidates = state.statistics, state.candidates
        self.last_candidate, self.last_state, self.saved_step = state.last_candidate, state.last_state, state.step

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def regular(self, step: int) -> bool:
        """Whether this step has a line in the log and a frame in the trajectory."""
        return step % self.watch.every == 0

    def record(self, now: Observation) -> None:
        """Statistics, log and display."""
        self.statistics.add(now.step, now.time_fs, now.temperature, now.conserved, now.deviation, now.state)
        crossed, self.last_state = now.state != self.last_state, now.state
        if self.regular(now.step) or crossed:
            self._files["md.log"].append(log.line(now, self.columns))
        if self.regular(now.step) or now.step == self.steps:
            shown = {"step": now.step, "temperature": now.temperature, "largest_sigma": now.deviation.largest}
            # without trust levels the state "trusted" says nothing
            self.display.show(
                shown | ({} if self.watch.trust == Trust() and now.state == "trusted" else {"state": now.state})
            )
        else:
            self.display.advance(now.step)

    def candidate(self, now: Observation) -> bool:
        """Write a candidate, unless there was one shortly before; whether it was written."""
        if self.last_candidate is not None and now.step - self.last_candidate < self.watch.candidate_gap:
            return False
        self.last_candidate, self.candidates = now.step, self.candidates + 1
        frame = candidate_frame(now.atoms, now.results, now.deviation, now.step, now.time_fs, self.output.name)
        self._files["candidates.xyz"].append(frame)
        return True

    def frame(self, now: Observation, results: dict[str, Any]) -> None:
        """Append to the trajectory, with the results that the next step starts from."""
        self._files["trajectory"].append(trajectory_frame(now.atoms, results, now.step, now.time_fs))

    def save(
        self, step: int, integrator: Integrator, *, asked: int, jump: float, engine: str, looked: bool = True
    ) -> None:
        """The state to resume from.  Files first: a state never refers to more than is on the disk."""
        MdState(
            step=step,
            memory=integrator.memory(),
            rng=dict(integrator.rng.bit_generator.state),
            statistics=self.statistics,
            lengths={name: file.flush() for name, file in self._files.items()},
            last_candidate=self.last_candidate,
            candidates=self.candidates,
            last_state=self.last_state,
            asked=asked,
            jump=jump,
            looked=looked,
            engine=engine,
            identity=self.identity,
        ).save(self.folder / "state.safetensors")
        self.saved_step = step
        if time.monotonic() - self._plotted > PLOT_SECONDS:
            self.plot()

    def plot(self) -> None:
        from equibayes.simulate.plot import plot_log

        wanted = None if self.conditions.ensemble == "nve" else self.conditions.temperature
        plot_log(self.folder / "md.log", self.folder / "md.svg", self.watch.trust, wanted)
        self._plotted = time.monotonic()
