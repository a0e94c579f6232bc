"""Laws of periodic structures, as checks on a callable (see tests/physics.py)."""

from dataclasses import replace

import numpy as np

from equibayes.data import Structure
from tests.physics import Evaluate, assert_close, assert_same


def repeat(structure: Structure, counts: tuple[int, int, int]) -> Structure:
    """The supercell, one copy of all atoms after the other."""
    shifts = np.array([[i, j, k] for i in range(counts[0]) for j in range(counts[1]) for k in range(counts[2])])
    positions = (shifts @ structure.cell)[:, None, :] + structure.positions
    return replace(
        structure,
        numbers=np.tile(structure.numbers, len(shifts)),
        positions=positions.reshape(-1, 3),
        cell=structure.cell * np.array(counts)[:, None],
    )


def check_supercell(evaluate: Evaluate, structure: Structure, counts: tuple[int, int, int] = (2, 1, 1)) -> None:
    """c copies in one cell: c times the energy; the same forces, stress and σ, also of the energy."""
    copies, one, many = int(np.prod(counts)), evaluate(structure), evaluate(repeat(structure, counts))
    features = None if one.features is None else np.tile(one.features, (copies, 1))
    expected = replace(
        one,
        energy=copies * one.energy,
        forces=np.tile(one.forces, (copies, 1)),
        sigma_forces=np.tile(one.sigma_forces, copies),
        features=features,
    )
    assert_same(many, expected, f"supercell {counts}")


def check_lattice_shift(evaluate: Evaluate, structure: Structure) -> None:
    """An atom moved by lattice vectors along periodic directions is the same atom."""
    before = evaluate(structure)
    steps = np.where(structure.pbc, [1, -2, 3], 0)
    for atom in range(min(len(structure), 2)):
        positions = structure.positions.copy()
        positions[atom] += steps @ structure.cell
        assert_same(evaluate(replace(structure, positions=positions)), before, "atom moved by a lattice vector")


def check_equivalent_cell(evaluate: Evaluate, structure: Structure) -> None:
    """The same lattice described by very skewed vectors."""
    skew = np.array([[1, 0, 0], [2, 1, 0], [-1, 3, 1]])
    assert_same(evaluate(replace(structure, cell=skew @ structure.cell)), evaluate(structure), "equivalent cell")


def check_self_images(evaluate: Evaluate, one_atom_cell: Structure) -> None:
    """One atom that sees only its own images: it has an energy and, by symmetry, no force."""
    result = evaluate(one_atom_cell)
    assert abs(result.energy) > 1e-6, "self-images: no energy"
    assert_close(result.forces, np.zeros((1, 3)), "self-images: force", 1e-9)
    check_supercell(evaluate, one_atom_cell, (2, 1, 2))


def check_mixed_pbc(evaluate: Evaluate, slab: Structure, r_max: float) -> None:
    """Periodic in two directions is periodic in three with enough vacuum; and each direction counts."""
    assert slab.pbc.tolist() == [True, True, False]
    normal = np.cross(slab.cell[0], slab.cell[1])
    normal /= np.linalg.norm(normal)
    vacuum = slab.cell.copy()
    vacuum[2] *= (np.ptp(slab.positions @ normal) + 1.5 * r_max) / abs(normal @ slab.cell[2])
    in_vacuum = evaluate(replace(slab, cell=vacuum, pbc=[True] * 3))
    result = evaluate(slab)
    assert result.stress is None, "mixed pbc: a slab has no volume"
    assert result.sigma_stress is None, "mixed pbc: a slab has no volume"
    assert_same(result, replace(in_vacuum, stress=None, sigma_stress=None), "mixed pbc")
    for axis in range(2):
        pbc = slab.pbc.copy()
        pbc[axis] = False
        less = evaluate(replace(slab, pbc=pbc))
        assert abs(less.energy - result.energy) > 1e-6, f"mixed pbc: axis {axis} has no effect"
