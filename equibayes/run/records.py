"""Records of a run: the history in the posterior file, and `metrics.jsonl`."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.bayes.potential import Evaluation
from equibayes.errors import InputError
from equibayes.files import reason, write_text
from equibayes.network.weights import Layout
from equibayes.run.settings import OutputSettings
from equibayes.run.sinks import open_sinks
from equibayes.sampling import diagnostics, sghmc
from equibayes.sampling.schedule import StepPlan


def make_record(
    step: int,
    plan: StepPlan,
    state: sghmc.State,
    evaluation: Evaluation,
    learning_rate: torch.Tensor,
    data_size: int,
    sampler: sghmc.SGHMCConfig,
    layout: Layout,
) -> dict[str, Any]:
    """One record after `step` steps; every list has one entry per chain.  eV and Å."""
    kinetic = diagnostics.kinetic_temperature(state.momentum, sampler, layout.groups)
    bound = diagnostics.temperature_rise_bound(state.mass.mass, learning_rate.to(state.mass.mass.device), data_size)
    return {
        "step": step,
        "phase": plan.phase,
        "cycle": plan.cycle,
        "learning_rate": numbers(learning_rate),
        "temperature": plan.temperature,
        "log_posterior": numbers(-evaluation.potential),
        "force_mae": numbers(evaluation.force_mae),
        "force_sigma": numbers(evaluation.force_sigma),
        "kinetic_temperature": numbers(diagnostics.kinetic_temperature(state.momentum, sampler)),
        "kinetic_by_group": {name: numbers(value) for name, value in kinetic.items()},
        "temperature_rise_bound": numbers(bound.mean(1)),
    }


def numbers(values: torch.Tensor) -> list[float]:
    """JSON has no NaN, so values that are not finite become None."""
    return [round_significant(value) for value in values.double().cpu().tolist()]


def round_significant(value: float) -> Any:
    """Seven digits, the precision of float32; None where the value is not finite."""
    return float(f"{value:.7g}") if value == value and abs(value) != float("inf") else None


def trace(values: list[Any], chains: list[int]) -> np.ndarray:
    """Records × chains (× quantities) -> [chains, draws, …].  A record with a gap (after a rollback) is left out."""
    if not values:
        return np.zeros((len(chains), 0))
    table = np.array(values, dtype=float)[:, chains]
    whole = np.isfinite(table).reshape(len(table), -1).all(axis=1)
    return np.swapaxes(table[whole], 0, 1)


def rounded(value: float) -> float | None:
    """Five digits for a person; None where the value is not finite."""
    return float(f"{value:.5g}") if np.isfinite(value) else None


class MetricsLog:
    """`metrics.jsonl`: one JSON object per line, with wall-clock time; and whatever else the settings ask for."""

    def __init__(self, folder: Path, *, keep_until: int, output: OutputSettings | None = None) -> None:
        """Continue the log of a run at step `keep_until`; later lines belong to steps that will be repeated."""
        self.path = folder / "metrics.jsonl"
        kept = [(line, entry) for line, entry in _entries(self.path) if entry["step"] <= keep_until]
        write_text(self.path, "".join(line + "\n" for line, _ in kept))
        before = kept[-1][1].get("seconds", 0.0) if kept else 0.0
        self.started = time.monotonic() - before
        self.file = self.path.open("a", encoding="utf-8")
        self.sinks = [] if output is None else open_sinks(folder, keep_until, output)

    def write(self, record: dict[str, Any]) -> None:
        """Append one record; `seconds` is the time spent sampling so far, without interruptions."""
        line = json.dumps({**record, "seconds": round(time.monotonic() - self.started, 3)})
        try:
            self.file.write(line + "\n")
            self.file.flush()
        except OSError as cause:
            raise InputError(f"{self.path}: {reason(cause)}") from cause
        for sink in self.sinks:
            sink.write(record)

    def close(self) -> None:
        with suppress(OSError):  # on a full disk, closing tries again to write what `write` has reported
            self.file.close()
        for sink in self.sinks:
            sink.close()


def _entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Complete lines of a log with their content; a line cut short by a kill is left out."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            yield line, entry
