"""A labeller as an ASE calculator, for relaxations and dynamics with the engine itself."""

from typing import Any

from ase.calculators.calculator import CalculationFailed, Calculator, all_changes

from equibayes.data.structures import Structure
from equibayes.labelling.labellers import Labeller, Refusal


class LabellerCalculator(Calculator):
    """Energy in eV and forces in eV/Å; `CalculationFailed` with the reason if the labeller refuses."""

    implemented_properties: list[str] = ["energy", "forces"]  # noqa: RUF012

    def __init__(self, labeller: Labeller) -> None:
        super().__init__()
        self.labeller = labeller

    def calculate(self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes) -> None:
        super().calculate(atoms, properties, system_changes)
        assert self.atoms is not None
        bare = self.atoms.copy()  # without this calculator, whose old results would be taken for labels
        answer = self.labeller.label(Structure.from_atoms(bare))
        if isinstance(answer, Refusal):
            raise CalculationFailed(answer.reason)
        self.results = {"energy": answer.energy, "free_energy": answer.energy, "forces": answer.forces}
