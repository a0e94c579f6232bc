"""Sums of forces that somebody may ask for: the force that stretches a bond, net force and torque of a fragment."""

from collections.abc import Iterator

import numpy as np
from ase.data import covalent_radii

from equibayes.data.neighbors import neighbor_list
from equibayes.data.structures import FloatArray, Structure
from equibayes.posterior.force_covariance import net_force, stretching, torque

TOUCHING = 1.25
"""Atoms are bonded up to so many times the sum of their covalent radii."""
LARGEST_CLUSTER = 5
MOST_FRAGMENTS = 24


def projections(structure: Structure) -> dict[str, FloatArray]:
    """By name, weights [m, n, 3] of derived quantities; bonds across periodic boundaries are left out."""
    bonds, positions = bonds_of(structure), structure.positions
    pieces, none = list(fragments(structure, bonds))[:MOST_FRAGMENTS], np.zeros((0, len(structure), 3))
    return {
        "components": np.eye(3 * len(structure)).reshape(-1, len(structure), 3),
        "bond stretching": np.array([stretching(positions, i, j) for i, j in bonds[: 4 * MOST_FRAGMENTS]]),
        "fragment net force": np.concatenate([none, *(net_force(len(structure), piece) for piece in pieces)]),
        "fragment torque": np.concatenate([none, *(torque(positions, piece) for piece in pieces)]),
    }


def bonds_of(structure: Structure) -> list[tuple[int, int]]:
    """Pairs of bonded atoms, none across a boundary."""
    radii = covalent_radii[structure.numbers]
    pairs = neighbor_list(structure.positions, structure.cell, structure.pbc, 2 * TOUCHING * float(radii.max()))
    direct = structure.positions[pairs.sender] - structure.positions[pairs.receiver]
    length = np.linalg.norm(pairs.vector, axis=1)
    touching = length < TOUCHING * (radii[pairs.sender] + radii[pairs.receiver])
    near = touching & (np.abs(direct - pairs.vector).max(1) < 1e-6) & (pairs.receiver < pairs.sender)
    return list(zip(pairs.receiver[near].tolist(), pairs.sender[near].tolist()))


def fragments(structure: Structure, bonds: list[tuple[int, int]]) -> Iterator[list[int]]:
    """Molecules of a liquid; the smaller side of each bond of a molecule whose ends both have other neighbours; an
    atom of a crystal with its neighbours."""
    count = len(structure)
    whole = _connected(count, bonds)
    if len(whole) > 3:
        yield from (piece for piece in whole if 1 < len(piece) <= LARGEST_CLUSTER)
    elif structure.pbc.any():
        for atom in range(count):
            piece = [atom, *(j if i == atom else i for i, j in bonds if atom in (i, j))]
            if len(piece) == LARGEST_CLUSTER:
                yield piece
    else:
        for bond in bonds:
            sides = _connected(count, [each for each in bonds if each != bond])
            smaller = min(sides, key=len)
            if len(sides) > len(whole) and len(smaller) > 1:
                yield smaller


def _connected(count: int, bonds: list[tuple[int, int]]) -> list[list[int]]:
    group = np.arange(count)
    for i, j in bonds:
        group[group == group[j]] = group[i]
    return [np.flatnonzero(group == each).tolist() for each in np.unique(group)]
