"""Periodic cells for what is not periodic: so long that no atom sees an image.

Energy and forces are the same, and the model gives the virial, for which it wants a cell; other programs ask for it even of a molecule.
"""

import numpy as np

from equibayes.data.structures import BoolArray, FloatArray, IntArray, Structure

_ROOM = 10.0
"""Å that a cell is made longer than needed, so that it need not grow, and neighbours be searched anew, at every step."""


class RoomyCell:
    """Makes structures of one system that moves."""

    def __init__(self, reach: float) -> None:
        """reach: Å up to which atoms may see each other."""
        self.reach = reach
        self._lengths = np.zeros(3)

    def __call__(
        self, numbers: IntArray, positions: FloatArray, cell: FloatArray, periodic: BoolArray, source: str
    ) -> Structure:
        """A structure that is periodic in all directions; the cell is as given along those that are."""
        roomy = cell.copy()
        with np.errstate(invalid="ignore"):  # positions that are no numbers are told of by the neighbour list
            for d in np.flatnonzero(~periodic).tolist():
                roomy[d] = self._long_enough(d, positions, cell)
        return Structure(numbers, positions, roomy, np.ones(3, dtype=bool), source=source)

    def _long_enough(self, d: int, positions: FloatArray, cell: FloatArray) -> FloatArray:
        normal = np.cross(cell[(d + 1) % 3], cell[(d + 2) % 3])
        normal /= np.linalg.norm(normal)
        direction = cell[d] / np.linalg.norm(cell[d])
        needed = (np.ptp(positions @ normal) + self.reach) / abs(direction @ normal)
        if not needed <= self._lengths[d]:
            self._lengths[d] = needed + _ROOM
        return self._lengths[d] * direction
