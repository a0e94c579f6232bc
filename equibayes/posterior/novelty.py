"""Novelty: how far the environment of an atom is from all that was learned.  1 is the edge of what was learned.

    novelty = |Wᵀ (s − m)|,   and at least what `surroundings.py` says;   never more than `UNSEEN`

s [S] are the invariant features of the atom after every block of the first network of the posterior.  m and W belong to
its species: the mean over the training frames, and what gives deviations from it the covariance 1/S (Mahalanobis'
distance).  W is scaled so that in one of 200 frames that were left out of the fit some atom is beyond 1.

How it is fitted: `fit_novelty.py`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from equibayes import expect
from equibayes.data.graph import Graph
from equibayes.data.structures import FloatArray
from equibayes.errors import InputError
from equibayes.posterior.surroundings import UNSEEN, Surroundings, Watched

NOVELTY = (1.0, 3.0)
"""The usual levels: the edge of what was learned, and where predictions have little to do with the truth."""
NO_NOVELTY = (
    "novelty is not known; equibayes calibrate POSTERIOR DATA --novelty adds it (DATA: what it was sampled from)"
)
AT_ONCE = 2**20
"""Numbers in the matrices of a system small enough for a matrix per atom, which is faster than a group per species."""
TENSORS = ("mean", "whitening", "shortest", "loneliest")
"""Under these names, after `novelty.`, in a posterior file."""


@dataclass(frozen=True, eq=False)
class Novelty:
    """Fitted for T species and S features.

    mean         [T, S] float32
    whitening    [T, S, S] float32
    surroundings neighbours in the training frames
    about        chain and step of the network, how many frames it was fitted to, and their RMS force component, eV/Å
    """

    mean: np.ndarray
    whitening: np.ndarray
    surroundings: Surroundings
    about: dict[str, Any] = field(default_factory=dict)

    def belongs_to(self, chain: int, step: int) -> bool:
        """Whether features of this sample are those that it was fitted to."""
        return (self.about["chain"], self.about["step"]) == (chain, step)

    @property
    def force_scale(self) -> float:
        """RMS of the force components learned from, eV/Å, for `floor.py`; 0 where it is not known."""
        return float(self.about["force_scale"])

    def gauge(self, graph: Graph, positions: FloatArray | None = None, skin: float = 0.0) -> "Gauge":
        """For the atoms of a graph; the rest as for `Surroundings.watch`."""
        species = graph.species[0].cpu().numpy()
        watched = self.surroundings.watch(graph, positions, skin)
        if len(species) * self.whitening[0].size <= AT_ONCE:
            return Gauge([slice(None)], self.mean[species][None], self.whitening[species][None], watched)
        present = np.unique(species)
        atoms = [np.flatnonzero(species == t) for t in present]
        return Gauge(atoms, self.mean[present], self.whitening[present], watched)

    def tensors(self) -> dict[str, torch.Tensor]:
        """For a posterior file."""
        arrays = (self.mean, self.whitening, self.surroundings.shortest, self.surroundings.loneliest)
        return {f"novelty.{name}": torch.from_numpy(array) for name, array in zip(TENSORS, arrays)}

    @classmethod
    def from_file(
        cls, tensors: dict[str, torch.Tensor], about: Any, types: int, features: int, r_max: float
    ) -> "Novelty":
        """From a posterior file; an `InputError` where shapes or values cannot be."""
        mean, whitening, shortest, loneliest = (tensors[f"novelty.{name}"].numpy() for name in TENSORS)
        shapes = [(types, features), (types, features, features), (types, types), (types,)]
        kinds = [np.float32, np.float32, np.float64, np.float64]
        for name, array, shape, kind in zip(TENSORS, (mean, whitening, shortest, loneliest), shapes, kinds):
            if array.shape != shape or array.dtype != kind:
                raise InputError(f"novelty.{name} is {array.dtype} of shape {array.shape}, not {shape}")
        if not (
            np.isfinite(mean).all() and np.isfinite(whitening).all() and (shortest > 0).all() and (loneliest >= 0).all()
        ):
            raise InputError("novelty: numbers that are not finite, or distances that are not above 0")
        for name in ("chain", "step", "frames", "held_back"):
            expect.whole(expect.section(about, "novelty")[name], f"novelty.{name}")
        expect.number(about["force_scale"], "novelty.force_scale", 0)
        return cls(mean, whitening, Surroundings(shortest, loneliest, r_max), about)


@dataclass(frozen=True, eq=False)
class Gauge:
    """Novelty of the atoms of one graph, also while they move.

    atoms           those of each group: of one species, or all of a small system, with a matrix for each atom
    mean, whitening of each group, [S] and [S, S], or [n, S] and [n, S, S]
    watched         what may be novel by construction
    """

    atoms: list[Any]
    mean: np.ndarray
    whitening: np.ndarray
    watched: Watched

    def __call__(self, features: np.ndarray, positions: FloatArray | None = None) -> np.ndarray:
        """[n] from features [n, S] and, if atoms move, positions [n, 3]; not a number counts as unseen."""
        novelty = np.empty(len(features))
        for atoms, mean, whitening in zip(self.atoms, self.mean, self.whitening):
            x = features[atoms] - mean
            z = x @ whitening if whitening.ndim == 2 else (x[:, None] @ whitening)[:, 0]
            novelty[atoms] = np.sqrt(np.einsum("ij,ij->i", z, z))
        constructed = self.watched(positions)
        if constructed is not None:
            novelty = np.maximum(novelty, constructed)
        novelty[~(novelty < UNSEEN)] = UNSEEN
        return novelty
