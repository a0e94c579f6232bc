"""What a run writes about itself: the history that goes into the posterior, `metrics.jsonl`, TensorBoard events."""

import json
import time
from pathlib import Path
from typing import Any

import torch

from equibayes.bayes.potential import Evaluation
from equibayes.errors import InputError
from equibayes.network.weights import Layout
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
    """One line of history after `step` steps; every list has one entry a chain.  eV and Å."""
    kinetic = diagnostics.kinetic_temperature(state.momentum, sampler, layout.groups)
    configurational = diagnostics.configurational_temperature(state.position, evaluation.gradient, layout.groups)
    bound = diagnostics.temperature_rise_bound(state.mass.mass, learning_rate.to(state.mass.mass.device), data_size)
    return {
        "step": step,
        "phase": plan.phase,
        "cycle": plan.cycle,
        "learning_rate": _numbers(learning_rate),
        "temperature": plan.temperature,
        "log_posterior": _numbers(-evaluation.potential),
        "force_mae": _numbers(evaluation.force_mae),
        "force_sigma": _numbers(evaluation.force_sigma),
        "kinetic_temperature": _numbers(diagnostics.kinetic_temperature(state.momentum, sampler)),
        "kinetic_by_group": {name: _numbers(value) for name, value in kinetic.items()},
        "configurational_by_group": {name: _numbers(value) for name, value in configurational.items()},
        "temperature_rise_bound": _numbers(bound.mean(1)),
    }


def _numbers(values: torch.Tensor) -> list[float]:
    """JSON knows no NaN: what is not finite is None."""
    return [round_significant(value) for value in values.double().cpu().tolist()]


def round_significant(value: float) -> Any:
    """Seven digits are what a float32 holds; None where there is no number."""
    return float(f"{value:.7g}") if value == value and abs(value) != float("inf") else None


class MetricsLog:
    """`metrics.jsonl`: one JSON object a line, with wall-clock time; optionally TensorBoard events beside it."""

    def __init__(self, folder: Path, *, keep_until: int, tensorboard: bool = False) -> None:
        """Continue the log of a run that is at step `keep_until`: later lines belong to steps that are done again."""
        self.path = folder / "metrics.jsonl"
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        kept = [line for line in lines if _step_of(line) <= keep_until]
        self.path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        self.file = self.path.open("a", encoding="utf-8")
        self.started = time.time()
        self.events = _tensorboard(folder) if tensorboard else None

    def write(self, record: dict[str, Any]) -> None:
        """Append one record."""
        line = json.dumps({**record, "seconds": round(time.time() - self.started, 3)})
        try:
            self.file.write(line + "\n")
            self.file.flush()
        except OSError as cause:
            raise InputError(f"{self.path}: cannot be written ({cause.strerror}); continue with --resume") from cause
        if self.events is not None:
            for name, value in record.items():
                for chain, number in enumerate(value if isinstance(value, list) else []):
                    if isinstance(number, (int, float)):
                        self.events.add_scalar(f"{name}/chain{chain}", number, record["step"])

    def close(self) -> None:
        self.file.close()
        if self.events is not None:
            self.events.close()


def _step_of(line: str) -> int:
    """The step of a line; a line cut short by a kill counts as later than everything."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 2**62


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("output.tensorboard: the tensorboard package is missing; pip install tensorboard") from None
    return SummaryWriter(str(folder / "tensorboard"))
