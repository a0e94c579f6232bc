"""What the measurements of the single properties share: the relaxed crystal of every member, and what went wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ase import Atoms

from equibayes.data.structures import FloatArray
from equibayes.run.progress import Display
from equibayes.solids.crystal import Crystal
from equibayes.solids.members import Job, Members, State
from equibayes.solids.quantity import Quantity
from equibayes.solids.relax import Cell, Relaxed, relax

GPA = 160.2176634
"""1 eV/Å³ in GPa."""


@dataclass(frozen=True)
class LeftOut:
    """A member that a property was computed without."""

    property: str
    member: int
    reason: str


@dataclass(eq=False)
class Bench:
    """Members, a crystal, and the crystal as each member relaxes it.

    relaxed   by member; those that failed are missing
    left_out  filled by the measurements
    """

    members: Members
    crystal: Crystal
    display: Display
    relaxed: dict[int, Relaxed] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    def relax(
        self, what: str, jobs: Sequence[Job], cell: Cell, *, symmetric: bool = False, **options: Any
    ) -> list[Relaxed]:
        """See `relax.relax`."""
        symprec = self.crystal.symprec if symmetric else None
        return relax(self.members, jobs, cell=cell, symprec=symprec, display=self.display, what=what, **options)

    def relax_each(
        self, what: str, change: Callable[[Atoms], Sequence[Atoms]], cell: Cell, **options: Any
    ) -> dict[int, list[Relaxed]]:
        """Structures made from the crystal of each member, relaxed; members that fail for one of them are left out."""
        jobs = [(member, atoms) for member, own in self.relaxed.items() for atoms in change(own.atoms)]
        found: dict[int, list[Relaxed]] = {}
        for each in self.relax(what, jobs, cell, **options):
            found.setdefault(each.member, []).append(each)
        for member, own in list(found.items()):
            failure = next((each.failure for each in own if each.failure), None)
            if failure:
                self.leave_out(what, member, failure)
                del found[member]
        return found

    def evaluate(self, what: str, jobs: Sequence[Job], at_once: int = 64) -> list[State]:
        """Structures as they are, some at a time so that progress can be shown."""
        self.display.start(len(jobs), 0)
        states: list[State] = []
        for first in range(0, len(jobs), at_once):
            states += self.members.evaluate(jobs[first : first + at_once])
            self.display.show({"step": len(states), "what": what})
        return states

    def leave_out(self, what: str, member: int, reason: str) -> None:
        self.left_out.append(LeftOut(what, member, reason))

    def quantity(self, values: dict[int, Any], unit: str) -> Quantity:
        """From the values of the members that have one."""
        shape = np.shape(next(iter(values.values()))) if values else ()
        every: FloatArray = np.full((len(self.members.names), *shape), np.nan)
        for member, value in values.items():
            every[member] = value
        return Quantity(every, unit)
