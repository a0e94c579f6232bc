"""What is watched during a simulation, and when a frame ends it.

| on_uncertain | a candidate frame                        | a frame that has exploded or is unknown          |
|--------------|------------------------------------------|--------------------------------------------------|
| log          | a log line at the transition             | a log line at the transition                     |
| write        | is also written to candidates.xyz        | ends the simulation and is not kept              |
| label        | the same, and is sent to the oracle,     | ends the simulation and is never sent            |
|              | which may reply with a new calculator    |                                                  |
| stop         | is written to candidates.xyz and ends it | ends the simulation and is not kept              |

Positions or forces that are not finite, or an atom that moves by 1 Å in one step, always end it.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ase import Atoms, units

from equibayes.errors import InputError
from equibayes.simulate.trust import DEVIATIONS, Deviation, Trust, check_deviation

ON_UNCERTAIN = ("log", "write", "stop", "label")
LARGEST_MOVE = 1.0
"""Å; an atom that moves further in one step has left any meaningful trajectory."""


@dataclass(frozen=True)
class Watch:
    """What is monitored and written.

    deviation      "total" or "epistemic": which σ is compared with the trust levels
    every          steps between frames of the trajectory and lines of the log
    save_every     steps between saved states
    candidate_gap  at most one candidate is written or sent in so many steps: successive frames are nearly the same
    """

    trust: Trust = field(default_factory=Trust)
    on_uncertain: str = "log"
    deviation: str = "total"
    every: int = 10
    save_every: int = 100
    candidate_gap: int = 10

    def __post_init__(self) -> None:
        if self.on_uncertain not in ON_UNCERTAIN:
            raise InputError(f"on-uncertain {self.on_uncertain}: choose one of {', '.join(ON_UNCERTAIN)}")
        check_deviation(self.deviation)
        for name in ("every", "save_every", "candidate_gap"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', '-')} {getattr(self, name)}: must be at least 1 step")
        if self.on_uncertain == "label" and self.trust.lower is None:
            raise InputError("on-uncertain label: needs a lower trust level, which says when to ask; give --trust-lo")

    @property
    def sigma_key(self) -> str:
        return DEVIATIONS[self.deviation]


@dataclass(frozen=True, eq=False)
class Observation:
    """One step as it was judged: results of the calculator, temperature in K, conserved energy in eV, trust state."""

    step: int
    time_fs: float
    atoms: Atoms
    results: dict[str, Any]
    temperature: float
    conserved: float
    deviation: Deviation
    state: str


@dataclass(frozen=True)
class Ending:
    """Why a simulation ends early.  exploded: by impossible forces or motion, not by a trust level or the oracle."""

    reason: str
    exploded: bool = False


def ending_of(now: Observation, watch: Watch, timestep_fs: float) -> Ending | None:
    """Whether this step ends the simulation."""
    if not np.isfinite(now.results["forces"]).all():
        return Ending(f"exploded at step {now.step}: forces are not finite", exploded=True)
    move = np.abs(now.atoms.get_velocities()).max() * timestep_fs * units.fs
    if not move < LARGEST_MOVE:
        return Ending(f"exploded at step {now.step}: an atom moves by {move:.3g} Å in one step", exploded=True)
    if now.state == "trusted" or watch.on_uncertain == "log":
        return None
    if now.state == "candidate" and watch.on_uncertain != "stop":
        return None
    return Ending(f"at step {now.step}: {watch.trust.sentence(now.deviation, now.atoms.numbers)}")
