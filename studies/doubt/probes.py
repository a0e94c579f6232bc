"""Structures far from the training frames of a molecule, without labels.

| kind       |                                                                                                 |
|------------|-------------------------------------------------------------------------------------------------|
| bond scans | each kind of bond of the molecule from 0.7 times its length to 6 Å, both fragments kept rigid    |
| scaled     | all positions multiplied by a factor from 0.5 to 4                                               |
| relatives  | other molecules, isomers among them, of the same elements (ASE's collection G2)                  |
| clusters   | the atoms of the molecule at random places that are no closer than bonds                         |
| displaced  | every atom displaced at random by 0.1 to 0.4 Å                                                   |
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from ase.build import molecule
from ase.collections import g2
from ase.data import covalent_radii

from equibayes.data.elements import symbol
from equibayes.data.structures import Structure
from equibayes.learning.propose import bare

LONGEST = 6.0
"""Å, the end of a bond scan."""
POINTS = 24
FACTORS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
DISPLACEMENTS = (0.1, 0.2, 0.3, 0.4)
BOND = 1.25
"""Two atoms are bonded within this multiple of the sum of their covalent radii."""


def bonds(structure: Structure) -> list[tuple[int, int]]:
    """Pairs of bonded atoms."""
    radii = covalent_radii[structure.numbers]
    distance = np.linalg.norm(structure.positions[:, None] - structure.positions[None], axis=-1)
    near = distance < BOND * (radii[:, None] + radii[None, :])
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(near, 1))]


def bond_scans(structure: Structure, points: int = POINTS) -> list[Structure]:
    """A scan of one bond of each pair of elements; bonds of rings, which cannot be cut, are left out."""
    found, done = [], set()
    for i, j in bonds(structure):
        kind = tuple(sorted((symbol(int(structure.numbers[i])), symbol(int(structure.numbers[j])))))
        moved = fragment(structure, i, j)
        if kind in done or moved is None:
            continue
        done.add(kind)
        along = structure.positions[j] - structure.positions[i]
        length = float(np.linalg.norm(along))
        for target in np.geomspace(0.7 * length, LONGEST, points):
            positions = structure.positions.copy()
            positions[moved] += (target - length) * along / length
            source = f"{kind[0]}-{kind[1]} at {target:.3f} Å"
            found.append(replace(bare(structure), positions=positions, source=source))
    return found


def fragment(structure: Structure, i: int, j: int) -> list[int] | None:
    """The atoms on the side of j when the bond i-j is cut; None in a ring."""
    pairs = [set(pair) for pair in bonds(structure) if set(pair) != {i, j}]
    side = {j}
    while True:
        more = {atom for pair in pairs if pair & side for atom in pair} - side
        if not more:
            return None if i in side else sorted(side)
        side |= more


def scaled(structures: Sequence[Structure], factors: Sequence[float] = FACTORS) -> list[Structure]:
    """Every structure scaled by every factor, its cell as well."""
    return [
        replace(
            bare(s), positions=factor * s.positions, cell=factor * s.cell, source=f"scaled by {factor:g}, {s.source}"
        )
        for factor in factors
        for s in structures
    ]


def displaced(
    structures: Sequence[Structure], rng: np.random.Generator, amplitudes: Sequence[float] = DISPLACEMENTS
) -> list[Structure]:
    """Every structure with Gaussian displacements of all coordinates."""
    return [
        replace(
            bare(s),
            positions=s.positions + rng.normal(scale=amplitude, size=s.positions.shape),
            source=f"displaced by {amplitude:g} Å, {s.source}",
        )
        for amplitude in amplitudes
        for s in structures
    ]


def relatives(elements: set[int], largest: int = 14) -> list[Structure]:
    """Molecules of some of these elements with paired electrons."""
    found = []
    for name in g2.names:
        atoms = molecule(name)
        if len(atoms) == 1 or len(atoms) > largest or not set(atoms.numbers.tolist()) <= elements:
            continue
        if atoms.numbers.sum() % 2 or atoms.get_initial_magnetic_moments().any():
            continue
        found.append(Structure(atoms.numbers, atoms.positions, source=name))
    return found


def clusters(numbers: np.ndarray, count: int, rng: np.random.Generator, spacing: float = 0.9) -> list[Structure]:
    """Random clusters: no two atoms closer than `spacing` times the sum of their covalent radii, in a sphere of the
    density of a molecule."""
    found = []
    while len(found) < count:
        radius = 1.25 * len(numbers) ** (1 / 3)
        placed: list[np.ndarray] = []
        for z in numbers:
            for _ in range(200):
                place = radius * rng.uniform(0, 1) ** (1 / 3) * _direction(rng)
                apart = spacing * (covalent_radii[z] + covalent_radii[numbers[: len(placed)]])
                if all(np.linalg.norm(place - other) > limit for other, limit in zip(placed, apart)):
                    placed.append(place)
                    break
            else:
                break
        if len(placed) == len(numbers):
            found.append(Structure(numbers, np.array(placed), source=f"random cluster {len(found)}"))
    return found


def _direction(rng: np.random.Generator) -> np.ndarray:
    vector = rng.normal(size=3)
    return vector / np.linalg.norm(vector)
