"""A group of chains and the workers that run it: asked for, started from the last checkpoint, and dismissed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from equibayes.errors import InputError
from equibayes.run import checkpoint
from equibayes.run.cluster.plan import Plan
from equibayes.run.cluster.pool import Group
from equibayes.run.cluster.shards import Shard
from equibayes.run.state import RunState


@dataclass(frozen=True)
class Staff:
    """What workers are made of: Ray, the actor class, and a reference to what makes their chains."""

    ray: Any
    actor: Any
    make: Any
    plan: Plan


class Crew:
    """A group of chains and the worker (or the workers that share its data) that it runs on now."""

    def __init__(self, group: Group, folder: Path, staff: Staff, say: Callable[[str], None]) -> None:
        self.group, self.folder, self.staff, self.say = group, folder, staff, say
        self.workers: list[Any] = []
        self.streams: list[Any] = []
        self.placement: Any = None
        self.meeting: Any = None  # address at which workers that share data meet, as soon as it is known
        self.saved = -1  # step of the last checkpoint
        self.vanished = self.errors = 0
        self.asked = time.monotonic()
        self.began = self.done = False
        self.said: set[str] = set()

    def newest(self) -> checkpoint.Checkpoint | None:
        """The checkpoint to continue from; None to begin."""
        return (
            checkpoint.load_newest(self.folder, self.say, RunState.check)
            if checkpoint.newest_first(self.folder)
            else None
        )

    def start(self) -> None:
        """Ask Ray for workers.  Where there is no room, they begin as soon as there is."""
        plan = self.staff.plan
        options: dict[str, Any] = {
            "num_cpus": plan.threads,
            "num_gpus": 1 if plan.device == "cuda" else 0,
            "max_restarts": 0,
            "max_concurrency": 2,
        }
        if plan.shards > 1:
            options |= self._placed_together(options)
        actor = self.staff.actor.options(**options)
        self.workers = [actor.remote(plan.device, plan.threads) for _ in range(plan.shards)]
        self.asked, self.began = time.monotonic(), False
        if plan.shards > 1:
            self.meeting = self.workers[0].rendezvous.remote()
        else:
            self._send_off([Shard()])

    def meet(self) -> None:
        """Workers that share data begin when the first of them has told where they meet.  May raise Ray's errors."""
        if self.meeting is None or not self.staff.ray.wait([self.meeting], timeout=0)[0]:
            return
        address, self.meeting = self.staff.ray.get(self.meeting), None
        shards = self.staff.plan.shards
        self._send_off([Shard(rank, shards, address) for rank in range(shards)])

    def stop(self) -> None:
        """Have the workers save and leave; those that have not begun leave at once."""
        if self.began:
            self.workers[0].stop.remote()
        else:
            self.dismiss()

    def dismiss(self) -> None:
        for worker in self.workers:
            self.staff.ray.kill(worker)
        if self.placement is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self.placement)
        self.workers, self.streams, self.placement, self.meeting = [], [], None, None

    def _send_off(self, shards: list[Shard]) -> None:
        saved = self.newest()
        self.streams = [
            worker.run.options(num_returns="streaming").remote(self.staff.make, self.group.identities, saved, shard)
            for worker, shard in zip(self.workers, shards)
        ]

    def _placed_together(self, options: dict[str, Any]) -> dict[str, Any]:
        """All workers of a group or none: otherwise two groups could wait for each other forever."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = {"CPU": options["num_cpus"], **({"GPU": 1} if options["num_gpus"] else {})}
        self.placement = placement_group([bundle] * self.staff.plan.shards, strategy="PACK")
        return {"scheduling_strategy": PlacementGroupSchedulingStrategy(self.placement)}


def out_of_memory(cause: BaseException) -> bool:
    """Of a GPU, or of the CPU where the system refuses memory."""
    inner = getattr(cause, "cause", None) or cause
    return isinstance(inner, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(inner)


def error_line(cause: BaseException) -> str:
    """An error that a worker raised, without Ray's account of it."""
    inner = getattr(cause, "cause", None) or cause
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    name = "" if isinstance(inner, InputError) else f"{type(inner).__name__}: "
    return (name + (lines[0] if lines else "")).rstrip(": ")
