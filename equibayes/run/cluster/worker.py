"""What runs on a device of a cluster: some chains of a run, which report to the driver as they go.

A worker keeps nothing on its disk.  Records, samples and checkpoints travel to the driver, which alone writes files, so nodes need no
file system in common, and a worker that is started elsewhere is given the last checkpoint to go on from, bit for bit.
"""

import platform
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from equibayes.allocator import keep_freed_memory
from equibayes.run.checkpoint import Checkpoint
from equibayes.run.cluster.shards import Shard
from equibayes.run.loop import ChainRunner, Interrupted, check_same_run
from equibayes.run.progress import Silent
from equibayes.run.records import MetricsLog
from equibayes.run.state import RunState
from equibayes.version import __version__

# seconds between two reports of the step alone
STEP_REPORTS = 0.5


@dataclass(frozen=True)
class Began:
    """Where the chains run now, and with which versions."""

    node: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Stepped:
    """How far the chains are."""

    step: int


@dataclass(frozen=True)
class Said:
    """Something for a person to read."""

    message: str


@dataclass(frozen=True)
class Recorded:
    """A line of history."""

    record: dict[str, Any]


@dataclass(frozen=True)
class Collected:
    """Posterior sample `number` of every chain, [K, P], and which of them count, [K]."""

    number: int
    samples: torch.Tensor
    kept: torch.Tensor


@dataclass(frozen=True)
class Saved:
    """All that is needed to go on from `step`."""

    step: int
    checkpoint: Checkpoint


Report = Began | Stepped | Said | Recorded | Collected | Saved
Send = Callable[[Report], None]


class ReportingRunner(ChainRunner):
    """A `ChainRunner` that sends what it would write."""

    send: Send
    saved: Checkpoint | None = None
    stops: list[int]

    def report_to(self, send: Send, saved: Checkpoint | None) -> None:
        self.send, self.saved, self.stops = send, saved, []
        self.display = Reporter(send)

    def _resumed(self) -> RunState:
        assert self.saved is not None
        check_same_run(self.saved.record["about"], self.about)
        # clones: a tensor that came over the network is not aligned as usual, which some kernels' last bits depend on
        tensors = {name: tensor.clone() for name, tensor in self.saved.tensors.items()}
        return RunState.from_checkpoint(Checkpoint(tensors, self.saved.record), self.device)

    def _loop(self, state: RunState, log: MetricsLog | None, pending: list[int]) -> None:
        super()._loop(state, log, self.stops)

    def _collect(self, state: RunState) -> None:
        super()._collect(state)
        self.send(Collected(len(state.samples) - 1, state.samples[-1], state.kept[-1]))

    def _save(self, state: RunState) -> None:
        tensors, record = state.to_checkpoint(self.about)
        # copies: the first steps go on in these very tensors while they travel
        copies = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        lists = {"history": list(record["history"]), "events": list(record["events"])}
        self.send(Saved(state.step, Checkpoint(copies, {**record, **lists})))


class Reporter(Silent):
    """A display that passes on what it is told."""

    def __init__(self, send: Send) -> None:
        self.send, self.last = send, 0.0

    def advance(self, step: int) -> None:
        if time.monotonic() - self.last >= STEP_REPORTS:
            self.last = time.monotonic()
            self.send(Stepped(step))

    def show(self, record: dict[str, Any]) -> None:
        self.send(Recorded(record))

    def say(self, message: str) -> None:
        self.send(Said(message))


Make = Callable[[Sequence[int], str, Shard], ReportingRunner]
"""Makes the runner of the chains with these numbers on a device, cpu or cuda; `Shard` says which part of the data this worker holds."""


class Worker:
    """The actor: one device.  Two threads, since it must hear `stop` while chains run."""

    def __init__(self, device: str, threads: int) -> None:
        keep_freed_memory()
        self.device, self.threads = device, threads
        self.runner: ReportingRunner | None = None
        self.stopping = False

    def rendezvous(self) -> str:
        """Where the workers that share the data of some chains can meet: this one listens."""
        from ray.util import get_node_ip_address

        return f"tcp://{get_node_ip_address()}:{free_port()}"

    def run(
        self, make: Make, identities: Sequence[int], saved: Checkpoint | None, shard: Shard | None = None
    ) -> Iterator[Report]:
        """Run the chains from the start, or from a checkpoint; yields reports until the end of the schedule."""
        torch.set_num_threads(self.threads)  # here: the number belongs to the thread that computes
        reports: queue.SimpleQueue[Report | BaseException | None] = queue.SimpleQueue()
        worker = threading.Thread(
            target=self._work, args=(make, identities, saved, shard or Shard(), reports.put), daemon=True
        )
        worker.start()
        while (report := reports.get()) is not None:
            if isinstance(report, BaseException):
                raise report
            yield report
        worker.join()

    def stop(self) -> None:
        """Save and leave, at the next step."""
        self.stopping = True
        if self.runner is not None:
            self.runner.stops.append(int(signal.SIGTERM))

    def _work(
        self,
        make: Make,
        identities: Sequence[int],
        saved: Checkpoint | None,
        shard: Shard,
        put: Callable[[Report | BaseException | None], None],
    ) -> None:
        try:
            torch.set_num_threads(self.threads)
            put(Began(platform.node(), {"equibayes": __version__, "torch": torch.__version__}))
            with shard.joined():
                runner = make(identities, self.device, shard)
                runner.report_to(put if shard.rank == 0 else _nobody, saved)
                self.runner = runner
                if self.stopping:  # the user did not wait for the data to be prepared
                    self.stop()
                runner.run(resume=saved is not None)
            put(None)
        except Interrupted:
            put(None)
        except BaseException as cause:
            put(cause)


def _nobody(report: Report) -> None:
    """Of several workers on the same chains, one reports."""


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
