"""Where a simulation stands, in one file that is whole or not there: what `--resume` goes on from, bit for bit."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes import tensor_file
from equibayes.errors import InputError
from equibayes.simulate.statistics import Statistics

FORMAT = "equibayes-md-state"
VERSION = 1


@dataclass(frozen=True, eq=False)
class State:
    """After `step` steps.

    memory          arrays of the integrator (see `Integrator.memory`)
    rng             state of the random numbers
    statistics      sums so far
    lengths         bytes of the files that grow, by name
    last_candidate  step at which one was written last
    candidates      how many were written
    last_state      what the last frame was, one of `trust.STATES`
    asked           questions to the teacher
    jump            eV by which answers changed the potential energy
    looked          whether the frame of this step was judged and written already; not so before the first step
    about           what the simulation is: another one cannot be resumed from it
    """

    step: int
    memory: dict[str, np.ndarray]
    rng: dict[str, Any]
    statistics: Statistics
    lengths: dict[str, int]
    last_candidate: int | None = None
    candidates: int = 0
    last_state: str = "trusted"
    asked: int = 0
    jump: float = 0.0
    looked: bool = True
    about: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        header = {
            "step": self.step,
            "rng": self.rng,
            "statistics": self.statistics.to_dict(),
            "lengths": self.lengths,
            "last_candidate": self.last_candidate,
            "candidates": self.candidates,
            "last_state": self.last_state,
            "asked": self.asked,
            "jump": self.jump,
            "looked": self.looked,
            "about": self.about,
        }
        tensors = {name: torch.from_numpy(array.copy()) for name, array in self.memory.items()}
        tensor_file.write(path, tensors, header, format=FORMAT, version=VERSION)


def load_state(path: Path, about: dict[str, Any]) -> State:
    """Read and verify; an `InputError` where it belongs to a simulation other than `about`."""
    if not path.exists():
        raise InputError(f"{path}: no such file, so nothing to resume from; start without --resume")
    header, tensors = tensor_file.read(path, format=FORMAT, version=VERSION, what="state of a simulation")
    for name, value in about.items():
        was = header["about"].get(name)
        if was != value:
            raise InputError(
                f"--resume: {name} was {_short(was)} and is {_short(value)} now; use the same, or begin anew with --overwrite"
            )
    return State(
        step=header["step"],
        memory={name: tensor.numpy() for name, tensor in tensors.items()},
        rng=header["rng"],
        statistics=Statistics.from_dict(header["statistics"]),
        lengths=header["lengths"],
        last_candidate=header["last_candidate"],
        candidates=header["candidates"],
        last_state=header["last_state"],
        asked=header.get("asked", 0),
        jump=header.get("jump", 0.0),
        looked=header.get("looked", True),
        about=header["about"],
    )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
