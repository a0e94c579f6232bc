"""Potentials whose properties are known, as ASE calculators."""

from typing import Any

from ase.calculators.calculator import Calculator, all_changes
from ase.calculators.emt import EMT
from matscipy.calculators.manybody import Manybody
from matscipy.calculators.manybody.explicit_forms import StillingerWeber
from matscipy.calculators.manybody.explicit_forms.stillinger_weber import Stillinger_Weber_PRB_31_5262_Si


def stillinger_weber() -> Calculator:
    """Silicon (Stillinger and Weber 1985): the atoms of a strained diamond lattice move against each other."""
    return Manybody(**StillingerWeber(Stillinger_Weber_PRB_31_5262_Si))


class ScaledEMT(EMT):
    """EMT with all energies multiplied by a factor: the same lattice, moduli in proportion."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def calculate(self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes) -> None:
        super().calculate(atoms, properties, system_changes)
        for name in ("energy", "free_energy", "forces", "stress"):
            if name in self.results:
                self.results[name] = self.results[name] * self.factor
