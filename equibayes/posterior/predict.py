"""Predictions with uncertainties, for one structure or millions: batches of structures through all samples, whose
results mixture.py combines."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from equibayes.bayes.model import ModelOutput
from equibayes.data.graph import Graph, concatenate, graph_of
from equibayes.data.structures import Structure
from equibayes.device import choose_device
from equibayes.engine.interface import DynamicsOutput
from equibayes.engine.select import make_predictor
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.file import Posterior
from equibayes.posterior.force_covariance import check_size
from equibayes.posterior.force_noise import ForceNoise, force_noise
from equibayes.posterior.linearised import weight_sets
from equibayes.posterior.mixture import predictions_of
from equibayes.posterior.prediction import Prediction
from equibayes.posterior.sampled import Sampled
from equibayes.sampling.dropout import prediction_masks


def predict(
    posterior: Posterior,
    structures: Iterable[Structure],
    *,
    members: bool = False,
    covariance: bool = False,
    device: torch.device | str | None = None,
) -> Iterator[Prediction]:
    """Predictions one after the other, for any number of structures in bounded memory.

    covariance  with `forces_covariance`, of structures of up to 256 atoms
    device      cpu, cuda, …; None: a GPU if there is one
    """
    options: dict[str, Any] = {"members": members, "covariance": covariance, "device": device}
    for (prediction,) in predict_each(posterior, structures, [len(posterior)], **options):
        yield prediction


def predict_each(
    posterior: Posterior,
    structures: Iterable[Structure],
    ks: Sequence[int],
    *,
    members: bool = False,
    covariance: bool = False,
    device: torch.device | str | None = None,
) -> Iterator[tuple[Prediction, ...]]:
    """For every structure the predictions of the first k samples, for each k of `ks`: one pass for all of them."""
    ready = ReadyPosterior(posterior, device, k=max(ks), covariance=covariance)
    species_of, r_max = posterior.species_of, posterior.network.r_max
    pairs = ((s, graph_of(s, r_max=r_max, species_of=species_of)) for s in structures)
    yield from ready.predict_each(pairs, ks, members=members)


class ReadyPosterior:
    """A posterior on a device with its weights prepared once, for many predictions."""

    def __init__(
        self,
        posterior: Posterior,
        device: torch.device | str | None,
        dtype: torch.dtype | None = None,
        k: int | None = None,
        own: range | None = None,
        begun: str | None = None,
        covariance: bool = False,
    ) -> None:
        """device: None for a GPU if there is one;  dtype: of the arithmetic (default: the network's);  k: the first k
        samples (default: all);  own: the numbers of consecutive samples instead, where others evaluate the rest;
        begun: the engine of a simulation that goes on;  covariance: predictions have `forces_covariance`."""
        self.covariance = covariance
        self.posterior, self.own = posterior, own or range(len(posterior) if k is None else k)
        chosen = posterior.take(own) if own else posterior.subset(len(self.own))
        sets, self.steps = chosen.samples.to(choose_device(device), dtype), None
        if chosen.tangent is not None:
            sets, self.steps = weight_sets(sets, chosen.tangent.to(sets.device))
        self.samples = sets  # three weight sets per sample where it is linearised
        self.weights = posterior.model.layout.forward_weights(self.samples)
        known = chosen.novelty
        # of others, features would be compared with those of another network
        self.novelty = known if known and known.belongs_to(int(chosen.chain[0]), int(chosen.step[0])) else None
        self.calibration = None if posterior.calibration is None else Calibration.from_dict(posterior.calibration)
        self.predictor = make_predictor(posterior.model, self.samples, begun=begun)

    def predict_each(
        self, pairs: Iterable[tuple[Structure, Graph]], ks: Sequence[int], *, members: bool = False
    ) -> Iterator[tuple[Prediction, ...]]:
        """For every structure with its graph the predictions of the first k samples, for each k of `ks`."""
        for batch in batches(pairs, max(1, self.edges_at_once // len(self.samples))):
            yield from self.predict_batch(*joined(batch), ks, members=members)

    def predict_batch(
        self, frames: Sequence[Structure], graph: Graph, ks: Sequence[int], *, members: bool = False
    ) -> Iterator[tuple[Prediction, ...]]:
        """The same for frames that share one graph, which several posteriors can use."""
        output = self.sampled(frames, graph)
        yield from zip(
            *(predictions_of(self.posterior, self.calibration, frames, output.first(k), members) for k in ks)
        )

    @torch.no_grad()
    def atomic_energies(self, structure: Structure, graph: Graph) -> np.ndarray:
        """[n] eV, the mean over the samples; their sum is the energy of the structure.

        The energy of a baseline and reference energies of a whole formula are shared equally.  Never by a fused
        engine, which has sums.
        """
        numbers, reference = structure.numbers, self.posterior.reference
        network, placed = self.posterior.model.network, graph.to(self.samples.device)
        own = (
            network.energies_of_atoms(self.weights, placed, feature_mask=self._masks([structure]))
            .double()
            .mean(0)[: len(structure)]
            .cpu()
            .numpy()
        )
        shifts = np.array([reference.shifts.get(int(z), 0.0) for z in numbers])
        baseline = self.posterior.baseline
        shared = reference.total(numbers) - shifts.sum() + (baseline.label(structure).energy if baseline else 0.0)
        return own + shifts + shared / len(structure)

    @property
    def edges_at_once(self) -> int:
        """Edges times samples that are evaluated together."""
        return self.predictor.edges_at_once(self.samples.device)

    @property
    def fused(self) -> bool:
        """Whether a fused engine makes the predictions."""
        return self.predictor.fused

    def prediction(self, structure: Structure, found: Sampled, *, members: bool = False) -> Prediction:
        """From what all samples predict for one structure."""
        (prediction,) = predictions_of(self.posterior, self.calibration, [structure], found, members)
        return prediction

    def sampled_by_dynamics(
        self, structure: Structure, found: DynamicsOutput, novelty: np.ndarray | None = None
    ) -> Sampled:
        """What each sample predicts, from what a `Dynamics` of the engine computed."""
        return self._as_sampled(Sampled.of_dynamics(found, structure, novelty), [structure])

    def sampled(self, frames: Sequence[Structure], graph: Graph) -> Sampled:
        """What each sample predicts for frames that share one graph."""
        gauge = self.novelty.gauge(graph) if self.novelty else None
        # geometry stays in float64, whatever the precision of the weights: rounding would make the energy rough
        graph, mask = graph.to(self.samples.device), self._masks(frames)
        # a structure that is too large for all samples at once gets a few at a time
        few = self.predictor.samples_at_once(self.samples.device, graph.sender.numel())
        parts: list[Sampled] = []
        for first in range(0, len(self.samples), few):
            own = slice(first, first + few)
            whole = few >= len(self.samples)
            weights = self.weights if whole else {name: values[own] for name, values in self.weights.items()}
            own_mask = None if mask is None else mask[own]
            output = self.predictor.forward(weights, graph, feature_mask=own_mask)
            features = output.invariants[0] if gauge and not parts else None
            novelty = gauge(features.cpu().numpy()) if gauge and features is not None else None
            parts.append(Sampled.of(output, self._noise(output, graph, frames), novelty))
        return self._as_sampled(Sampled.joined(parts), frames)

    def _noise(self, output: ModelOutput, graph: Graph, frames: Sequence[Structure]) -> ForceNoise:
        if self.covariance:
            check_size(frames)
        return force_noise(output, graph, frames, self.posterior.network.rigid_noise, full=self.covariance)

    def _masks(self, frames: Sequence[Structure]) -> torch.Tensor | None:
        """Of the features of all atoms, with dropout; a sample keeps its mask, whichever samples are evaluated here."""
        if not self.posterior.dropout:
            return None
        sizes, channels = [len(structure) for structure in frames], self.posterior.network.channels[0]
        first = self.own.start * len(self.samples) // len(self.own)
        return prediction_masks(self.posterior.dropout, self.samples, sizes, channels, first)

    def _as_sampled(self, output: Sampled, frames: Sequence[Structure]) -> Sampled:
        """Of the samples, from their weight sets, with what the networks correct."""
        own, baseline = output if self.steps is None else output.linearised(self.steps), self.posterior.baseline
        return own if baseline is None else own.corrected([baseline.label(structure) for structure in frames])


def joined(batch: Sequence[tuple[Structure, Graph]]) -> tuple[list[Structure], Graph]:
    """Structures, and one graph of all of theirs."""
    return [structure for structure, _ in batch], concatenate([graph for _, graph in batch])


def batches(pairs: Iterable[tuple[Structure, Graph]], limit: int) -> Iterator[list[tuple[Structure, Graph]]]:
    """Structures with their graphs, grouped to at most `limit` edges so that a batch fits the memory."""
    batch: list[tuple[Structure, Graph]] = []
    atoms = slots = 0
    for structure, graph in pairs:
        own_atoms, own_slots = graph.sender.shape[1:]
        # every atom gets as many slots as the widest needs
        if batch and (atoms + own_atoms) * max(slots, own_slots) > limit:
            yield batch
            batch, atoms, slots = [], 0, 0
        batch.append((structure, graph))
        atoms, slots = atoms + own_atoms, max(slots, own_slots)
    if batch:
        yield batch
