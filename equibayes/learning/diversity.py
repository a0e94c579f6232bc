"""Structures that differ from each other and from the labelled ones, the least certain first."""

from collections.abc import Sequence

import numpy as np
import torch

from equibayes.data.graph import concatenate, graph_of
from equibayes.data.structures import Structure
from equibayes.learning.environments import Spread
from equibayes.learning.information import best_of
from equibayes.posterior.file import Posterior

AT_ONCE = 32
"""Structures evaluated together."""


def descriptors(
    posterior: Posterior, structures: Sequence[Structure], device: torch.device | str = "cpu"
) -> np.ndarray:
    """[structures, k·C]: invariant features averaged over atoms, concatenated over samples.

    Every sample has its own features; after concatenation, distances average over samples.  The features themselves
    cannot be averaged, since those of different networks do not correspond.
    """
    samples, species_of, r_max = posterior.samples.to(device), posterior.species_of, posterior.network.r_max
    weights = posterior.model.layout.forward_weights(samples)
    rows = []
    for first in range(0, len(structures), AT_ONCE):
        part = structures[first : first + AT_ONCE]
        graph = concatenate([graph_of(s, r_max=r_max, species_of=species_of) for s in part])
        features = posterior.model.forward(weights, graph.to(device, samples.dtype)).features.double().cpu().numpy()
        ends = np.cumsum([len(s) for s in part])
        rows += [features[:, end - len(s) : end].mean(1).ravel() for s, end in zip(part, ends)]
    return np.stack(rows)


def farthest_points(
    points: np.ndarray,
    weight: np.ndarray,
    count: int,
    known: np.ndarray | None = None,
    spread: Spread | None = None,
) -> tuple[list[int], list[float]]:
    """Indices of `count` points [n, d], each with the largest weight times distance to those chosen before and to
    `known` [m, d].

    Distances are in units of the spread of the points.  If nothing is known, the first has the largest weight (value:
    inf).
    """
    scale = float(np.sqrt(np.square(points - points.mean(0)).sum(1).mean())) or 1.0
    distance = np.full(len(points), np.inf)
    for other in known if known is not None else ():
        distance = np.minimum(distance, np.linalg.norm(points - other, axis=1) / scale)
    chosen: list[int] = []
    values: list[float] = []
    while len(chosen) < min(count, len(points)):
        value = weight * distance if np.isfinite(distance).all() else np.asarray(weight, dtype=np.float64)
        best = best_of(value, chosen, spread)
        values.append(float(value[best]) if np.isfinite(distance).all() else float("inf"))
        distance = np.minimum(distance, np.linalg.norm(points - points[best], axis=1) / scale)
    return chosen, values
