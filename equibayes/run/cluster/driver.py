"""Chains on a Ray cluster: packed into groups, one group per device, and supervised until all have their samples.

The driver (this process) alone writes files.  Each group has a folder with its checkpoints.  A worker that dies, or
whose node dies, is replaced by one that continues from the last checkpoint, bit for bit.  The driver can be killed and
resumed too.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from equibayes.errors import InputError
from equibayes.files import make_folder, remove_leftovers
from equibayes.run import checkpoint
from equibayes.run.cluster.connect import ClusterOptions
from equibayes.run.cluster.crew import Crew, Staff, error_line, out_of_memory
from equibayes.run.cluster.plan import Plan
from equibayes.run.cluster.pool import Group, Pool
from equibayes.run.cluster.worker import Began, Collected, Make, Recorded, Report, Said, Saved, Stepped, Worker
from equibayes.run.interrupt import Interrupted, collected_signals
from equibayes.run.progress import Display
from equibayes.run.records import MetricsLog
from equibayes.run.settings import OutputSettings
from equibayes.run.state import RunState
from equibayes.run.store import check_same_run
from equibayes.version import __version__

# in a row, without a new checkpoint in between: workers that vanish, and errors that they raise
LOST_WORKERS, ERRORS = 20, 3
# seconds: between two computations of R-hat; for workers to save when the user stops; until a group that waits for a
# device is mentioned; for each fault in a row, before another worker begins; between two updates of the display
LOOK, LEAVE, WAIT = 5.0, 60.0, 30.0
PAUSE, TELL = 0.1, 0.2


class ClusterRun:
    """One run: all chains of a posterior."""

    def __init__(
        self,
        ray: Any,
        make: Make,
        *,
        chains: int,
        total_steps: int,
        about: dict[str, Any],
        options: ClusterOptions,
        folder: Path,
        display: Display,
        output: OutputSettings | None = None,
        on_sample: Callable[[Pool], None] = lambda pool: None,
        worker: type[Worker] = Worker,
    ) -> None:
        """make: makes the chains of a group, on a worker; about: what identifies the run; on_sample: called with all
        that is there whenever every chain has one more sample."""
        self.ray, self.make, self.total, self.about = ray, make, total_steps, about
        self.chains, self.options, self.folder, self.worker = chains, options, folder, worker
        self.display, self.output, self.on_sample = display, output, on_sample
        self.crews: list[Crew] = []
        self.pool = Pool([])
        self.agreement: dict[str, Any] = {}
        self.log: MetricsLog | None = None
        self.written = self.samples = 0
        self.shown, self.looked, self.started = -1, 0.0, False

    def run(self, *, resume: bool) -> Pool:
        """To the end of the schedule; an `InputError` where no chain gets there."""
        plan = Plan.read(self.folder) if resume else Plan.new(self.ray, self.chains, self.options)
        plan.write(self.folder)
        staff = Staff(self.ray, self.ray.remote(self.worker), self.ray.put(self.make), plan)
        for identities in plan.groups:
            self._remember(self._add_crew(identities, staff))
        self.written = min(crew.group.step for crew in self.crews)
        self.log = MetricsLog(self.folder, keep_until=self.written, output=self.output)
        try:
            self.display.say(str(plan))
            with collected_signals() as pending:
                self._supervise(pending)
        finally:
            if self.started:
                self.display.stop()
            self.log.close()
            for crew in self.crews:
                crew.dismiss()
        kept = [crew for crew in self.crews if crew.group.lost is None]
        if not kept:
            raise InputError(f"no chain came to its end; {self.crews[0].group.name}: {self.crews[0].group.lost}")
        for crew in kept:
            self._remember(crew)
        return self.pool

    # groups

    def _add_crew(self, identities: list[int], staff: Staff) -> Crew:
        folder = make_folder(self.folder / "workers" / f"{len(self.crews):03d}")
        crew = Crew(Group(identities), folder, staff, self.display.say)
        self.crews.append(crew)
        # in the order of their chains; a group that was split has its second half at the end of the crews
        self.pool = Pool(sorted((each.group for each in self.crews), key=lambda group: group.identities[0]))
        return crew

    def _split(self, crew: Crew) -> None:
        """Too many chains for the memory of a device: two groups, of which one may have to wait for the other."""
        crew.dismiss()
        identities, staff = crew.group.identities, crew.staff
        half = -(-len(identities) // 2)
        self.display.say(f"{crew.group.name} are too many for the memory of a device: two groups, in turn if need be")
        crew.group = Group(identities[:half])
        other = self._add_crew(identities[half:], staff)
        # the checkpoint before the first step is that of the whole group.  It is removed before the plan changes; a new
        # one is made in any case
        checkpoint.remove_all(crew.folder)
        staff.plan.regrouped([each.group.identities for each in self.crews]).write(self.folder)
        crew.saved = -1
        crew.start()
        other.start()

    def _remember(self, crew: Crew) -> None:
        """What is stored in the folder of a group."""
        remove_leftovers(crew.folder)
        saved = crew.newest()
        if saved is None:
            return
        check_same_run(saved.record["about"], self.about)
        state = RunState.from_checkpoint(saved, "cpu")
        crew.group.remember(state)
        crew.saved, crew.done = state.step, state.step >= self.total

    # supervision

    def _supervise(self, pending: list[int]) -> None:
        for crew in self.crews:
            if not crew.done:
                crew.start()
        leave_at, told = None, 0.0
        while any(crew.workers for crew in self.crews):
            heard = self._hear_all(leaving=leave_at is not None)
            if not heard or time.monotonic() - told > TELL:
                self._tell()
                told = time.monotonic()
            if pending and leave_at is None:
                self.display.say("stopping: the workers save where they are")
                leave_at = time.monotonic() + LEAVE
                for crew in self.crews:
                    crew.stop()
            if leave_at is not None and time.monotonic() > leave_at:
                break
        self._tell()
        if pending:
            raise Interrupted(pending[0], min(max(crew.saved, 0) for crew in self.crews))

    def _hear_all(self, leaving: bool) -> bool:
        """One report of each worker that has one; whether there was any."""
        for crew in self.crews:
            try:
                crew.meet()
            except self.ray.exceptions.RayError as cause:
                self._vanished(crew, cause, leaving)
        streams = {stream: crew for crew in self.crews for stream in crew.streams}
        if not streams:
            time.sleep(TELL)
            return False
        self.ray.wait(list(streams), num_returns=1, timeout=TELL)
        ready, _ = self.ray.wait(list(streams), num_returns=len(streams), timeout=0)
        for stream in ready:
            if stream in streams[stream].streams:  # its crew may have been dismissed a moment ago
                self._hear(streams[stream], stream, leaving)
        return bool(ready)

    def _hear(self, crew: Crew, stream: Any, leaving: bool) -> None:
        """The next report of a worker, or that there is none any more."""
        try:
            report = self.ray.get(next(stream))
        except StopIteration:
            crew.streams.remove(stream)
            crew.done = crew.saved >= self.total
            if crew.done or leaving:
                crew.dismiss()
            elif not crew.streams:
                crew.errors += 1
                self._replace(crew, "its worker ended too early", crew.errors > ERRORS, leaving)
        except InputError as cause:
            self._give_up(crew, error_line(cause))
        except self.ray.exceptions.RayTaskError as cause:
            if not leaving and crew.saved <= 0 and len(crew.group.identities) > 1 and out_of_memory(cause):
                self._split(crew)
                return
            crew.errors += 1
            self._replace(crew, error_line(cause), crew.errors > ERRORS, leaving)
        except self.ray.exceptions.RayError as cause:
            self._vanished(crew, cause, leaving)
        else:
            self._take(crew, report)

    def _vanished(self, crew: Crew, cause: BaseException, leaving: bool) -> None:
        crew.vanished += 1
        self._replace(crew, f"its worker is gone ({error_line(cause)})", crew.vanished > LOST_WORKERS, leaving)

    def _replace(self, crew: Crew, why: str, too_often: bool, leaving: bool) -> None:
        crew.dismiss()
        if leaving:
            return
        if too_often:
            self._give_up(crew, why)
            return
        self.display.say(f"{crew.group.name}: {why}; another worker continues from step {max(crew.saved, 0)}")
        time.sleep(min(PAUSE * (crew.vanished + crew.errors), 2.0))  # for faults that repeat at once
        crew.start()

    def _give_up(self, crew: Crew, why: str) -> None:
        crew.dismiss()
        crew.group.lost = why
        self.display.say(
            f"{crew.group.name} {'is' if len(crew.group.identities) == 1 else 'are'} left out, the others continue: {why}"
        )

    def _take(self, crew: Crew, report: Report) -> None:
        group = crew.group
        if isinstance(report, Began):
            crew.began = True
            if not self.started:  # not before, or the time that Ray needs would spoil the pace
                self.started = True
                self.display.start(self.total, self.pool.mean_step())
            if report.versions["equibayes"] != __version__:
                raise InputError(
                    f"node {report.node} has equibayes {report.versions['equibayes']}, this is {__version__}; install the same "
                    "on all nodes"
                )
        elif isinstance(report, Stepped):
            group.step = max(group.step, report.step)
        elif isinstance(report, Said):
            if report.message not in crew.said:  # steps that are done again say the same again
                crew.said.add(report.message)
                self.display.say(report.message)
        elif isinstance(report, Recorded):
            group.records[report.record["step"]] = report.record
            group.step = max(group.step, report.record["step"])
        elif isinstance(report, Collected):
            group.samples[report.number] = report.samples, report.kept
        elif isinstance(report, Saved):
            checkpoint.save(crew.folder, report.step, report.checkpoint)
            group.events = list(report.checkpoint.record["events"])
            if report.step > crew.saved:
                crew.saved, crew.vanished, crew.errors = report.step, 0, 0

    # what a person sees, and what is written for all chains together

    def _tell(self) -> None:
        if not self.started:
            return
        self._write_records()
        now = time.monotonic()
        record = self.pool.latest()
        if record is not None and record["step"] != self.shown:
            self.shown = record["step"]
            if now - self.looked >= LOOK:
                self.looked, self.agreement = now, self.pool.agreement()
            shown = {
                "r_hat": self.agreement.get("r_hat_forces"),
                "draws_per_chain": self.agreement.get("draws_per_chain"),
            }
            self.display.show({**record, **shown})
        self.display.advance(self.pool.mean_step())
        count = min((len(crew.group.samples) for crew in self.crews if crew.group.lost is None), default=0)
        if count > self.samples:
            self.samples = count
            self.on_sample(self.pool)
        for crew in self.crews:
            if crew.streams and not crew.began and now - crew.asked > WAIT:
                crew.asked = float("inf")
                self.display.say(f"{crew.group.name}: waiting for a device")

    def _write_records(self) -> None:
        """Lines of metrics.jsonl: what all chains that are not left out have reached."""
        assert self.log is not None
        kept = [crew.group.records for crew in self.crews if crew.group.lost is None]
        if not kept:
            return
        for step in sorted(step for step in kept[0] if step > self.written):
            if not all(step in records for records in kept):
                break
            self.log.write(self.pool.record(step))
            self.written = step
