"""The repulsion of nuclei that are much closer than a bond (Ziegler, Biersack, Littmark 1985), as an ASE calculator.

    E = Σ_{i<j} Z_i Z_j e²/(4πε₀ r) · φ(r/a) · c(r/R),      a = 0.46850 Å / (Z_i^0.23 + Z_j^0.23)

φ is the universal screening function.  c falls smoothly from 1 to 0 at R, the sum of the covalent radii of the two
atoms, so that nothing is added to what a bond is; its first two derivatives vanish there.  With other settings it is
the term of NequIP's foundation models: R is then the cutoff of the network for all pairs.
"""

from typing import Any

import numpy as np
from ase.calculators.calculator import Calculator, all_changes
from ase.data import covalent_radii
from ase.stress import full_3x3_to_voigt_6_stress
from ase.units import _e, _eps0

from equibayes.data.neighbors import neighbor_list

COULOMB = _e / (4 * np.pi * _eps0) * 1e10
"""e²/(4πε₀), eV Å."""
LENGTH, EXPONENT = 0.46850, 0.23
WEIGHTS = np.array([0.18175, 0.50986, 0.28022, 0.02817])
RATES = np.array([3.19980, 0.94229, 0.40290, 0.20162])
SMOOTH = 6
"""p of the cutoff 1 − (p+1)(p+2)/2 x^p + p(p+2) x^(p+1) − p(p+1)/2 x^(p+2)."""


class ZBL(Calculator):
    """Energy (eV), its shares of atoms, forces (eV/Å) and stress (eV/Å³)."""

    implemented_properties: list[str] = ["energy", "free_energy", "energies", "forces", "stress"]  # noqa: RUF012

    def __init__(self, cutoff: float | None = None, p: float = SMOOTH, coulomb: float = COULOMB) -> None:
        """cutoff: R, Å, of all pairs (none: covalent radii);  p: exponent of c;  coulomb: e²/(4πε₀), eV Å."""
        if not (p >= 2 and coulomb > 0 and (cutoff is None or cutoff > 0)):
            raise ValueError(f"cutoff={cutoff}, p={p}, coulomb={coulomb}: must be positive, p at least 2")
        super().__init__()
        self.cutoff, self.p, self.coulomb = cutoff, p, coulomb

    def calculate(self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes) -> None:
        super().calculate(atoms, properties, system_changes)
        assert self.atoms is not None
        numbers, radii = self.atoms.numbers, covalent_radii[self.atoms.numbers]
        longest = 2 * float(radii.max()) if self.cutoff is None else self.cutoff
        pairs = neighbor_list(self.atoms.positions, self.atoms.cell.array, self.atoms.pbc, longest)
        reach = radii[pairs.receiver] + radii[pairs.sender]
        if self.cutoff is not None:
            reach = np.full(len(reach), self.cutoff)
        length = np.linalg.norm(pairs.vector, axis=1)
        near = length < reach
        i, j, vector, length = pairs.receiver[near], pairs.sender[near], pairs.vector[near], length[near]
        one, other = numbers[i].astype(float), numbers[j].astype(float)
        energy, slope = repulsion(one, other, length, reach[near], self.p, self.coulomb)
        pull = (slope / length)[:, None] * vector  # dE/dr along each directed pair; a pair is there twice
        forces, energies = np.zeros((len(numbers), 3)), np.zeros(len(numbers))
        np.add.at(forces, i, pull)
        np.add.at(energies, i, energy / 2)
        total = float(energies.sum())
        self.results = {"energy": total, "free_energy": total, "energies": energies, "forces": forces}
        if self.atoms.pbc.all():
            stress = np.einsum("ea,eb->ab", pull, vector) / 2 / self.atoms.get_volume()
            self.results["stress"] = full_3x3_to_voigt_6_stress(stress)


def repulsion(
    first: np.ndarray,
    second: np.ndarray,
    length: np.ndarray,
    reach: np.ndarray,
    p: float = SMOOTH,
    coulomb: float = COULOMB,
) -> tuple[np.ndarray, np.ndarray]:
    """Energy (eV) of pairs and its derivative by their distance (eV/Å), from atomic numbers and distances (Å)."""
    a = LENGTH / (first**EXPONENT + second**EXPONENT)
    terms = WEIGHTS * np.exp(-RATES * (length / a)[:, None])
    screening, screening_slope = terms.sum(1), -(RATES * terms).sum(1) / a
    x = length / reach
    cut = 1 - (p + 1) * (p + 2) / 2 * x**p + p * (p + 2) * x ** (p + 1) - p * (p + 1) / 2 * x ** (p + 2)
    cut_slope = -p * (p + 1) * (p + 2) / 2 * x ** (p - 1) * (1 - x) ** 2 / reach
    charge = coulomb * first * second / length
    energy = charge * screening * cut
    return energy, charge * (screening_slope * cut + screening * cut_slope) - energy / length
