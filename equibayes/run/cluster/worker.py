"""Runs a group of chains on one device of a cluster and reports to the driver.

A worker writes no files.  Records, samples and checkpoints are sent to the driver, so nodes need no shared file system,
and a new worker elsewhere can continue from the last checkpoint, bit for bit.
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
from equibayes.run.chains import Chains
from equibayes.run.checkpoint import Checkpoint
from equibayes.run.cluster.shards import Shard
from equibayes.run.interrupt import Interrupted
from equibayes.run.loop import run
from equibayes.run.progress import Silent
from equibayes.run.store import Store
from equibayes.version import __version__

# seconds between two reports of the step alone
STEP_REPORTS = 0.5


@dataclass(frozen=True)
class Began:
    """Node on which the chains run, and its versions."""

    node: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Stepped:
    """Step that the chains have reached."""

    step: int


@dataclass(frozen=True)
class Said:
    """A message for the user."""

    message: str


@dataclass(frozen=True)
class Recorded:
    """A record of the history."""

    record: dict[str, Any]


@dataclass(frozen=True)
class Collected:
    """Posterior sample `number` of every chain, [K, P], and which of them count, [K]."""

    number: int
    samples: torch.Tensor
    kept: torch.Tensor


@dataclass(frozen=True)
class Saved:
    """Everything needed to continue from `step`."""

    step: int
    checkpoint: Checkpoint


Report = Began | Stepped | Said | Recorded | Collected | Saved
Send = Callable[[Report], None]


class RemoteStore(Store):
    """Sends what a folder would keep, and continues from the checkpoint that the worker was given."""

    def __init__(self, send: Send, saved: Checkpoint | None = None) -> None:
        self.send, self.saved = send, saved

    def load(self, say: Callable[[str], None]) -> Checkpoint | None:
        if self.saved is None:
            return None
        # clones: a tensor from the network is not aligned as usual, and the last bits of some kernels depend on that
        tensors = {name: tensor.clone() for name, tensor in self.saved.tensors.items()}
        return Checkpoint(tensors, self.saved.record)

    def collect(self, number: int, samples: torch.Tensor, kept: torch.Tensor) -> None:
        self.send(Collected(number, samples, kept))

    def save(self, step: int, state: Checkpoint) -> None:
        # copies: the next steps change these tensors and lists while they are being sent
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in state.tensors.items()}
        lists = {"history": list(state.record["history"]), "events": list(state.record["events"])}
        self.send(Saved(step, Checkpoint(tensors, {**state.record, **lists})))


class Reporter(Silent):
    """A display that sends what it is told."""

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


Make = Callable[[Sequence[int], str, Shard], Chains]
"""Makes the chains with given identities on a device, cpu or cuda; see `maker.py`."""


class Worker:
    """The Ray actor: one device.  It has two threads, so that `stop` is heard while chains run."""

    def __init__(self, device: str, threads: int) -> None:
        keep_freed_memory()
        self.device, self.threads = device, threads
        self.stops: list[int] = []

    def display(self, send: Send) -> Silent:
        return Reporter(send)

    def rendezvous(self) -> str:
        """Address at which this worker listens for the others that share the data of its chains."""
        from ray.util import get_node_ip_address

        return f"tcp://{get_node_ip_address()}:{free_port()}"

    def run(
        self, make: Make, identities: Sequence[int], saved: Checkpoint | None, shard: Shard | None = None
    ) -> Iterator[Report]:
        """Run the chains from the start, or from a checkpoint; yields reports until the end of the schedule."""
        torch.set_num_threads(self.threads)  # the setting belongs to the thread that computes
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
        self.stops.append(int(signal.SIGTERM))

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
            send = put if shard.rank == 0 else _nobody
            with shard.joined():
                run(
                    make(identities, self.device, shard), RemoteStore(send, saved), self.display(send), stops=self.stops
                )
            put(None)
        except Interrupted:
            put(None)
        except BaseException as cause:
            put(cause)


def _nobody(report: Report) -> None:
    """Only one of several workers on the same chains reports."""


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
