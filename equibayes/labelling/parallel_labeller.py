"""Many labels at once, on the nodes of a Ray cluster.

    labeller = ParallelLabeller(ray, "gfn2-xtb", at_once=8)
    for number, answer in labeller.label_many(structures):     # in the order in which they finish
        …

Every worker runs an engine with a time limit (see `labellers.py`).  A refused structure is tried again by another
worker; one whose worker or node dies is restarted.  A structure that takes much longer than the others is not waited
for: its worker continues, and a later call gets the answer.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.labelling.labellers import START_LIMIT_S, TIME_LIMIT_S, Label, Labeller, Refusal
from equibayes.plural import counted

LOST_WORKERS = 5
"""How often a structure is restarted after the loss of its worker."""

LEAST_PATIENCE_S = 30.0
"""A label that takes less is never called slow: an engine needs some time to start."""

GRACE_S = 60.0
"""Time beyond all limits after which a silent worker is killed."""


class LabellingActor:
    """A Ray actor with a labeller, started when first needed."""

    def __init__(self, engine: str, settings: Mapping[str, Any], time_limit_s: float) -> None:
        self.make: Callable[[], Labeller] = lambda: Labeller(engine, settings, time_limit_s=time_limit_s)
        self.labeller: Labeller | None = None

    def label(self, structure: Structure) -> Label | Refusal:
        if self.labeller is None:
            self.labeller = self.make()
        return self.labeller.label(structure)


@dataclass
class Job:
    """A structure that is being labelled."""

    structure: Structure
    refused: int = 0
    lost: int = 0
    started: float = 0.0
    worker: Any = None
    answer: Label | Refusal | None = None


class ParallelLabeller:
    """A labeller with many workers.

    at_once       structures at a time (a licence or a disk may allow fewer than there are cores)
    retries       how often a refused structure is tried again
    patience      a label is slow if it takes longer than this multiple of the median so far
    """

    def __init__(
        self,
        ray: Any,
        engine: str,
        settings: Mapping[str, Any] | None = None,
        *,
        time_limit_s: float = TIME_LIMIT_S,
        at_once: int | None = None,
        retries: int = 1,
        patience: float = 3.0,
    ) -> None:
        for name, value, least in (("label-workers", at_once, 1), ("label-retries", retries, 0)):
            if value is not None and value < least:
                raise InputError(f"--{name} {value}: must be at least {least}")
        if not patience > 0:
            raise InputError(f"--label-patience {patience:g}: must be above 0")
        self.ray, self.retries, self.patience, self.time_limit_s = ray, retries, patience, time_limit_s
        self.at_once = at_once or max(1, int(ray.cluster_resources().get("CPU", 1)))
        # no cores are reserved: a slow label must not keep chains waiting
        actor = ray.remote(LabellingActor).options(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD")
        self._new_worker: Callable[[], Any] = lambda: actor.remote(engine, dict(settings or {}), time_limit_s)
        self._idle: list[Any] = []
        self._waiting: deque[bytes] = deque()
        self._running: dict[Any, bytes] = {}
        self._jobs: dict[bytes, Job] = {}
        self._seconds: list[float] = []

    def label(self, structure: Structure) -> Label | Refusal:
        """Label one structure, without giving up on slow ones."""
        ((_, answer),) = self.label_many([structure], patience=float("inf"))
        return answer

    def label_many(
        self, structures: Sequence[Structure], *, patience: float | None = None
    ) -> Iterator[tuple[int, Label | Refusal]]:
        """Numbers of structures with their answers, as they finish; slow ones are left out once there is another
        answer.

        patience: 0 returns finished answers without waiting.
        """
        numbers: dict[bytes, list[int]] = {}
        for number, structure in enumerate(structures):
            digest = structure.geometry_digest()
            numbers.setdefault(digest, []).append(number)
            if digest not in self._jobs:
                self._jobs[digest] = Job(structure)
                self._waiting.append(digest)
        allowed = self.patience if patience is None else patience
        answered = False
        while numbers:
            self._dispatch(0.0 if allowed == 0 else 0.2)
            for digest in [digest for digest in numbers if self._jobs[digest].answer is not None]:
                answer = self._jobs.pop(digest).answer
                assert answer is not None
                answered = answered or isinstance(answer, Label)
                for number in numbers.pop(digest):
                    yield number, answer
            if allowed == 0 or (answered and self._only_slow(allowed)):
                break
        for worker in self._idle:  # frees their resources for chains
            self.ray.kill(worker)
        self._idle.clear()

    def close(self) -> None:
        for worker in [*self._idle, *(self._jobs[digest].worker for digest in self._running.values())]:
            self.ray.kill(worker)
        self._idle.clear()
        self._running.clear()
        self._waiting.clear()
        self._jobs.clear()

    def _only_slow(self, patience: float) -> bool:
        """Whether no structure waits for a worker and all running ones are slow."""
        if self._waiting or not self._seconds:
            return False
        limit = max(LEAST_PATIENCE_S, patience * median(self._seconds))
        now = time.monotonic()
        return all(now - self._jobs[digest].started > limit for digest in self._running.values())

    def _dispatch(self, seconds: float) -> None:
        """Give structures to workers, and collect the answers of the next `seconds`."""
        while self._waiting and len(self._running) < self.at_once:
            digest = self._waiting.popleft()
            job = self._jobs[digest]
            job.worker = self._idle.pop() if self._idle else self._new_worker()
            job.started = time.monotonic()
            self._running[job.worker.label.remote(job.structure)] = digest
        if not self._running:
            return
        ready, rest = self.ray.wait(list(self._running), num_returns=len(self._running), timeout=seconds)
        for reference in ready:
            self._collect(reference, self._running.pop(reference))
        limit = self.time_limit_s + START_LIMIT_S + GRACE_S
        for reference in rest:
            job = self._jobs[self._running[reference]]
            if time.monotonic() - job.started > limit:
                self.ray.kill(job.worker)  # its error is collected next time

    def _collect(self, reference: Any, digest: bytes) -> None:
        job = self._jobs[digest]
        seconds = time.monotonic() - job.started
        try:
            answer: Label | Refusal = self.ray.get(reference)
        except InputError as cause:  # the engine is missing or refuses its settings, for all structures
            raise InputError(str(getattr(cause, "cause", cause))) from None
        except self.ray.exceptions.RayError as cause:
            job.lost += 1
            words = (str(cause).splitlines() or [""])[0]
            if job.lost <= LOST_WORKERS:
                self._waiting.append(digest)
            else:
                job.answer = Refusal(f"its worker was lost {counted(job.lost, 'time')} ({words})", seconds)
            return
        self._idle.append(job.worker)
        if isinstance(answer, Refusal) and job.refused < self.retries:
            job.refused += 1
            # last in line, so that another worker takes the structure
            self._idle.insert(0, self._idle.pop())
            self._waiting.append(digest)
            return
        self._seconds.append(seconds)
        job.answer = answer
