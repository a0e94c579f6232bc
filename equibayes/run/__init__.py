"""A run is a value: data and settings in, samples of K chains out.

``prepare`` settles what follows from the data, ``chains`` puts K chains on a device, ``loop`` runs them, and a store
keeps what is needed to resume.  ``Run`` says where a run is written and computed.
"""

from equibayes.run.options import Run

__all__ = ["Run"]
