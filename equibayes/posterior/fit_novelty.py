"""Fit the novelty of a posterior to its training frames; the held-back frames help to tell where the edge is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from equibayes.data.dataset import Dataset
from equibayes.data.graph import Graph, graph_of
from equibayes.data.plausibility import rms_force
from equibayes.data.structures import Structure
from equibayes.device import choose_device
from equibayes.engine.select import make_predictor
from equibayes.posterior.file import Posterior
from equibayes.posterior.novelty import Novelty
from equibayes.posterior.predict import batches, joined
from equibayes.posterior.surroundings import Surroundings

EDGE = 0.005
"""Share of frames like those learned that have an atom beyond a novelty of 1."""
TAIL = 0.1
"""Share of the frames from which the tail of the distances is extrapolated."""
FOLDS = 5
FEWEST_FRAMES = 10
MOST_ATOMS = 100_000
"""Atoms of which features are computed; where there are more, frames are taken at equal intervals."""
SHRINK = 1e-2
"""How strongly the covariance of few atoms is drawn towards that of independent features; see `_whitening`."""


def with_novelty(
    posterior: Posterior, train: Dataset, held_back: Dataset, *, device: torch.device | str | None = None
) -> Posterior:
    """The posterior with a novelty fitted to the frames that it learned from; without one for very few frames.

    Frames whose labels have a known noise do not count as learned.
    """
    train = train.right
    if len(train) < FEWEST_FRAMES:
        return replace(posterior, novelty=None)
    types = len(posterior.network.type_names)
    surroundings = Surroundings.none(types, posterior.network.r_max)
    probe = Probe(posterior, choose_device(device))
    learned, apart = (probe.features(data, surroundings) for data in (train, held_back))
    mean, whitening = fit(learned, apart, types)
    about: dict[str, float] = {"frames": learned.frames, "held_back": apart.frames}
    scale = rms_force(train if posterior.baseline is None else posterior.baseline.taken_off(train)) or 0.0
    about |= {"chain": int(posterior.chain[0]), "step": int(posterior.step[0]), "force_scale": scale}
    return replace(posterior, novelty=Novelty(mean, whitening, surroundings, about))


@dataclass(frozen=True, eq=False)
class Features:
    """Invariant features [A, S] of atoms, their types [A], and the frame [A] that each belongs to; F frames."""

    values: np.ndarray
    species: np.ndarray
    frame: np.ndarray
    frames: int

    def __getitem__(self, which: np.ndarray) -> "Features":
        return Features(self.values[which], self.species[which], self.frame[which], self.frames)


class Probe:
    """The first sample of a posterior on a device."""

    def __init__(self, posterior: Posterior, device: torch.device) -> None:
        self.posterior, self.device = posterior, device
        first = posterior.samples[:1].to(device)
        self.predictor, self.weights = (
            make_predictor(posterior.model, first),
            posterior.model.layout.forward_weights(first),
        )

    @torch.no_grad()
    def features(self, data: Dataset, surroundings: Surroundings | None = None) -> Features:
        """Of all atoms; with `surroundings`, which note all neighbours, of some frames if there are `MOST_ATOMS`."""
        parts = [np.zeros((0, self.posterior.model.network.invariants), dtype=np.float32)]
        frames: list[Structure] = []
        for batch in batches(self._graphs(data, surroundings), self.predictor.edges_at_once(self.device)):
            own, graph = joined(batch)
            frames += own
            output = self.predictor.forward(self.weights, graph.to(self.device))
            parts.append(output.invariants[0].float().cpu().numpy())
        species = [self.posterior.species_of[int(z)] for structure in frames for z in structure.numbers]
        frame = np.repeat(np.arange(len(frames)), [len(structure) for structure in frames])
        return Features(np.concatenate(parts), np.array(species, dtype=np.int64), frame, len(frames))

    def _graphs(self, data: Dataset, surroundings: Surroundings | None) -> Iterator[tuple[Structure, Graph]]:
        every = 1 if surroundings is None else max(1, -(-int(data.n_atoms.sum()) // MOST_ATOMS))
        for number, structure in enumerate(data):
            graph = graph_of(structure, r_max=self.posterior.network.r_max, species_of=self.posterior.species_of)
            if surroundings is not None:
                surroundings.note(graph)
            if number % every == 0:
                yield structure, graph


def fit(learned: Features, apart: Features, types: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean [T, S] and whitening [T, S, S] of every type.

    A frame is as novel as its farthest atom.  The edge is the distance that a share `EDGE` of frames exceeds: held-back
    frames, and each fifth of the training frames under the fit to the others.
    """
    folds = [learned[learned.frame % FOLDS == fold] for fold in range(FOLDS)]
    moments = [Moments.of(fold, types) for fold in folds]
    whole = Moments.sum_of(moments)
    mean, whitening = whole.fit()
    farthest = [_farthest(apart, mean, whitening)]
    for number, fold in enumerate(folds):
        others = Moments.sum_of(moments[:number] + moments[number + 1 :])
        farthest.append(_farthest(fold, *others.fit()))
    edge = edge_of(np.concatenate(farthest))
    return mean.astype(np.float32), (whitening / edge).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over the atoms of each type: their number [T], features [T, S] and products of features [T, S, S]."""

    count: np.ndarray
    first: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, features: Features, types: int) -> "Moments":
        own = [features.values[features.species == t].astype(np.float64) for t in range(types)]
        return cls(np.array([len(x) for x in own]), np.stack([x.sum(0) for x in own]), np.stack([x.T @ x for x in own]))

    @classmethod
    def sum_of(cls, parts: Sequence["Moments"]) -> "Moments":
        return cls(*(sum(getattr(part, name) for part in parts) for name in ("count", "first", "second")))

    def fit(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean [T, S] and whitening [T, S, S]; both are 0 for a type without atoms."""
        count = np.maximum(self.count, 1)
        mean = self.first / count[:, None]
        covariance = self.second / count[:, None, None] - mean[:, :, None] * mean[:, None, :]
        variance = np.einsum("tii->t", covariance).clip(min=0.0) / mean.shape[1]
        typical = float((self.count * variance).sum() / self.count.sum())
        each = [_whitening(c, n, typical) if n else np.zeros_like(c) for c, n in zip(covariance, self.count)]
        return mean, np.stack(each)


def _whitening(covariance: np.ndarray, count: int, typical: float) -> np.ndarray:
    """[S, S] from the covariance of the features of so many atoms; typical: variance of a feature.

    In directions that few atoms have hardly explored, the variance is not known to be small: a part SHRINK · S/count of
    the typical one is added.
    """
    size = len(covariance)
    values, vectors = np.linalg.eigh(covariance)
    floor = SHRINK * size / count * typical + np.finfo(np.float32).eps
    return vectors / np.sqrt(size * (values.clip(min=0.0) + floor))


def _farthest(features: Features, mean: np.ndarray, whitening: np.ndarray) -> np.ndarray:
    """The largest distance of an atom of each frame."""
    distance = np.empty(len(features.values))
    for t in np.unique(features.species).tolist():
        own = features.species == t
        distance[own] = np.linalg.norm((features.values[own] - mean[t]) @ whitening[t], axis=1)
    largest = np.zeros(features.frames)
    np.maximum.at(largest, features.frame, distance)
    return largest[np.unique(features.frame)]


def edge_of(farthest: np.ndarray) -> float:
    """The distance that a share `EDGE` of frames exceeds; beyond the observed ones its logarithm has an exponential
    tail."""
    logarithm = np.log(np.maximum(farthest, np.finfo(np.float64).tiny))
    start = np.quantile(logarithm, 1 - TAIL)
    beyond = logarithm[logarithm > start] - start
    return float(np.exp(start + (beyond.mean() if len(beyond) else 0.0) * np.log(TAIL / EDGE)))
