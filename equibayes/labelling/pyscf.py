"""Density functional theory of molecules through PySCF, as an ASE calculator."""

import re
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import CalculationFailed, Calculator, all_changes
from ase.units import Bohr, Hartree
from pyscf import dft, gto

from equibayes.plural import counted

# PySCF evaluates the numbers in the text or the file of a basis set as Python; a name has neither
_BASIS = re.compile(r"[A-Za-z0-9+*@_-]{1,60}(\([0-9A-Za-z,]{1,12}\))?")


class PySCF(Calculator):
    """Kohn-Sham energies and forces of one molecule.

    xc, basis         names known to PySCF
    charge            in e
    spin              number of unpaired electrons; None: 0 or 1, for an even or odd number of electrons
    dispersion        None or "d3bj"
    density_fitting   products of orbitals expanded in an auxiliary basis; several times faster
    grid_level        PySCF's, 0 to 9
    conv_tol          Hartree, on the energy
    max_cycle         largest number of self-consistency cycles
    max_memory        MB
    """

    implemented_properties: list[str] = ["energy", "forces"]  # noqa: RUF012
    default_parameters: dict[str, Any] = {  # noqa: RUF012
        "xc": "pbe",
        "basis": "def2-svp",
        "charge": 0,
        "spin": None,
        "dispersion": None,
        "density_fitting": True,
        "grid_level": 3,
        "conv_tol": 1e-9,
        "max_cycle": 100,
        "max_memory": 4000,
    }

    def __init__(self, **settings: Any) -> None:
        unknown = set(settings) - set(self.default_parameters)
        if unknown:
            raise ValueError(f"no setting '{min(unknown)}'; there are {', '.join(self.default_parameters)}")
        super().__init__(**settings)
        basis = self.parameters["basis"]
        for name in basis.values() if isinstance(basis, dict) else [basis]:
            if not isinstance(name, str) or not _BASIS.fullmatch(name):
                raise ValueError(f"basis {str(name)[:60]!r}: must be a name known to PySCF, such as def2-svp")
        if self.parameters["dispersion"] not in (None, "d3bj"):
            raise ValueError(f"dispersion '{self.parameters['dispersion']}': must be d3bj or none")
        if self.parameters["dispersion"]:
            import dftd3.interface  # noqa: F401  reports a missing package before the first structure
        self._density: Any = None

    def calculate(self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes) -> None:
        super().calculate(atoms, properties, system_changes)
        assert self.atoms is not None
        if self.atoms.pbc.any():
            raise CalculationFailed("this engine is for molecules, the structure is periodic")
        if "numbers" in system_changes:
            self._density = None
        field = self._mean_field(self._molecule(self.atoms))
        energy = field.kernel(dm0=self._density)
        if not field.converged:
            raise CalculationFailed(f"not self-consistent after {counted(self.parameters['max_cycle'], 'cycle')}")
        self._density = field.make_rdm1()
        slope = field.nuc_grad_method()
        # the grid moves with the atoms; without its response the forces are wrong by some meV/Å
        slope.grid_response = True
        gradient = slope.kernel()
        if self.parameters["dispersion"]:
            correction, its_gradient = self._dispersion(self.atoms)
            energy, gradient = energy + correction, gradient + its_gradient
        self.results = {"energy": energy * Hartree, "forces": -np.asarray(gradient) * Hartree / Bohr}

    def _molecule(self, atoms: Atoms) -> gto.Mole:
        charge, spin = self.parameters["charge"], self.parameters["spin"]
        electrons = int(atoms.numbers.sum()) - charge
        return gto.M(
            atom=list(zip(atoms.symbols, atoms.positions.tolist())),
            unit="Angstrom",
            basis=self.parameters["basis"],
            charge=charge,
            spin=electrons % 2 if spin is None else spin,
            max_memory=self.parameters["max_memory"],
            verbose=0,
        )

    def _mean_field(self, molecule: gto.Mole) -> Any:
        field = dft.RKS(molecule) if molecule.spin == 0 else dft.UKS(molecule)
        field.xc = self.parameters["xc"]
        field.grids.level = self.parameters["grid_level"]
        field.conv_tol = self.parameters["conv_tol"]
        field.max_cycle = self.parameters["max_cycle"]
        return field.density_fit() if self.parameters["density_fitting"] else field

    def _dispersion(self, atoms: Atoms) -> tuple[float, np.ndarray]:
        """Grimme's D3 with rational (Becke-Johnson) damping: energy in Hartree, gradient in Hartree/Bohr."""
        from dftd3.interface import DispersionModel, RationalDampingParam

        model = DispersionModel(atoms.numbers, atoms.positions / Bohr)
        result = model.get_dispersion(RationalDampingParam(method=self.parameters["xc"]), grad=True)
        return float(result["energy"]), result["gradient"]
