"""A posterior made ready on a device, for programs that ask again and again about structures that move a little."""

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import torch

from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import Prediction, ReadyPosterior
from equibayes.simulate.skin import SkinList

if TYPE_CHECKING:  # needs Triton
    from equibayes.engine.triton.dynamics import MovingModel

DTYPES = ("float32", "float64")


class Evaluator:
    """What `posterior.predict` gives; the i-th structure of each call keeps its neighbour list."""

    def __init__(self, posterior: Posterior, device: torch.device | str, dtype: str | None, skin: float) -> None:
        if dtype is not None and dtype not in DTYPES:
            raise InputError(f"dtype={dtype}: must be {' or '.join(DTYPES)}")
        self.posterior, self.skin = posterior, skin
        self.ready = ReadyPosterior(posterior, device, None if dtype is None else getattr(torch, dtype))
        self.lists: list[SkinList] = []
        self._moving: MovingModel | None = None

    def __call__(self, structures: Sequence[Structure], *, members: bool = False) -> list[Prediction]:
        """One prediction for each structure."""
        if len(structures) == 1 and self.ready.fused and not self.posterior.dropout:
            return [self._of_one(structures[0], members)]
        while len(self.lists) < len(structures):
            self.lists.append(SkinList(self.posterior.network.r_max, self.posterior.species_of, self.skin))
        pairs = ((structure, known.graph(structure)) for known, structure in zip(self.lists, structures))
        found = self.ready.predict_each(pairs, [len(self.posterior)], members=members)
        return [prediction for (prediction,) in found]

    def _of_one(self, structure: Structure, members: bool) -> Prediction:
        """On a GPU: as long as the list of neighbours holds, a step is one replay of recorded kernels."""
        if not self.lists:
            self.lists.append(SkinList(self.posterior.network.r_max, self.posterior.species_of, self.skin))
        known, device = self.lists[0], self.ready.samples.device
        if known.renew(structure):
            graph = known.wide_graph(device)
            if self._moving is None or self._moving.engine.shape.nodes != len(structure):
                from equibayes.engine.triton.dynamics import MovingModel

                self._moving = MovingModel(
                    self.posterior.model,
                    self.ready.weights,
                    graph,
                    self.ready.model.precision,
                    self.ready.model.prepare,
                )
            self._moving.load(graph, structure.positions)
        assert self._moving is not None
        return self.ready.prediction(structure, self._moving(structure.positions), members=members)

    def forget(self) -> None:
        """Begin anew with the neighbours, as a program does that is started from a file."""
        self.lists = []

    def twin(self) -> "Evaluator":
        """The same weights, neighbour lists of its own."""
        other = copy(self)
        other.lists, other._moving = [], None
        return other
