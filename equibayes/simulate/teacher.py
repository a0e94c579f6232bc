"""Somebody who can be asked about a frame that the model does not know, while the simulation waits.

What is behind it (an engine, a sampler) lives in a room above this one; see `learning/on_the_fly.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ase import Atoms

from equibayes.simulate.calculator import Calculator
from equibayes.simulate.display import MdDisplay
from equibayes.simulate.trust import Deviation


@dataclass(frozen=True)
class Question:
    """The number of the question (from 0), the step at which it came up, the frame with its results, and what is doubtful."""

    number: int
    step: int
    atoms: Atoms
    results: Mapping[str, Any]
    deviation: Deviation


@dataclass(frozen=True)
class Lesson:
    """calculator: to go on with, None for the one before;  ended: why the simulation must end, None if it need not."""

    calculator: Calculator | None = None
    ended: str | None = None


class Teacher(Protocol):
    """Answers must follow from the questions alone, or be remembered: a simulation that was killed asks the last ones again."""

    @property
    def about(self) -> dict[str, Any]:
        """What must be the same to go on, in plain values; names are those of options."""
        ...

    def begin(self, folder: Path, asked: int | None, display: MdDisplay) -> Calculator | None:
        """Before the first step.  asked: None for a new simulation, else how many questions were answered before it was
        saved; the calculator that was in force then is returned (None: the first)."""
        ...

    def answer(self, question: Question) -> Lesson: ...
