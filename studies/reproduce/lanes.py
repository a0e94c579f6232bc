"""Runs several studies at a time, within a time limit."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from studies.reproduce.jobs import Job, Pace

OTHERS_PERCENT = "70"
"""Percentage of a GPU that the others may use beside the longest study."""
LOOK_S, WINDOW_S, SPARE_S = 5.0, 30.0, 60.0
"""Seconds between checks of the longest study, for the average of its speed, and to spare at the end."""


class Lanes:
    """Runs jobs, several at a time, until all are done or the time is over; then all are stopped in good order."""

    def __init__(self, jobs: Sequence[Job], logs: Path, deadline: float) -> None:
        self.waiting = sorted(jobs, key=lambda job: job.pace is None)
        self.logs, self.deadline = logs, deadline
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ended: dict[str, int] = {}
        self.known = {job.name for job in jobs}
        self.paced = any(job.pace for job in jobs)
        self.lock = threading.Lock()

    def run(self, lanes: int) -> dict[str, int]:
        """Exit codes by name; a job that was not started has none."""
        threads = [threading.Thread(target=self._lane) for _ in range(lanes)]
        threads += [threading.Thread(target=self._keep_pace, args=(job, job.pace)) for job in self.waiting if job.pace]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.ended

    def _lane(self) -> None:
        while time.monotonic() < self.deadline:
            job = self._next()
            if job:
                self._carry_out(job)
            elif not self.waiting:
                return
            else:
                time.sleep(0.5)  # the remaining jobs wait for another

    def _next(self) -> Job | None:
        with self.lock:
            for job in self.waiting:
                first = job.after if job.after in self.known else None
                if first is None or self.ended.get(first) == 0:
                    self.waiting.remove(job)
                    return job
                if first in self.ended:  # it failed, so this job cannot run
                    self.waiting.remove(job)
                    return None
        return None

    def _carry_out(self, job: Job) -> None:
        began = time.monotonic()
        print(f"{job.name}: starts", flush=True)
        with (self.logs / f"{job.name}.log").open("a") as log:
            environment = os.environ | {"CUDA_MPS_CLIENT_PRIORITY": "0" if job.pace else "1"}
            if self.paced and not job.pace:
                environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = OTHERS_PERCENT
            process = subprocess.Popen(job.command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            with self.lock:
                self.running[job.name] = process
            try:
                code = process.wait(max(0.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)  # the study writes a checkpoint
                process.send_signal(signal.SIGCONT)  # in case it was paused
                process.wait()
                code = 130
        outcome = {0: "done", 130: "stopped, can be continued"}.get(code, f"FAILED with {code}, see its log")
        with self.lock:
            del self.running[job.name]
            self.ended[job.name] = code
        print(f"{job.name}: {outcome}, {time.monotonic() - began:.0f} s", flush=True)

    def _keep_pace(self, job: Job, pace: Pace) -> None:
        """Pause the other jobs whenever this one would end too late."""
        seen: list[tuple[float, int]] = []
        while job.name not in self.ended and time.monotonic() < self.deadline:
            now = time.monotonic()
            seen = [*(look for look in seen if now - look[0] < WINDOW_S), (now, pace.step())]
            (since, before), (_, step) = seen[0], seen[-1]
            left = self.deadline - SPARE_S - now
            late = step > before and (pace.steps - step) * (now - since) > left * (step - before)
            self._signal_others(job, signal.SIGSTOP if late else signal.SIGCONT)
            time.sleep(LOOK_S)
        self._signal_others(job, signal.SIGCONT)

    def _signal_others(self, job: Job, sent: signal.Signals) -> None:
        with self.lock:
            for name, process in self.running.items():
                if name != job.name:
                    process.send_signal(sent)
