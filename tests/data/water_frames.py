"""Water molecules with made-up labels, for tests that write files."""

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

WATER = np.array([[0.0, 0.0, 0.0], [0.76, 0.59, 0.0], [-0.76, 0.59, 0.0]])


def water(seed: int, periodic: bool = False) -> Atoms:
    """A shaken water molecule with made-up labels of the right size in a calculator."""
    random = np.random.default_rng(seed)
    atoms = Atoms("OH2", positions=WATER + 0.05 * random.normal(size=(3, 3)))
    results = {"energy": -2080.0 + random.normal(), "forces": random.normal(size=(3, 3))}
    if periodic:
        atoms.set_cell([6.0, 6.5, 7.0])
        atoms.pbc = True
        results["stress"] = 0.01 * random.normal(size=6)
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms
