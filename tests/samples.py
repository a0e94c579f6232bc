"""Small structures that tests share: molecules and crystals, rattled so that no symmetry hides a mistake."""

import numpy as np
from ase import Atoms
from ase.build import bulk, molecule

from equibayes.data import Structure

SPECIES = ("H", "C", "O", "Na", "Si", "Cl")
"""Symbols of everything below: `type_names` of a model that knows it all."""
SPECIES_OF = {1: 0, 6: 1, 8: 2, 11: 3, 14: 4, 17: 5}


def rattled(atoms: Atoms, amount: float, seed: int) -> Structure:
    """ASE atoms with every coordinate displaced by N(0, amount) Å."""
    atoms.rattle(amount, seed=seed)
    return Structure.from_atoms(atoms, source=f"{atoms.get_chemical_formula()} {seed}")


def ethanol(seed: int = 0) -> Structure:
    """9 atoms, no cell."""
    return rattled(molecule("CH3CH2OH"), 0.1, seed)


def water(seed: int = 0) -> Structure:
    """3 atoms, no cell."""
    return rattled(molecule("H2O"), 0.1, seed)


def silicon(seed: int = 0) -> Structure:
    """The 2-atom primitive cell, sheared: triclinic and smaller than any cutoff."""
    atoms = bulk("Si")
    strain = np.eye(3) + 0.05 * np.random.default_rng(seed).normal(size=(3, 3))
    atoms.set_cell(atoms.cell.array @ strain, scale_atoms=True)
    return rattled(atoms, 0.1, seed)


def salt(seed: int = 0) -> Structure:
    """NaCl, the 8-atom cubic cell, sheared."""
    atoms = bulk("NaCl", "rocksalt", a=5.64, cubic=True)
    strain = np.eye(3) + 0.04 * np.random.default_rng(seed + 1).normal(size=(3, 3))
    atoms.set_cell(atoms.cell.array @ strain, scale_atoms=True)
    return rattled(atoms, 0.1, seed)


def slab(seed: int = 0) -> Structure:
    """A 4-atom silicon slab, periodic in two directions."""
    atoms = bulk("Si").repeat((1, 1, 2))
    atoms.set_pbc([True, True, False])
    return rattled(atoms, 0.1, seed)


def one_atom_cell() -> Structure:
    """One silicon atom in a skewed cell of 2 to 3 Å: all its neighbours are its own images."""
    cell = np.array([[2.6, 0.0, 0.0], [0.9, 2.5, 0.0], [-0.4, 0.7, 2.8]])
    return Structure(numbers=[14], positions=[[0.3, 0.2, 0.1]], cell=cell, pbc=[True] * 3)
