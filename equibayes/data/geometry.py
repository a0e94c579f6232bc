"""Distances that judge a structure before any neighbour list is made: flat cells, coincident atoms.

By sorting: a neighbour list with a cutoff of 0.001 Å would need a grid of that spacing over the whole cell.
"""

import itertools

import numpy as np

from equibayes.data.structures import FloatArray, Structure

# A direction along which no two lattice planes of a crystal coincide, so that few atoms share a projection.
_GENERIC = np.array([0.5377, 0.6131, 0.5788])
_GENERIC /= np.linalg.norm(_GENERIC)


def periodic_basis(structure: Structure) -> FloatArray:
    """[3, 3]: the k lattice vectors of the periodic directions, then unit vectors across them."""
    periodic = structure.cell[structure.pbc]
    _, _, right = np.linalg.svd(periodic.reshape(-1, 3))
    return np.concatenate([periodic, right[len(periodic) :]])


def periodic_heights(structure: Structure) -> FloatArray:
    """[k] distance in Å between opposite faces along each periodic direction, 0 where the cell is flat."""
    k = int(structure.pbc.sum())
    try:
        inverse = np.linalg.inv(periodic_basis(structure))
    except np.linalg.LinAlgError:
        return np.zeros(k)
    with np.errstate(over="ignore"):
        heights = 1.0 / np.linalg.norm(inverse[:, :k], axis=0)
    return np.where(np.isfinite(heights), heights, 0.0)


def wrapped(structure: Structure) -> tuple[FloatArray, FloatArray]:
    """Coordinates [n, 3] in `periodic_basis`, the periodic ones within [0, 1), and that basis [3, 3]."""
    basis = periodic_basis(structure)
    fractional = structure.positions @ np.linalg.inv(basis)
    k = int(structure.pbc.sum())
    fractional[:, :k] -= np.floor(fractional[:, :k])
    return fractional, basis


def coincident_pair(structure: Structure, closer_than: float = 1e-3) -> tuple[int, int] | None:
    """Two atoms nearer than `closer_than` Å, also across the periodic boundary; None if there are none.

    Atoms are sorted along a generic direction: near atoms have near projections.  Cells must be higher than this.
    """
    points = structure.positions
    owner = np.arange(len(points))
    if structure.pbc.any():
        fractional, basis = wrapped(structure)
        for axis, height in enumerate(periodic_heights(structure)):
            low = np.flatnonzero(fractional[:, axis] < closer_than / height)  # seen again from behind the far face
            images = fractional[low].copy()
            images[:, axis] += 1.0
            fractional = np.concatenate([fractional, images])
            owner = np.concatenate([owner, owner[low]])
        points = fractional @ basis
    along = points @ _GENERIC
    order = np.argsort(along)
    along, points, owner = along[order], points[order], owner[order]
    for step in range(1, len(along)):
        near = np.flatnonzero(along[step:] - along[:-step] < closer_than)
        if not near.size:
            return None
        close = near[np.linalg.norm(points[near + step] - points[near], axis=1) < closer_than]
        pairs = sorted(
            {(int(a), int(b)) for a, b in np.sort(np.stack([owner[close], owner[close + step]], 1)) if a != b}
        )
        if pairs:
            return pairs[0]
    return None


def nearest_distances(structure: Structure, atoms: np.ndarray) -> FloatArray:
    """[len(atoms)] distance in Å from each of these atoms to its nearest neighbour, periodic images included.

    Exact up to the height of the cell; inf for a single atom.
    """
    fractional, basis = wrapped(structure)
    k = int(structure.pbc.sum())
    best = np.full(len(atoms), np.inf)
    for shift in itertools.product(*([(-1, 0, 1)] * k + [(0,)] * (3 - k))):
        image = fractional[atoms, None] - fractional[None] + np.array(shift, dtype=np.float64)
        distance = np.linalg.norm(image @ basis, axis=2)
        if not any(shift):
            distance[np.arange(len(atoms)), atoms] = np.inf
        best = np.minimum(best, distance.min(axis=1))
    return best
