"""A posterior made ready on a device, for programs that ask again and again about structures that move a little."""

from collections.abc import Sequence
from copy import copy

import torch

from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import Prediction, ReadyPosterior
from equibayes.simulate.skin import SkinList

DTYPES = ("float32", "float64")


class Evaluator:
    """What `posterior.predict` gives; the i-th structure of each call keeps its neighbour list."""

    def __init__(self, posterior: Posterior, device: torch.device | str, dtype: str | None, skin: float) -> None:
        if dtype is not None and dtype not in DTYPES:
            raise InputError(f"dtype={dtype}: must be {' or '.join(DTYPES)}")
        self.posterior, self.skin = posterior, skin
        self.ready = ReadyPosterior(posterior, device, None if dtype is None else getattr(torch, dtype))
        self.lists: list[SkinList] = []

    def __call__(self, structures: Sequence[Structure], *, members: bool = False) -> list[Prediction]:
        """One prediction for each structure."""
        while len(self.lists) < len(structures):
            self.lists.append(SkinList(self.posterior.network.r_max, self.posterior.species_of, self.skin))
        pairs = ((structure, known.graph(structure)) for known, structure in zip(self.lists, structures))
        found = self.ready.predict_each(pairs, [len(self.posterior)], members=members)
        return [prediction for (prediction,) in found]

    def twin(self) -> "Evaluator":
        """The same weights, neighbour lists of its own."""
        other = copy(self)
        other.lists = []
        return other
