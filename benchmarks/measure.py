"""Times and memory, measured so that a busy machine does less harm."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: median, and how far the quartiles are apart relative to it."""

    seconds: float
    spread: float
    best: float
    rounds: int

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def interleaved(contestants: dict[str, Callable[[], Any]], rounds: int, warm_up: int = 2) -> dict[str, Timing]:
    """Time the contestants turn by turn, so that a slow moment of the machine meets all of them."""
    for _ in range(warm_up):
        for call in contestants.values():
            call()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: summary(values) for name, values in times.items()}


def processor_time(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of processor time of a call, turn by turn; fast calls are repeated within a turn.

    A contestant that works in another process has a method `seconds` that says how long some calls took there.
    """
    repeats = {}
    for name, call in contestants.items():
        spent(call, 1)
        repeats[name] = max(1, int(0.02 / max(1e-6, spent(call, 1))))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            times[name].append(spent(call, repeats[name]) / repeats[name])
    return {name: summary(values).to_dict() for name, values in times.items()}


def spent(call: Any, repeats: int) -> float:
    """Processor time of so many calls, s."""
    if hasattr(call, "seconds"):
        return float(call.seconds(repeats))
    start = time.process_time()
    for _ in range(repeats):
        call()
    return time.process_time() - start


def summary(values: Sequence[float]) -> Timing:
    low, high = np.quantile(values, [0.25, 0.75])
    middle = median(values)
    return Timing(middle, float((high - low) / middle), min(values), len(values))


class MemoryPeak:
    """Memory (MiB) that this process holds now, and the most it held since.

    Linux tells both and lets the peak be reset; the peak of `getrusage` would include that of the process that
    started this one.
    """

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self.before = _status("VmRSS")

    def extra(self) -> float:
        """Peak since the start over what was held then."""
        return _status("VmHWM") - self.before


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def in_fresh_process(script: str, job: dict[str, Any]) -> dict[str, Any]:
    """Run `script --job JSON`, which prints one JSON line: a peak of memory can only be measured once a process."""
    command = [sys.executable, script, "--job", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{job} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def growth(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Exponent of a power law through the points: the slope of the logarithms.  1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
