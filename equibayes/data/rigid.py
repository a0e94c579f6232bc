"""Directions in which the forces of a whole structure have no error: its net force and its torque.

The energy does not change when everything moves or, without a cell, turns together.  So the forces of every prediction
add up to 0 and exert no torque, and so do correct labels.  What labels have nevertheless is noise of the calculation.
"""

from collections.abc import Sequence

import numpy as np

from equibayes.data.structures import FloatArray, Structure

DIRECTIONS = 6
LEAST_NOISE = 1e-3
"""eV/Å: no label is taken for more exact than this."""
SHORTEST = 1e-3
"""Å: about an axis that all atoms are closer to there is no torque."""


def rigid_directions(positions: FloatArray, periodic: bool) -> FloatArray:
    """[n, 3, 6] orthonormal columns that span the net force and, unless periodic, the torque; 0 where there are fewer.

    positions [n, 3] Å of one structure
    """
    count = len(positions)
    found = np.zeros((count, 3, DIRECTIONS))
    found[:, range(3), range(3)] = count**-0.5
    if not periodic:
        centred = positions - positions.mean(0)
        turns = np.cross(np.eye(3)[:, None], centred).reshape(3, -1)  # e_a × r
        _, length, rows = np.linalg.svd(turns, full_matrices=False)
        found[:, :, 3:][:, :, : len(rows)] = (rows * (length > SHORTEST)[:, None]).T.reshape(count, 3, -1)
    return found


def rigid_directions_of(structure: Structure) -> FloatArray:
    """Of a structure, periodic in any direction or not."""
    return rigid_directions(structure.positions, bool(structure.pbc.any()))


def rigid_noise(structures: Sequence[Structure]) -> float:
    """Root mean square of the labels' forces along these directions, eV/Å, at least `LEAST_NOISE`."""
    squares, count = 0.0, 0
    for structure in structures:
        if structure.forces is not None:
            directions = rigid_directions_of(structure)
            squares += float(np.square(np.einsum("iac,ia->c", directions, structure.forces)).sum())
            count += int(np.any(directions != 0, (0, 1)).sum())
    return max(LEAST_NOISE, (squares / count) ** 0.5) if count else LEAST_NOISE
