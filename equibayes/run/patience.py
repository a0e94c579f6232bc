"""Early stopping: a part of the burn-in ends when the error on held-back frames has stopped falling.

| temperature | what ends                     | where the run goes on                                             |
|-------------|-------------------------------|-------------------------------------------------------------------|
| above 0     | the noise-free fraction       | with the first step that has noise and prior, same weights        |
| 0           | the burn-in: the training     | with its end, and the weights that had the lowest error           |

The error is the mean over chains of the held-back MAE of forces.  It follows from the weights alone, so a resumed run
stops at the same step.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.run.settings import SampleConfig
from equibayes.sampling.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Waited:
    """
    error  lowest so far, eV/Å
    times  evaluations since then
    best   [K, P] the weights of that time (of a training alone), else None
    """

    error: float = float("inf")
    times: int = 0
    best: torch.Tensor | None = None


NEVER = Waited()
"""Before the first evaluation, and where nobody waits."""


class Patience:
    """Decides when it is over, for a run with these settings."""

    def __init__(self, config: SampleConfig, schedule: Schedule, *, watched: bool) -> None:
        """watched: whether there are held-back frames that are evaluated."""
        self.limit, self.training = config.burn_in.patience, schedule.temperature == 0
        if self.limit is not None and not (watched and config.output.validations):
            raise InputError(
                f"burn_in.patience={self.limit}: there are no held-back frames to watch; set data.validation and "
                "output.validations above 0, or leave patience out"
            )
        self.end = schedule.burn_in_steps if self.training else _first_with_noise(schedule)

    def look(self, waited: Waited, record: dict[str, Any], weights: torch.Tensor) -> Waited:
        """What is known after one more record; weights [K, P] are those that a training would keep."""
        if self.limit is None or record["step"] >= self.end or "validation_force_mae" not in record:
            return waited
        errors = [e for e, out in zip(record["validation_force_mae"], record["failed"]) if e is not None and not out]
        error = sum(errors) / len(errors) if errors else float("inf")
        if error < waited.error:
            return Waited(error, 0, weights.detach().clone() if self.training else None)
        return replace(waited, times=waited.times + 1)

    def over(self, waited: Waited, step: int) -> bool:
        return self.limit is not None and step < self.end and waited.times >= self.limit

    def sentence(self, step: int) -> str:
        what = "the training" if self.training else "the noise-free part of the burn-in"
        times = counted(self.limit or 0, "evaluation")
        return f"step {step}: no lower error on held-back frames in {times}: {what} ends here, not at step {self.end}"


def _first_with_noise(schedule: Schedule) -> int:
    """The first step that has noise, or the end of the burn-in."""
    low, high = 0, schedule.burn_in_steps
    while low < high:  # the temperature never falls
        middle = (low + high) // 2
        low, high = (low, middle) if schedule.at(middle).temperature > 0 else (middle + 1, high)
    return low
