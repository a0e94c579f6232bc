"""Silicon labelled with Tersoff's potential: dynamics of the perfect crystal to learn from, and other arrangements.

The engine is in `tersoff.py`.
"""

from dataclasses import replace

import numpy as np
from ase import Atoms
from ase.build import bulk, diamond100, diamond111

from equibayes.data.structures import Structure
from equibayes.labelling.calculator import LabellerCalculator
from equibayes.labelling.labellers import Labeller
from equibayes.simulate.integrators import Conditions, Integrator

LATTICE = 5.432
"""Å, that of this potential."""
REPEAT = 2
VACUUM = 6.0
"""Å on each side of a surface."""
STEPS = 15
"""Of 1 fs between frames."""


ENGINE = "studies.doubt.tersoff:Silicon"
"""Imported where labels are made."""


def crystal() -> Atoms:
    return bulk("Si", "diamond", a=LATTICE, cubic=True) * (REPEAT, REPEAT, REPEAT)


def dynamics(temperature: float, frames: int, engine: Labeller, seed: int, wait: int = 20) -> list[Structure]:
    """Frames of Langevin dynamics of the perfect crystal with their labels; the first `wait` are left out."""
    atoms = crystal()
    atoms.calc = LabellerCalculator(engine)
    mover = Integrator(atoms, Conditions("langevin", temperature, timestep=1.0, tau=50.0, seed=seed))
    found = []
    for number in range(wait + frames):
        for _ in range(STEPS):
            mover.step()
        if number >= wait:
            frame = Structure.from_atoms(atoms.copy(), f"{temperature:g} K, frame {number - wait}")
            found.append(replace(frame, momenta=None))
    return found


def defects(rng: np.random.Generator) -> list[Structure]:
    """Vacancies, an interstitial, an exchange of two bonds, an antisite-like compression; displaced by 0.05 Å."""
    perfect = crystal()
    vacancy = perfect.copy()
    del vacancy[0]
    divacancy = perfect.copy()
    near = int(np.argsort(perfect.get_distances(0, range(len(perfect)), mic=True))[1])
    del divacancy[[0, near]]
    interstitial = perfect + Atoms("Si", [perfect.positions[0] + LATTICE / 2])
    exchange = perfect.copy()
    axis = exchange.get_distance(0, near, mic=True, vector=True)
    middle = exchange.positions[0] + axis / 2
    across = np.cross(axis, [1.0, -1.0, 0.0])
    across *= np.linalg.norm(axis) / np.linalg.norm(across) / 2
    exchange.positions[0], exchange.positions[near] = middle - across, middle + across
    named = {"vacancy": vacancy, "divacancy": divacancy, "interstitial": interstitial, "bond exchange": exchange}
    return [_displaced(atoms, name, number, rng) for name, atoms in named.items() for number in range(3)]


def surfaces(rng: np.random.Generator) -> list[Structure]:
    """Unrelaxed surfaces, displaced by 0.05 Å."""
    named = {
        "surface (100)": diamond100("Si", (2, 2, 8), a=LATTICE, vacuum=VACUUM),
        "surface (111)": diamond111("Si", (2, 2, 6), a=LATTICE, vacuum=VACUUM),
    }
    for atoms in named.values():
        atoms.pbc = True
    return [_displaced(atoms, name, number, rng) for name, atoms in named.items() for number in range(3)]


def phases(rng: np.random.Generator) -> list[Structure]:
    """Other crystals at their usual volumes, displaced by 0.05 Å."""
    places = [[0, 0, 0], [0.5, 0.5, 0.5], [0, 0.5, 0.25], [0.5, 0, 0.75]]
    tin = Atoms("Si4", cell=[4.69, 4.69, 2.58], scaled_positions=places, pbc=True)
    named = {
        "beta tin": tin * (2, 2, 3),
        "fcc": bulk("Si", "fcc", a=3.87, cubic=True) * (2, 2, 2),
        "bcc": bulk("Si", "bcc", a=3.08, cubic=True) * (3, 3, 3),
        "sc": bulk("Si", "sc", a=2.53, cubic=True) * (3, 3, 3),
    }
    return [_displaced(atoms, name, number, rng) for name, atoms in named.items() for number in range(3)]


def liquid(count: int, engine: Labeller, seed: int) -> list[Structure]:
    """Frames of the crystal while it melts at 6000 K."""
    return dynamics(6000.0, count, engine, seed, wait=10)


def _displaced(atoms: Atoms, name: str, number: int, rng: np.random.Generator) -> Structure:
    moved = atoms.copy()
    moved.positions += rng.normal(scale=0.05, size=moved.positions.shape)
    return Structure(moved.numbers, moved.positions, moved.cell.array, moved.pbc, source=f"{name} {number}")
