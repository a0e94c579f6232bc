"""Periodic cells for molecules and slabs: with so much vacuum that no atom interacts with an image.

Energy and forces are those without a cell.  The model gives a virial only for periodic cells, and other programs ask
for the virial even of a molecule.
"""

import numpy as np

from equibayes.data.structures import BoolArray, FloatArray, IntArray, Structure

_SPARE = 10.0
"""Å of vacuum beyond what is needed, so that the cell does not change, and with it the neighbour list, at every step.
"""


class VacuumCell:
    """Builds the structures of one moving system."""

    def __init__(self, reach: float) -> None:
        """reach: Å, the largest distance at which atoms interact."""
        self.reach = reach
        self._lengths = np.zeros(3)

    def __call__(
        self, numbers: IntArray, positions: FloatArray, cell: FloatArray, periodic: BoolArray, source: str
    ) -> Structure:
        """A structure periodic in all directions; lattice vectors along periodic directions are kept."""
        padded = cell.copy()
        with np.errstate(invalid="ignore"):  # positions that are not numbers are reported by the neighbour list
            for d in np.flatnonzero(~periodic).tolist():
                padded[d] = self._padded_vector(d, positions, cell)
        return Structure(numbers, positions, padded, np.ones(3, dtype=bool), source=source)

    def _padded_vector(self, d: int, positions: FloatArray, cell: FloatArray) -> FloatArray:
        normal = np.cross(cell[(d + 1) % 3], cell[(d + 2) % 3])
        normal /= np.linalg.norm(normal)
        direction = cell[d] / np.linalg.norm(cell[d])
        needed = (np.ptp(positions @ normal) + self.reach) / abs(direction @ normal)
        if not needed <= self._lengths[d]:
            self._lengths[d] = needed + _SPARE
        return self._lengths[d] * direction
