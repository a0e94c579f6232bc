"""The callback of `fix external` in LAMMPS: from the atoms of all ranks to forces, virial and deviations.

All ranks exchange their atoms, each evaluates its share (`lammps_shares.py`), and the first combines these and sends
the result to all.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.posterior.prediction import Prediction
from equibayes.simulate.lammps_atoms import LocalAtoms
from equibayes.simulate.lammps_library import Ranks
from equibayes.simulate.lammps_script import QUANTITIES
from equibayes.simulate.lammps_shares import SharedAtoms, SharedSamples
from equibayes.simulate.trust import DEVIATIONS, Deviation, atom_deviations
from equibayes.simulate.vacuum_cell import VacuumCell
from equibayes.units import GPA, KCAL_PER_MOL

FIX = "equibayes"
ENERGY_UNITS = {"metal": 1.0, "real": KCAL_PER_MOL}
"""One unit of energy in eV; the unit of length is Å in both."""
PRESSURE_UNITS = {"metal": 1e4 / GPA, "real": 1e4 / GPA / 1.01325}
"""1 eV/Å³ in bar and in atmospheres."""
FAILED = len(QUANTITIES) + 1
"""Index in the vector of the fix that marks a failed evaluation, for a `fix halt`."""


class LammpsPotential:
    """Called by `fix external` at every step, on all ranks."""

    def __init__(
        self,
        lmp: Any,
        ranks: Ranks,
        share: SharedSamples | SharedAtoms,
        numbers_of_types: np.ndarray,
        deviation: str,
    ) -> None:
        """share: of this rank."""
        self.lmp, self.ranks, self.share = lmp, ranks, share
        evaluator = share.evaluator
        self.sigma_name = DEVIATIONS[deviation]
        self.unit = ENERGY_UNITS[lmp.extract_global("units")]
        self.pressure_unit = PRESSURE_UNITS[lmp.extract_global("units")]
        self.atoms, self.numbers_of_types = LocalAtoms(lmp), numbers_of_types
        self.in_vacuum = VacuumCell(evaluator.posterior.network.r_max + evaluator.skin if evaluator else 0.0)
        self.calls = 0
        self.failure: BaseException | None = None

    def __call__(self, _: Any, step: int, count: int, tag: Any, x: Any, f: Any) -> None:
        """Set the forces f [count, 3] of the atoms of this rank, the energy, the virial and the deviations.

        An exception cannot pass through LAMMPS here: it is kept, and a `fix halt` ends the run after this step.
        """
        self.calls += 1
        f[:count] = 0.0
        if self.failure is None:
            found = self._evaluate(count, tag, x)
            try:
                if isinstance(found, BaseException):
                    raise found
                self._hand_over(found, count, tag, f)
            except (Exception, KeyboardInterrupt) as problem:
                self.failure = problem
        self.lmp.fix_external_set_vector(FIX, FAILED, float(self.failure is not None))

    def _evaluate(self, count: int, tag: Any, x: Any) -> "dict[str, Any] | BaseException":
        """The results, or the error, on all ranks: the others would wait for a rank that leaves."""
        rows = self.ranks.exchange(self._attempt([], self.atoms.rows, count, tag, x))
        ready = rows
        for stage in self.share.stages:
            ready = self.ranks.exchange(self._attempt(ready, self._of_all, stage, rows))
        found = self.ranks.gather(self._attempt(ready, self._of_all, self.share.sampled, rows))
        shared: dict[str, Any] | BaseException
        shared = self.ranks.share(None if found is None else self._attempt(found, self._combined, rows, found))
        return shared

    def _attempt(self, before: list[Any], function: Callable[..., Any], *given: Any) -> Any:
        """The first error among what the ranks found before; without one, the result of a function, or its error."""
        for each in before:
            if isinstance(each, BaseException):
                return each
        try:
            return function(*given)
        except InputError as problem:
            return problem
        except (Exception, KeyboardInterrupt) as problem:  # with several ranks: an exception that can be pickled
            return problem if self.ranks.size == 1 else RuntimeError(repr(problem))

    def _of_all(self, function: Callable[[Structure], Any], parts: list[Any]) -> Any:
        """A function of the atoms of all ranks."""
        return function(self._structure(parts))

    def _combined(self, parts: list[Any], found: list[Any]) -> dict[str, Any]:
        """The results, from what all ranks found; on the first rank."""
        structure = self._structure(parts)
        prediction = self.share.prediction(structure, found)
        ids = np.sort(np.concatenate(parts)[:, 0]).astype(np.int64)
        return {**self._in_lammps_units(prediction, structure.volume), "ids": ids}

    def _structure(self, parts: list[Any]) -> Structure:
        """The atoms of all ranks, ordered by ID."""
        rows = np.concatenate(parts)
        if not len(rows):
            raise InputError("no atoms to calculate: the box is empty")
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        numbers = self.numbers_of_types[rows[:, 1].astype(np.int64) - 1]
        return self.in_vacuum(numbers, rows[:, 2:].copy(), *self.atoms.box(), "LAMMPS")

    def _in_lammps_units(self, prediction: Prediction, volume: float) -> dict[str, Any]:
        sigma = getattr(prediction, self.sigma_name)
        deviation = Deviation.of(sigma, prediction.novelty)
        quantities = (deviation.largest, deviation.mean, deviation.smallest, prediction.energy_std)
        # the cell is always periodic
        assert prediction.stress is not None
        assert prediction.pressure_std is not None
        unknown = np.full(len(sigma), np.nan)
        virial = -volume * prediction.stress
        # of the virial; LAMMPS divides by the volume of its box, which may be smaller than the cell with vacuum
        pressure = volume * prediction.pressure_std / abs(np.linalg.det(self.atoms.box()[0])) * self.pressure_unit
        return {
            "energy": prediction.energy / self.unit,
            "forces": prediction.forces / self.unit,
            "virial": [float(virial[i, j] / self.unit) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))],
            "quantities": [*(value / self.unit for value in quantities), pressure, deviation.novelty],
            "d_devi_f": atom_deviations(sigma) / self.unit,
            "d_novelty": unknown if prediction.novelty is None else prediction.novelty,
        }

    def _hand_over(self, found: dict[str, Any], count: int, tag: Any, f: Any) -> None:
        self.lmp.fix_external_set_energy_global(FIX, found["energy"])
        self.lmp.fix_external_set_virial_global(FIX, found["virial"])
        for i, value in enumerate(found["quantities"]):
            self.lmp.fix_external_set_vector(FIX, i + 1, value)
        if count:
            mine = np.searchsorted(found["ids"], tag[:count])
            f[:count] = found["forces"][mine]
            for name in ("d_devi_f", "d_novelty"):
                self.lmp.numpy.extract_atom(name)[:count] = found[name][mine]
