"""Labels from an engine."""

from collections.abc import Iterable

from equibayes.data.structures import Structure
from equibayes.labelling.labellers import Label, Labeller


def labelled(labeller: Labeller, structures: Iterable[Structure]) -> list[Structure]:
    """The structures with the engine's energies and forces; those that it refuses are left out."""
    answers = [(structure, labeller.label(structure)) for structure in structures]
    return [answer.attach(structure) for structure, answer in answers if isinstance(answer, Label)]
