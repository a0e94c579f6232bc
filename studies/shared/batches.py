"""Frames of one molecule joined into batches of equal size that stay on the device."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from equibayes.data import Dataset
from equibayes.data.graph import Graph, graph_of
from equibayes.data.structures import Structure
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import joined

Batch = tuple[list[Structure], Graph]


def joined_batches(
    sets: Sequence[Dataset], posterior: Posterior, device: torch.device | str, edges: int
) -> Iterator[Batch]:
    """All frames in order, with about `edges` edges per batch.

    Batches have equal size: kernels for a small rest would have to be compiled separately.
    """
    known = {"r_max": posterior.network.r_max, "species_of": posterior.species_of}
    pairs = [(structure, graph_of(structure, **known)) for data in sets for structure in data]
    total = sum(graph.sender.numel() for _, graph in pairs)
    for part in np.array_split(np.arange(len(pairs)), min(len(pairs), -(-total // edges))):
        frames, graph = joined([pairs[i] for i in part])
        yield frames, graph.to(device)
