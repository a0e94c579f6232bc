"""Training data that show too little: a set of nearly relaxed structures.

A network learns the forces that it has seen, and its σ far away from them is an extrapolation that can be wrong by
orders of magnitude.  At 30 K the softest metals have a root mean square of 0.05 eV/Å per force component, molecules
several times as much, so that below it nothing has been seen of how atoms move.
"""

from collections.abc import Sequence

import numpy as np

from equibayes.data.geometry import nearest_distances
from equibayes.data.plausibility import rms_force
from equibayes.data.structures import Structure

LOWEST_RMS_FORCE = 0.05
"""eV/Å."""
FRAMES = 40


def narrow_range(structures: Sequence[Structure]) -> str:
    """One line about the range of nearly relaxed training data and the remedy; empty for others."""
    rms = rms_force(structures)
    if not rms or rms >= LOWEST_RMS_FORCE:  # forces that are all 0 are an error of their own
        return ""
    largest = max(float(np.abs(s.forces).max()) for s in structures if s.forces is not None)
    chosen = [s for s in structures[:: -(-len(structures) // FRAMES)] if len(s) > 1]
    near = np.concatenate([nearest_distances(s, np.arange(len(s))) for s in chosen] or [np.zeros(0)])
    distances = f", nearest neighbours {near.min():.3f} to {near.max():.3f} Å apart" if near.size else ""
    return (
        f"the training structures are nearly relaxed (forces: RMS {1e3 * rms:.2g}, largest {1e3 * largest:.2g} meV/Å"
        f"{distances}): σ is far too small for any other structure; add displaced structures or frames of hot dynamics "
        "(equibayes learn --propose md)"
    )
