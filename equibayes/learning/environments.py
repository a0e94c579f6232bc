"""Environments of atoms as points, so that structures can be told apart atom by atom.

The points are the features of `posterior/novelty.py`, whitened: distances from their mean are novelties.  Two unrelated
points are further apart than either is from the mean, by √2 on average; distances are divided by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from equibayes.data.dataset import Dataset
from equibayes.data.structures import Structure
from equibayes.posterior.file import Posterior
from equibayes.posterior.fit_novelty import Probe


@dataclass(frozen=True, eq=False)
class Environments:
    """Of the atoms of one structure.  points [n, S], species [n]."""

    points: np.ndarray
    species: np.ndarray

    def distance(self, other: "Environments") -> np.ndarray:
        """[n] from each atom to the nearest of the same species in another structure; inf where there is none."""
        found = np.full(len(self.points), np.inf)
        for t in np.intersect1d(self.species, other.species):
            mine, theirs = self.points[self.species == t], other.points[other.species == t]
            square = (mine**2).sum(1)[:, None] + (theirs**2).sum(1) - 2 * mine @ theirs.T
            found[self.species == t] = np.sqrt(square.min(1).clip(min=0.0) / 2)
        return found


def environments_of(
    posterior: Posterior, structures: Sequence[Structure], device: torch.device | str = "cpu"
) -> list[Environments] | None:
    """Of every structure; None where the posterior has no novelty."""
    if posterior.novelty is None:
        return None
    found = Probe(posterior, torch.device(device)).features(Dataset(list(structures)))
    mean, whitening = posterior.novelty.mean, posterior.novelty.whitening
    points = np.empty_like(found.values)
    for t in np.unique(found.species):
        own = found.species == t
        points[own] = (found.values[own] - mean[t]) @ whitening[t]
    ends = np.cumsum([len(structure) for structure in structures])[:-1]
    return [Environments(*each) for each in zip(np.split(points, ends), np.split(found.species, ends))]


class Spread:
    """How far structures are from those chosen so far, by the atom that is furthest away."""

    def __init__(self, environments: Sequence[Environments], apart: float) -> None:
        """apart: below this distance a structure repeats what was chosen."""
        self.environments, self.apart = environments, apart
        self.distance = [np.full(len(each.species), np.inf) for each in environments]

    def choose(self, index: int) -> None:
        """Add a structure to those chosen."""
        chosen = self.environments[index]
        self.distance = [
            np.minimum(before, own.distance(chosen)) for before, own in zip(self.distance, self.environments)
        ]

    @property
    def new(self) -> np.ndarray:
        """[structures] bool: whether each adds anything; all, where none does."""
        found = np.array([each.max() >= self.apart for each in self.distance])
        return found if found.any() else np.ones_like(found)

    def novelty_left(self, novelty: Sequence[np.ndarray]) -> np.ndarray:
        """[structures]: the largest novelty of an atom once those chosen are known."""
        return np.array([np.minimum(each, own).max() for each, own in zip(novelty, self.distance)])
