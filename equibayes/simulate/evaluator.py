"""A posterior ready on a device, for simulations: structures that move a little between calls."""

from collections.abc import Sequence
from copy import copy

import numpy as np
import torch

from equibayes.data.graph import Graph
from equibayes.data.structures import Structure
from equibayes.engine.interface import Dynamics
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.posterior.novelty import Gauge
from equibayes.posterior.predict import ReadyPosterior
from equibayes.posterior.prediction import Prediction
from equibayes.posterior.sampled import Sampled
from equibayes.simulate.skin import SkinList

DTYPES = ("float32", "float64")


class Evaluator:
    """Predictions as by `posterior.predict`; the i-th structure of each call keeps its neighbour list."""

    def __init__(
        self,
        posterior: Posterior,
        device: torch.device | str | None,
        dtype: str | None,
        skin: float,
        own: range | None = None,
        begun: str | None = None,
        covariance: bool = False,
    ) -> None:
        """own: the numbers of the samples evaluated here (default: all), see `sampled`.

        begun: the engine of a simulation that goes on;  covariance: predictions have `forces_covariance`
        """
        if dtype is not None and dtype not in DTYPES:
            raise InputError(f"dtype={dtype}: must be {' or '.join(DTYPES)}")
        self.posterior, self.skin = posterior, skin
        precision = None if dtype is None else getattr(torch, dtype)
        self.ready = ReadyPosterior(posterior, device, precision, own=own, begun=begun, covariance=covariance)
        self._dynamics: Dynamics | None = None
        self._gauge: Gauge | None = None
        self.forget()

    def __call__(self, structures: Sequence[Structure], *, members: bool = False) -> list[Prediction]:
        """One prediction for each structure."""
        if len(structures) == 1:
            return [self.prediction(structures[0], [self.sampled(structures[0])], members=members)]
        while len(self.lists) < len(structures):
            self.lists.append(self._new_list())
        pairs = ((structure, known.graph(structure)) for known, structure in zip(self.lists, structures))
        found = self.ready.predict_each(pairs, [len(self.posterior)], members=members)
        return [prediction for (prediction,) in found]

    def sampled(self, structure: Structure) -> Sampled:
        """What each sample predicts for the structure."""
        ready = self.ready
        # a covariance needs the features of this graph
        if ready.fused and not self.posterior.dropout and not ready.covariance and self.posterior.model.isotropic:
            return self._by_dynamics(structure)
        return self.ready.sampled([structure], self._graph(structure))

    def prediction(self, structure: Structure, parts: Sequence[Sampled], *, members: bool = False) -> Prediction:
        """From what all samples predict, in their order."""
        return self.ready.prediction(structure, Sampled.joined(parts), members=members)

    def atomic_energies(self, structure: Structure) -> np.ndarray:
        """[n] eV: the share of each atom in the mean energy."""
        return self.ready.atomic_energies(structure, self._graph(structure))

    def _graph(self, structure: Structure) -> Graph:
        if not self.lists:
            self.lists.append(self._new_list())
        return self.lists[0].graph(structure)

    def _new_list(self) -> SkinList:
        return SkinList(self.posterior.network.r_max, self.posterior.species_of, self.skin)

    def _by_dynamics(self, structure: Structure) -> Sampled:
        """By a fused engine: a step needs only the new positions as long as the neighbour list holds."""
        known, ready = self._of_dynamics, self.ready
        if known.renew(structure):
            graph = known.wide_graph(ready.samples.device)
            if self._dynamics is None or self._dynamics.num_atoms != len(structure):
                self._dynamics = ready.predictor.dynamics(ready.weights, graph)
            assert self._dynamics is not None
            self._dynamics.load(graph, structure.positions)
            self._gauge = ready.novelty.gauge(graph, structure.positions, self.skin) if ready.novelty else None
        assert self._dynamics is not None
        found = self._dynamics(structure.positions)
        novelty = self._gauge(found.invariants, structure.positions) if self._gauge else None
        return ready.sampled_by_dynamics(structure, found, novelty)

    def forget(self) -> None:
        """Search all neighbours again, as a program that is restarted from a file does."""
        self.lists: list[SkinList] = []
        self._of_dynamics = self._new_list()  # that of the fused engine, which keeps its own pairs

    def twin(self) -> "Evaluator":
        """The same weights, neighbour lists of its own."""
        other = copy(self)
        other._dynamics = None
        other.forget()
        return other
