"""Files -> Dataset -> Graph.  Nothing here imports ASE before a file needs it."""

from equibayes.data.dataset import Dataset
from equibayes.data.read import bundled_ethanol, read
from equibayes.data.structures import Structure

__all__ = ["Dataset", "Structure", "bundled_ethanol", "read"]
