"""An oracle that is asked about a frame outside the model's knowledge, while the simulation waits.

The implementations (an engine, with or without a sampler) are in the package `learning`; see
`learning/label_candidates.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ase import Atoms

from equibayes.run.progress import Display
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.trust import Deviation


@dataclass(frozen=True)
class Query:
    """Number of the query (from 0), the step at which it arose, the frame with its results, and its deviation."""

    number: int
    step: int
    atoms: Atoms
    results: Mapping[str, Any]
    deviation: Deviation


@dataclass(frozen=True)
class Reply:
    """calculator: to continue with, None to keep the present one;  ended: why the simulation must end, or None."""

    calculator: Calculator | None = None
    ended: str | None = None


class Oracle(Protocol):
    """Replies must follow from the queries alone, or be stored: a killed simulation repeats its last queries."""

    @property
    def identity(self) -> dict[str, Any]:
        """Plain values that must not change when a simulation is resumed, by the names of their options."""
        ...

    def begin(self, folder: Path, asked: int | None, display: Display) -> Calculator | None:
        """Called before the first step.

        asked  None for a new simulation, else the number of queries answered when its state was saved
        Returns the calculator in use at that time, None for the first.
        """
        ...

    def answer(self, query: Query) -> Reply: ...
