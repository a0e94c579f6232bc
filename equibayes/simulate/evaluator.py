"""A posterior made ready on a device, for programs that ask again and again about structures that move a little."""

from collections.abc import Sequence
from copy import copy

import torch

from equibayes.data.graph import Graph, concatenate
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.dropout import prediction_masks
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import Prediction, _Arrays, _split
from equibayes.simulate.skin import SkinList

DTYPES = ("float32", "float64")
# Edges times samples evaluated at once; see posterior.predict.
EDGES_AT_ONCE = {"cpu": 10_000, "cuda": 200_000}


class Evaluator:
    """What `posterior.predict` gives; weights are prepared once, and the i-th structure of each call keeps its neighbour list."""

    def __init__(self, posterior: Posterior, device: torch.device | str, dtype: str | None, skin: float) -> None:
        if dtype is not None and dtype not in DTYPES:
            raise InputError(f"dtype={dtype}: must be {' or '.join(DTYPES)}")
        self.posterior, self.skin = posterior, skin
        self.samples = posterior.samples.to(device, None if dtype is None else getattr(torch, dtype))
        self.weights = posterior.model.layout.forward_weights(self.samples)
        self.calibration = None if posterior.calibration is None else Calibration.from_dict(posterior.calibration)
        self.lists: list[SkinList] = []
        self.limit = EDGES_AT_ONCE.get(self.samples.device.type, 200_000) // len(posterior)

    def __call__(self, structures: Sequence[Structure], *, members: bool = False) -> list[Prediction]:
        """One prediction for each structure."""
        network = self.posterior.network
        while len(self.lists) < len(structures):
            self.lists.append(SkinList(network.r_max, self.posterior.species_of, self.skin))
        graphs = [known.graph(structure) for known, structure in zip(self.lists, structures)]
        predictions: list[Prediction] = []
        first = edges = 0
        for last, graph in enumerate(graphs):
            edges += graph.sender.numel()
            following = graphs[last + 1].sender.numel() if last + 1 < len(graphs) else self.limit
            if edges + following > self.limit:
                batch = concatenate(graphs[first : last + 1]).to(self.samples.device, self.samples.dtype)
                predictions += self._evaluate(structures[first : last + 1], batch, members)
                first, edges = last + 1, 0
        return predictions

    def twin(self) -> "Evaluator":
        """The same weights, neighbour lists of its own."""
        other = copy(self)
        other.lists = []
        return other

    def _evaluate(self, structures: Sequence[Structure], graph: Graph, members: bool) -> list[Prediction]:
        mask = None
        if self.posterior.dropout:
            sizes, channels = [len(s) for s in structures], self.posterior.network.channels[0]
            mask = prediction_masks(self.posterior.dropout, self.samples, sizes, channels)
        output = _Arrays.of(self.posterior.model.forward(self.weights, graph, feature_mask=mask))
        return list(_split(self.posterior, self.calibration, structures, output, members))
