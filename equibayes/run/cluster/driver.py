"""Chains on a Ray cluster: packed into groups, one group a device, and looked after until all have their samples.

The driver (this process) alone writes files.  Each group has a folder with its checkpoints; a worker, or the node it is on, that dies
is replaced and goes on from the last of them, bit for bit.  The same holds for the driver: `plan.json` says which chains run
together, since the last bits depend on that, and a resumed run keeps to it, however many devices there are by then.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from equibayes.errors import InputError
from equibayes.files import make_folder, remove_leftovers, write_text
from equibayes.run import checkpoint
from equibayes.run.cluster.connect import ClusterOptions, devices, packed
from equibayes.run.cluster.pool import Group, Pool
from equibayes.run.cluster.shards import Shard
from equibayes.run.cluster.worker import Began, Collected, Make, Recorded, Report, Said, Saved, Stepped, Worker
from equibayes.run.loop import Interrupted, check_same_run, collected_signals
from equibayes.run.progress import Display
from equibayes.run.records import MetricsLog
from equibayes.run.state import RunState
from equibayes.version import __version__

PLAN = "plan.json"
# in a row, without a new checkpoint in between: workers that vanish, and errors that they raise
LOST_WORKERS, ERRORS = 20, 3
# seconds: between two looks at R-hat; for workers to save when the user stops; until a group that waits for a device is mentioned;
# for each fault in a row, before another worker begins; between two looks at all chains
LOOK, LEAVE, WAIT = 5.0, 60.0, 30.0
PAUSE, TELL = 0.1, 0.2


class Crew:
    """A group of chains and the worker (or the workers that share its data) that it runs on now."""

    def __init__(self, group: Group, folder: Path) -> None:
        self.group, self.folder = group, folder
        self.workers: list[Any] = []
        self.streams: list[Any] = []
        self.placement: Any = None
        self.meeting: Any = None  # where workers that share data meet, as soon as it is known
        self.saved = -1  # step of the last checkpoint
        self.vanished = self.errors = 0
        self.asked = time.monotonic()
        self.began = self.done = False
        self.said: set[str] = set()

    def newest(self, say: Callable[[str], None]) -> checkpoint.Checkpoint | None:
        """What to go on from; None to begin."""
        return checkpoint.load_newest(self.folder, say) if checkpoint.newest_first(self.folder) else None


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
        tensorboard: bool = False,
        on_sample: Callable[[Pool], None] = lambda pool: None,
    ) -> None:
        """make: makes the runner of a group, on a worker; about: what identifies the run; on_sample: called with all that is there
        whenever every chain has one more sample."""
        self.ray, self.make, self.total, self.about = ray, make, total_steps, about
        self.chains, self.options, self.folder = chains, options, folder
        self.display, self.tensorboard, self.on_sample = display, tensorboard, on_sample
        self.crews: list[Crew] = []
        self.pool = Pool([])
        self.agreement: dict[str, Any] = {}
        self.log: MetricsLog | None = None
        self.written = self.samples = 0
        self.shown, self.looked, self.started = -1, 0.0, False

    def run(self, *, resume: bool) -> Pool:
        """To the end of the schedule; an `InputError` where no chain gets there."""
        plan = self._read_plan() if resume else self._new_plan()
        self.device = plan["device"]
        self.threads, self.shards = plan["threads"], plan["shards"]
        self.plan, self.crews = plan, []
        for identities in plan["groups"]:
            self._add_crew(identities)
        for crew in self.crews:
            self._remember(crew)
        self.written = min(crew.group.step for crew in self.crews)
        self.log = MetricsLog(self.folder, keep_until=self.written, tensorboard=self.tensorboard)
        self.make_reference = self.ray.put(self.make)
        self.actor = self.ray.remote(Worker)
        try:
            self.display.say(self._packing())
            with collected_signals() as pending:
                self._look_after(pending)
        finally:
            if self.started:
                self.display.stop()
            self.log.close()
            for crew in self.crews:
                self._dismiss(crew)
        kept = [crew for crew in self.crews if crew.group.lost is None]
        if not kept:
            raise InputError(f"no chain came to its end; {self.crews[0].group.name}: {self.crews[0].group.lost}")
        for crew in kept:
            self._remember(crew)
        return self.pool

    # plan

    def _new_plan(self) -> dict[str, Any]:
        kind, count = devices(self.ray, self.options)
        groups = packed(self.chains, count, self.options.chains_per_device)
        options = self.options
        plan = {"groups": groups, "device": kind, "threads": options.threads, "shards": options.shards}
        write_text(self.folder / PLAN, json.dumps(plan) + "\n")
        return plan

    def _add_crew(self, identities: list[int]) -> Crew:
        crew = Crew(Group(identities), make_folder(self.folder / "workers" / f"{len(self.crews):03d}"))
        self.crews.append(crew)
        self._order_pool()
        return crew

    def _order_pool(self) -> None:
        """Groups in the order of their chains; a group that was split has its second half at the end of the crews."""
        self.pool = Pool(sorted((crew.group for crew in self.crews), key=lambda group: group.identities[0]))

    def _split(self, crew: Crew) -> None:
        """Too many chains for the memory of a device: two groups, of which one may have to wait for the other."""
        self._dismiss(crew)
        identities = crew.group.identities
        half = -(-len(identities) // 2)
        self.display.say(f"{crew.group.name} are too many for the memory of a device: two groups, in turn if need be")
        crew.group = Group(identities[:half])
        other = self._add_crew(identities[half:])
        # the checkpoint before the first step is of the whole group: removed before the plan changes, it is made again in any case
        checkpoint.remove_all(crew.folder)
        self.plan["groups"] = [each.group.identities for each in self.crews]
        write_text(self.folder / PLAN, json.dumps(self.plan) + "\n")
        crew.saved = -1
        self._start(crew)
        self._start(other)

    def _read_plan(self) -> dict[str, Any]:
        path = self.folder / PLAN
        if not path.is_file():
            raise InputError(f"{self.folder}: this run began without --cluster; resume it without")
        try:
            plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InputError(f"{path}: damaged; begin anew with --overwrite") from None
        return plan

    def _packing(self) -> str:
        sizes = [len(crew.group.identities) for crew in self.crews]
        each = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} or {max(sizes)}"
        kind = "GPU" if self.device == "cuda" else f"{self.threads} CPU core(s)"
        shared = f", {self.shards} of which share the data of a group" if self.shards > 1 else ""
        return f"{self.chains} chains in {len(sizes)} group(s) of {each}, each on a worker with {kind}{shared}"

    def _remember(self, crew: Crew) -> None:
        """What lies on the disk of a group."""
        remove_leftovers(crew.folder)
        saved = crew.newest(self.display.say)
        if saved is None:
            return
        check_same_run(saved.record["about"], self.about)
        state = RunState.from_checkpoint(saved, "cpu")
        crew.group.remember(state)
        crew.saved, crew.done = state.step, state.step >= self.total

    # workers

    def _start(self, crew: Crew) -> None:
        """Ask Ray for workers; where there is no room they begin as soon as there is."""
        options: dict[str, Any] = {
            "num_cpus": self.threads,
            "num_gpus": 1 if self.device == "cuda" else 0,
            "max_restarts": 0,
            "max_concurrency": 2,
        }
        if self.shards > 1:
            options |= self._placed_together(crew, options)
        crew.workers = [self.actor.options(**options).remote(self.device, self.threads) for _ in range(self.shards)]
        crew.asked, crew.began = time.monotonic(), False
        if self.shards > 1:
            crew.meeting = crew.workers[0].rendezvous.remote()
        else:
            self._send_off(crew, [Shard()])

    def _send_off(self, crew: Crew, shards: list[Shard]) -> None:
        saved = crew.newest(self.display.say)
        crew.streams = [
            worker.run.options(num_returns="streaming").remote(self.make_reference, crew.group.identities, saved, shard)
            for worker, shard in zip(crew.workers, shards)
        ]

    def _meet(self, crew: Crew, leaving: bool) -> None:
        """Workers that share data begin when the first of them has said where they meet."""
        if not self.ray.wait([crew.meeting], timeout=0)[0]:
            return
        try:
            address = self.ray.get(crew.meeting)
        except self.ray.exceptions.RayError as cause:
            self._vanished(crew, cause, leaving)
            return
        crew.meeting = None
        self._send_off(crew, [Shard(rank, self.shards, address) for rank in range(self.shards)])

    def _placed_together(self, crew: Crew, options: dict[str, Any]) -> dict[str, Any]:
        """All workers of a group or none: else two groups could wait for each other for ever."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = {"CPU": options["num_cpus"], **({"GPU": 1} if options["num_gpus"] else {})}
        crew.placement = placement_group([bundle] * self.shards, strategy="PACK")
        return {"scheduling_strategy": PlacementGroupSchedulingStrategy(crew.placement)}

    def _dismiss(self, crew: Crew) -> None:
        for worker in crew.workers:
            self.ray.kill(worker)
        if crew.placement is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(crew.placement)
        crew.workers, crew.streams, crew.placement, crew.meeting = [], [], None, None

    # the loop

    def _look_after(self, pending: list[int]) -> None:
        for crew in self.crews:
            if not crew.done:
                self._start(crew)
        leave_at, told = None, 0.0
        while any(crew.workers for crew in self.crews):
            leaving = leave_at is not None
            for crew in self.crews:
                if crew.meeting is not None:
                    self._meet(crew, leaving)
            heard = self._hear_all(leaving)
            if not heard or time.monotonic() - told > TELL:
                self._tell()
                told = time.monotonic()
            if pending and leave_at is None:
                self.display.say("stopping: the workers save where they are")
                leave_at = time.monotonic() + LEAVE
                for crew in self.crews:
                    if crew.began:
                        crew.workers[0].stop.remote()
                    else:
                        self._dismiss(crew)
            if leave_at is not None and time.monotonic() > leave_at:
                break
        self._tell()
        if pending:
            raise Interrupted(pending[0], min(max(crew.saved, 0) for crew in self.crews))

    def _hear_all(self, leaving: bool) -> bool:
        """One report of each worker that has one; whether there was any."""
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
                self._dismiss(crew)
            elif not crew.streams:
                crew.errors += 1
                self._replace(crew, "its worker ended too early", crew.errors > ERRORS, leaving)
        except InputError as cause:
            self._give_up(crew, _words(cause))
        except self.ray.exceptions.RayTaskError as cause:
            if not leaving and crew.saved <= 0 and len(crew.group.identities) > 1 and _out_of_memory(cause):
                self._split(crew)
                return
            crew.errors += 1
            self._replace(crew, _words(cause), crew.errors > ERRORS, leaving)
        except self.ray.exceptions.RayError as cause:
            self._vanished(crew, cause, leaving)
        else:
            self._take(crew, report)

    def _vanished(self, crew: Crew, cause: BaseException, leaving: bool) -> None:
        crew.vanished += 1
        self._replace(crew, f"its worker is gone ({_words(cause)})", crew.vanished > LOST_WORKERS, leaving)

    def _replace(self, crew: Crew, why: str, too_often: bool, leaving: bool) -> None:
        self._dismiss(crew)
        if leaving:
            return
        if too_often:
            self._give_up(crew, why)
            return
        self.display.say(f"{crew.group.name}: {why}; another worker goes on from step {max(crew.saved, 0)}")
        time.sleep(min(PAUSE * (crew.vanished + crew.errors), 2.0))  # a fault that comes at once, again and again
        self._start(crew)

    def _give_up(self, crew: Crew, why: str) -> None:
        self._dismiss(crew)
        crew.group.lost = why
        self.display.say(
            f"{crew.group.name} {'is' if len(crew.group.identities) == 1 else 'are'} left out, the others go on: {why}"
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
            self.display.show({**record, "r_hat": self.agreement.get("r_hat_forces")})
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


def forget(folder: Path) -> None:
    """Remove what an earlier run on a cluster left in a folder."""
    (folder / PLAN).unlink(missing_ok=True)
    for group in (folder / "workers").glob("[0-9]*"):
        checkpoint.remove_all(group)


def began_on_cluster(folder: Path) -> bool:
    """Whether a run folder belongs to a run on a cluster."""
    return (folder / PLAN).is_file()


def _out_of_memory(cause: BaseException) -> bool:
    """Of a GPU, or of the CPU where the system refuses memory."""
    inner = getattr(cause, "cause", None) or cause
    return isinstance(inner, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(inner)


def _words(cause: BaseException) -> str:
    """One line: of an error that a worker raised, the error itself and not Ray's account of it."""
    inner = getattr(cause, "cause", None) or cause
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    name = "" if isinstance(inner, InputError) else f"{type(inner).__name__}: "
    return (name + (lines[0] if lines else "")).rstrip(": ")
