"""Strained copper with the labels of ASE's EMT, made on the spot: energies, forces and stress of small cells, and
settings to learn them in seconds.
"""

from functools import cache

import numpy as np
from ase.build import bulk
from ase.calculators.emt import EMT

from equibayes.data import Dataset, Structure
from equibayes.units import GPA

LEARN = {
    "data": {"validation": 10},
    "burn_in": {"steps": 1200, "initial": 3e-2, "final": 3e-4, "decay": "linear", "noise_free": 0.9},
    "cycles": {"length": 100, "peak": 1e-3},
    "guard": {"interval": 100},
}
"""Changes to `tests.runs.SMALL`."""
STRAIN, SHAKE = 0.03, 0.05
"""Of each element of the strain, and of each coordinate in Å."""


@cache
def copper(count: int, seed: int = 0, *, bare: int = 0) -> Dataset:
    """Cells of 4 atoms; of `bare` among them, evenly spread, the stress is not known."""
    rng, frames = np.random.default_rng(seed), []
    without = set(np.linspace(0, count - 1, bare).astype(int).tolist()) if bare else set()
    for number in range(count):
        atoms = bulk("Cu", cubic=True)
        strain = STRAIN * rng.normal(size=(3, 3))
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + (strain + strain.T) / 2), scale_atoms=True)
        atoms.positions += SHAKE * rng.normal(size=atoms.positions.shape)
        atoms.calc = EMT()
        frames.append(
            Structure(
                atoms.numbers,
                atoms.positions,
                atoms.cell.array,
                atoms.pbc,
                energy=atoms.get_potential_energy(),
                forces=atoms.get_forces(),
                stress=None if number in without else atoms.get_stress(voigt=False),
                source=f"copper, frame {number}",
            )
        )
    return Dataset(frames, "copper")


def spread_of_stress(data: Dataset) -> float:
    """Mean absolute deviation of the elements of the labels from their mean, GPa: the error of a constant."""
    upper = np.triu_indices(3)
    labels = np.array([s.stress[upper] for s in data if s.stress is not None])
    return float(np.abs(labels - labels.mean(0)).mean() / GPA)
