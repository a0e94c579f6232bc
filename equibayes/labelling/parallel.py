"""Many labels at once, on the nodes of a Ray cluster.

    labels = ParallelLabels(ray, "gfn2-xtb", at_once=8)
    for number, answer in labels.label_many(structures):     # in the order in which they come
        …

Every worker holds an engine (see `labellers.py`), which has a time limit.  A structure that is refused is tried again by
another worker; one whose worker or node dies is begun anew.  One that takes much longer than the others is not waited for: it stays
with its worker, and whoever asks for it later gets the answer.
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

# how often a structure is begun anew because its worker was gone
LOST_WORKERS = 5
# s: nothing that takes less is ever called slow (an engine needs some to start); for a worker that should have refused to be ended
LEAST_PATIENCE_S, GRACE_S = 30.0, 60.0


class Engine:
    """The actor: a labeller that is started when it is first needed."""

    def __init__(self, engine: str, settings: Mapping[str, Any], time_limit_s: float) -> None:
        self.make: Callable[[], Labeller] = lambda: Labeller(engine, settings, time_limit_s=time_limit_s)
        self.labeller: Labeller | None = None

    def label(self, structure: Structure) -> Label | Refusal:
        if self.labeller is None:
            self.labeller = self.make()
        return self.labeller.label(structure)


@dataclass
class Job:
    """A structure on its way."""

    structure: Structure
    refused: int = 0
    lost: int = 0
    started: float = 0.0
    worker: Any = None
    answer: Label | Refusal | None = None


class ParallelLabels:
    """A labeller with many workers.

    at_once       structures at a time, for this engine (a licence or a disk may allow fewer than there are cores)
    retries       times that a structure which was refused is tried again
    patience      a label is slow where it takes longer than this many times the median of those before
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
        # no cores are reserved: a slow label must not keep chains from their place
        actor = ray.remote(Engine).options(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD")
        self._new_worker: Callable[[], Any] = lambda: actor.remote(engine, dict(settings or {}), time_limit_s)
        self._idle: list[Any] = []
        self._waiting: deque[bytes] = deque()
        self._running: dict[Any, bytes] = {}
        self._jobs: dict[bytes, Job] = {}
        self._seconds: list[float] = []

    def label(self, structure: Structure) -> Label | Refusal:
        """One structure, waited for however long it takes."""
        ((_, answer),) = self.label_many([structure], patience=float("inf"))
        return answer

    def label_many(
        self, structures: Sequence[Structure], *, patience: float | None = None
    ) -> Iterator[tuple[int, Label | Refusal]]:
        """Answers with the numbers of their structures, as they come; slow ones are left out once there is another answer.

        patience: 0 takes what is there, and waits for nothing.
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
            self._go_on(0.0 if allowed == 0 else 0.2)
            for digest in [digest for digest in numbers if self._jobs[digest].answer is not None]:
                answer = self._jobs.pop(digest).answer
                assert answer is not None
                answered = answered or isinstance(answer, Label)
                for number in numbers.pop(digest):
                    yield number, answer
            if allowed == 0 or (answered and self._only_slow(allowed)):
                break
        for worker in self._idle:  # what they hold is free for chains
            self.ray.kill(worker)
        self._idle.clear()

    @property
    def late(self) -> int:
        """Structures that are still on their way."""
        return len(self._jobs)

    def close(self) -> None:
        for worker in [*self._idle, *(self._jobs[digest].worker for digest in self._running.values())]:
            self.ray.kill(worker)
        self._idle.clear()
        self._running.clear()
        self._waiting.clear()
        self._jobs.clear()

    def _only_slow(self, patience: float) -> bool:
        """Nothing waits for a worker, and what is running takes too long."""
        if self._waiting or not self._seconds:
            return False
        limit = max(LEAST_PATIENCE_S, patience * median(self._seconds))
        now = time.monotonic()
        return all(now - self._jobs[digest].started > limit for digest in self._running.values())

    def _go_on(self, seconds: float) -> None:
        """Give work to workers, and hear those that are done within so many seconds."""
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
            self._hear(reference, self._running.pop(reference))
        limit = self.time_limit_s + START_LIMIT_S + GRACE_S
        for reference in rest:
            job = self._jobs[self._running[reference]]
            if time.monotonic() - job.started > limit:
                self.ray.kill(job.worker)  # its error is heard next time

    def _hear(self, reference: Any, digest: bytes) -> None:
        job = self._jobs[digest]
        seconds = time.monotonic() - job.started
        try:
            answer: Label | Refusal = self.ray.get(reference)
        except InputError as cause:  # the engine is not there, or refuses its settings: so it is for all
            raise InputError(str(getattr(cause, "cause", cause))) from None
        except self.ray.exceptions.RayError as cause:
            job.lost += 1
            words = (str(cause).splitlines() or [""])[0]
            if job.lost <= LOST_WORKERS:
                self._waiting.append(digest)
            else:
                job.answer = Refusal(f"its worker was lost {job.lost} times ({words})", seconds)
            return
        self._idle.append(job.worker)
        if isinstance(answer, Refusal) and job.refused < self.retries:
            job.refused += 1
            # to the front of the idle, so that another worker takes it
            self._idle.insert(0, self._idle.pop())
            self._waiting.append(digest)
            return
        self._seconds.append(seconds)
        job.answer = answer
