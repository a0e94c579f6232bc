"""A posterior as a potential of OpenMM-ML, for whole systems and for a part of one in a classical force field.

    potential = MLPotential("equibayes", posterior="ethanol.posterior")
    system = potential.createSystem(topology)

OpenMM-ML finds it by its name (openmm_factory.py).  Forces are those of the ASE calculator (calculator.py); given
as `MLPotential("equibayes", calculator=...)`, it can have trust levels and warn, and `SigmaReporter` can write its σ.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from openmmml.models.asepotential import ASEPotentialImpl

if TYPE_CHECKING:
    from equibayes.simulate.calculator import Calculator


class Implementation(ASEPotentialImpl):
    """OpenMM-ML's potential for ASE calculators, with this one."""

    def __init__(self, name: str, calculator: "Calculator") -> None:
        super().__init__(name)
        self.calculator = calculator

    def addForces(
        self, topology: Any, system: Any, atoms: Iterable[int] | None, forceGroup: int, **options: Any
    ) -> None:
        """See `MLPotentialImpl`."""
        super().addForces(topology, system, atoms, forceGroup, calculator=self.calculator, **options)

    def getMLLongRange(self) -> bool:
        """Interactions end at the cutoff."""
        return False


class SigmaReporter:
    """Writes a CSV file: step, energy and its σ (eV), the largest and mean σ of an atom's force (eV/Å), its number."""

    COLUMNS = ("step", "energy_eV", "energy_std_eV", "max_devi_f_eV_per_A", "avg_devi_f_eV_per_A", "atom")

    def __init__(self, path: str, interval: int, calculator: "Calculator") -> None:
        """interval: steps between lines;  calculator: that of the potential"""
        self.interval, self.calculator = interval, calculator
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 (as long as the reporter)
        print(",".join(self.COLUMNS), file=self._file, flush=True)

    def describeNextReport(self, simulation: Any) -> dict[str, Any]:
        """Called by OpenMM.  The energy is asked for, so that the last evaluation is that of the state."""
        return {
            "steps": self.interval - simulation.currentStep % self.interval,
            "include": ["energy"],
            "periodic": None,
        }

    def report(self, simulation: Any, state: Any) -> None:
        """Called by OpenMM."""
        from equibayes.simulate.trust import Deviation

        found = self.calculator.results
        now = Deviation.of(found["forces_std"])
        row = (simulation.currentStep, found["energy"], found["energy_std"], now.largest, now.mean, now.atom)
        print(*row, sep=",", file=self._file, flush=True)

    def __del__(self) -> None:
        self._file.close()
