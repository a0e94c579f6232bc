"""Relax many structures in lockstep with ASE's BFGS: one evaluation of all of them, then one step of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixSymmetry
from ase.filters import FrechetCellFilter
from ase.optimize import BFGS

from equibayes.run.progress import Display
from equibayes.solids.members import Job, Members, State

Cell = Literal["free", "shape", "fixed"]
"""What happens to the cell: it relaxes, it relaxes at constant volume, or it stays."""

STEPS = 300
"""Most steps of one relaxation."""
FMAX = 1e-4
"""Largest force left, eV/Å, and virial per atom, eV.  In cells strained by 0.5 % forces are some 10 meV/Å at first."""
STIFFNESS = 20.0
"""eV/Å², the curvature that the first step assumes: that of a typical bond in a solid."""
LONGEST_STEP = {"fixed": 0.2, "free": 0.05, "shape": 0.05}
"""Å for atoms; for the cell also the strain times the number of atoms."""
VOLUME_RANGE = (0.5, 2.0)
"""A cell that leaves this range, relative to its start, is no longer the crystal that was given."""


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A relaxed structure, or the reason why there is none."""

    member: int
    atoms: Atoms
    state: State
    failure: str | None


def relax(
    members: Members,
    jobs: Sequence[Job],
    *,
    cell: Cell,
    fmax: float = FMAX,
    symprec: float | None = None,
    display: Display,
    what: str,
) -> list[Relaxed]:
    """Relax every job, each by its own member; the structures given stay as they are.

    symprec  tolerance in Å of the symmetry to keep; None: no symmetry is imposed
    what     shown while it runs
    """
    runs = [_Relaxation(member, atoms, cell, fmax, symprec) for member, atoms in jobs]
    display.start(len(runs), 0)
    waiting = runs
    while waiting:
        for run, state in zip(waiting, members.evaluate([(run.member, run.atoms) for run in waiting])):
            run.advance(state)
        waiting = [run for run in waiting if not run.finished]
        largest = max((run.largest_force for run in waiting), default=0.0)
        display.show({"step": len(runs) - len(waiting), "what": what, "largest_force": largest})
    return [Relaxed(run.member, run.result(), run.state, run.failure) for run in runs]


class _Relaxation:
    """One structure, its optimiser, and the last answer of its member."""

    state: State

    def __init__(self, member: int, atoms: Atoms, cell: Cell, fmax: float, symprec: float | None) -> None:
        self.member, self.atoms, self.fmax = member, atoms.copy(), fmax
        self.start_volume = self.atoms.get_volume()
        self.failure: str | None = None
        self.finished, self.steps, self.largest_force = False, 0, np.inf
        if symprec is not None:
            self.atoms.set_constraint(FixSymmetry(self.atoms, symprec=symprec))
        self._cell = cell
        self._optimizer: Any = None

    def advance(self, state: State) -> None:
        """Take the answer for the present structure; move on unless it has converged or failed."""
        self.state = state
        if not state.finite:
            return self._fail("its energy or forces are not finite")
        answer = {"energy": state.energy, "forces": state.forces, "stress": state.stress}
        self.atoms.calc = SinglePointCalculator(self.atoms, **answer)
        if self._optimizer is None:  # a filter looks at the atoms when it is made
            moved: Any = self.atoms
            if self._cell != "fixed":
                moved = FrechetCellFilter(self.atoms, constant_volume=self._cell == "shape")
            # goes downhill where the curvature is negative, which ASE's L-BFGS does not
            self._optimizer = BFGS(moved, logfile=None, maxstep=LONGEST_STEP[self._cell], alpha=STIFFNESS)
        gradient = self._optimizer.optimizable.get_gradient()
        self.largest_force = float(np.abs(gradient).max(initial=0.0))
        if self.largest_force < self.fmax:
            self.finished = True
        elif self.steps >= STEPS:
            self._fail(f"it did not relax in {STEPS} steps (largest force {self.largest_force:.2g} eV/Å)")
        else:
            self._step()

    def _step(self) -> None:
        self.steps += 1
        try:
            self._optimizer.step()
        except (RuntimeError, np.linalg.LinAlgError) as cause:  # a step that the symmetry cannot follow
            return self._fail(f"its cell ran away ({' '.join(str(cause).split())[:80]})")
        ratio = self.atoms.get_volume() / self.start_volume
        if not VOLUME_RANGE[0] < ratio < VOLUME_RANGE[1]:
            self._fail(f"its cell went to {ratio:.2g} times the volume it started from")

    def _fail(self, reason: str) -> None:
        self.finished, self.failure = True, reason

    def result(self) -> Atoms:
        """Without calculator and constraints."""
        atoms = self.atoms.copy()
        atoms.set_constraint()
        return atoms
