"""By what the frames that a posterior learned from are known later."""

from equibayes.data.structures import Structure


def frame_mark(structure: Structure) -> str:
    """Identifies a training frame: the beginning of its geometry's digest."""
    return structure.geometry_digest().hex()[:8]
