"""A labeller that looks labels up: for pools that have them already, to study how few of them would have been enough."""

from collections.abc import Iterable
from typing import Protocol

from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.labelling.labellers import Label, Refusal


class Labels(Protocol):
    """What the loop asks of a labeller; `labellers.Labeller` is the other one."""

    def label(self, structure: Structure) -> Label | Refusal: ...

    def close(self) -> None: ...


class PoolLabeller:
    """Finds a structure by its exact geometry."""

    def __init__(self, pool: Iterable[Structure]) -> None:
        self.known = {s.geometry_digest(): s for s in pool if s.energy is not None and s.forces is not None}
        if not self.known:
            raise InputError(
                "labeller pool: no frame of the pool has an energy and forces; name their keys, or another labeller"
            )

    def label(self, structure: Structure) -> Label | Refusal:
        found = self.known.get(structure.geometry_digest())
        if found is None or found.energy is None or found.forces is None:
            return Refusal("the pool has no label for it", 0.0)
        return Label(found.energy, found.forces, 0.0, found.stress)

    def close(self) -> None:
        """Nothing is open."""
