"""Elastic constants from the stress of strained cells, with the atoms relaxed.

C_ij = ∂σ_i/∂ε_j in Voigt order xx, yy, zz, yz, xz, xy, ASE's signs and order; shear strains are engineering strains
(ε_4 = 2 ε_yz).  Central differences around the relaxed cell of each member, averaged over the point group.
"""

from dataclasses import dataclass

import numpy as np
from ase import Atoms

from equibayes.data.stress import voigt_to_full
from equibayes.data.structures import FloatArray
from equibayes.solids.measurement import GPA, Bench
from equibayes.solids.quantity import Quantity

WHAT = "elastic constants"
STRAIN = 0.005
"""Of the cells around the relaxed one; central differences leave an error of the order of its square."""

INDEPENDENT = {
    "cubic": ("11", "12", "44"),
    "hexagonal": ("11", "12", "13", "33", "44"),
    "trigonal": ("11", "12", "13", "14", "15", "33", "44"),
    "tetragonal": ("11", "12", "13", "16", "33", "44", "66"),
    "orthorhombic": ("11", "12", "13", "22", "23", "33", "44", "55", "66"),
    "monoclinic": ("11", "12", "13", "15", "22", "23", "25", "33", "35", "44", "46", "55", "66"),
    "triclinic": tuple(f"{i}{j}" for i in range(1, 7) for j in range(i, 7)),
}
_VOIGT = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))


@dataclass(frozen=True, eq=False)
class Elastic:
    """matrix: [M, 6, 6] GPa;  stable: share of the members whose matrix is positive definite."""

    matrix: Quantity
    stable: float


def measure(bench: Bench) -> tuple[dict[str, Quantity], Elastic]:
    """The independent constants by name, and moduli of a polycrystal (Voigt–Reuss–Hill)."""

    def change(atoms: Atoms) -> list[Atoms]:
        return [strained(atoms, direction, sign * STRAIN) for direction in range(6) for sign in (1, -1)]

    found = bench.relax_each(WHAT, change, "fixed")
    matrices = {}
    for member, own in found.items():
        stress = np.array([each.state.stress for each in own]).reshape(6, 2, 6)
        columns = (stress[:, 0] - stress[:, 1]) / (2 * STRAIN)
        matrices[member] = symmetrised((columns + columns.T) / 2, bench.crystal.rotations) * GPA
    numbers = {
        f"C{name}": bench.quantity({m: c[int(name[0]) - 1, int(name[1]) - 1] for m, c in matrices.items()}, "GPa")
        for name in INDEPENDENT[bench.crystal.system]
    }
    numbers = {name: each for name, each in numbers.items() if np.abs(each.present).max(initial=0) > 1e-6}
    stable = {member: c for member, c in matrices.items() if np.linalg.eigvalsh(c).min() > 0}
    averages = {member: moduli(c) for member, c in stable.items()}
    for place, name in enumerate(MODULI):
        unit = "" if name == "poisson_ratio" else "GPa"
        numbers[name] = bench.quantity({member: values[place] for member, values in averages.items()}, unit)
    share = len(stable) / len(matrices) if matrices else 0.0
    return numbers, Elastic(bench.quantity(matrices, "GPa"), share)


def strained(atoms: Atoms, direction: int, amount: float) -> Atoms:
    """The cell under one Voigt strain; fractional coordinates stay."""
    voigt = np.zeros(6)
    voigt[direction] = amount if direction < 3 else amount / 2
    changed = atoms.copy()
    changed.set_cell(atoms.cell.array @ (np.eye(3) + voigt_to_full(voigt)), scale_atoms=True)
    return changed


def symmetrised(matrix: FloatArray, rotations: FloatArray) -> FloatArray:
    """The average of a stiffness matrix [6, 6] over the point group [R, 3, 3]."""
    tensor = np.empty((3, 3, 3, 3))
    for i, (a, b) in enumerate(_VOIGT):
        for j, (c, d) in enumerate(_VOIGT):
            tensor[a, b, c, d] = tensor[b, a, c, d] = tensor[a, b, d, c] = tensor[b, a, d, c] = matrix[i, j]
    turned = sum(np.einsum("ai,bj,ck,dl,ijkl->abcd", r, r, r, r, tensor, optimize=True) for r in rotations)
    mean = np.asarray(turned) / len(rotations)
    return np.array([[mean[a, b, c, d] for c, d in _VOIGT] for a, b in _VOIGT])


MODULI = ("bulk_modulus", "shear_modulus", "young_modulus", "poisson_ratio")


def moduli(matrix: FloatArray) -> tuple[float, float, float, float]:
    """Of a polycrystal with randomly oriented grains: Hill's means of the bounds of Voigt and Reuss, GPa."""
    c, s = matrix, np.linalg.inv(matrix)
    bulk_voigt = c[:3, :3].sum() / 9
    bulk_reuss = 1 / s[:3, :3].sum()
    shear_voigt = (np.trace(c[:3, :3]) - (c[0, 1] + c[0, 2] + c[1, 2]) + 3 * np.trace(c[3:, 3:])) / 15
    shear_reuss = 15 / (4 * np.trace(s[:3, :3]) - 4 * (s[0, 1] + s[0, 2] + s[1, 2]) + 3 * np.trace(s[3:, 3:]))
    bulk, shear = (bulk_voigt + bulk_reuss) / 2, (shear_voigt + shear_reuss) / 2
    young = 9 * bulk * shear / (3 * bulk + shear)
    return float(bulk), float(shear), float(young), float((3 * bulk - 2 * shear) / (2 * (3 * bulk + shear)))
