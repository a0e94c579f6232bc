"""Predictions with uncertainties, for one structure or millions.

The predictive of the paper: the mean over the k samples, and a Gaussian with the mixture's variance,

    σ² = mean over samples of σ_s²  +  spread of the means over samples      (aleatoric + epistemic)

A calibration of the posterior is applied to σ (calibration.py).  Every σ has the unit of its quantity.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from equibayes.bayes.model import ModelOutput
from equibayes.data.graph import Graph, concatenate, graph_of
from equibayes.data.structures import Structure
from equibayes.device import choose_device
from equibayes.engine.interface import DynamicsOutput
from equibayes.engine.select import make_predictor
from equibayes.posterior.calibration import Calibration, Intervals, gaussian_width
from equibayes.posterior.file import Posterior
from equibayes.posterior.linearised import linearised, weight_sets
from equibayes.posterior.sigma import Sigma
from equibayes.sampling.dropout import prediction_masks

# The spread over samples is their population deviation (ddof 0): the Gaussian fitted to the mixture of the k samples
# has exactly this variance.  This is the only place where it is chosen.
DDOF = 0


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction for one structure.  eV, eV/Å, eV/Å³ (ASE's sign).

    energy, energy_std, energy_epistemic, energy_aleatoric     numbers
    forces, forces_std, forces_epistemic, forces_aleatoric     [n, 3]
    stress, stress_std, stress_epistemic                       [3, 3]; None without a volume
    energy_known  False where the energy holds only up to a constant (see data/reference.py)
    novelty       [n] how far each atom is from all that was learned: 1 is the edge (see novelty.py); None: not known
    members       with `members=True`: energies [k], forces [k, n, 3], stress [k, 3, 3] of each sample
    intervals     used by `interval` if the posterior is calibrated

    The model has no noise term for stress: `stress_std` is `stress_epistemic`.  `energy_uncertainty`,
    `forces_uncertainty` and `stress_uncertainty`, ASE's names, are the same numbers as `*_std`.
    """

    energy: float
    energy_std: float
    energy_epistemic: float
    energy_aleatoric: float
    forces: np.ndarray
    forces_std: np.ndarray
    forces_epistemic: np.ndarray
    forces_aleatoric: np.ndarray
    stress: np.ndarray | None
    stress_std: np.ndarray | None
    energy_known: bool = True
    novelty: np.ndarray | None = None
    members: dict[str, np.ndarray] | None = None
    intervals: Intervals | None = None

    @property
    def stress_epistemic(self) -> np.ndarray | None:
        """[3, 3] eV/Å³."""
        return self.stress_std

    @property
    def energy_uncertainty(self) -> float:
        """`energy_std` under ASE's name."""
        return self.energy_std

    @property
    def forces_uncertainty(self) -> np.ndarray:
        """`forces_std` under ASE's name."""
        return self.forces_std

    @property
    def stress_uncertainty(self) -> np.ndarray | None:
        """`stress_std` under ASE's name."""
        return self.stress_std

    def interval(self, level: float) -> tuple[float, np.ndarray]:
        """Half widths of intervals around energy and forces ([n, 3]) that hold the truth with probability `level`.

        With a calibration the coverage is guaranteed for frames like those it was made on (see conformal.py); without
        one, errors are assumed to be Gaussian with the predicted σ.
        """
        if self.intervals is None:
            return gaussian_width(level) * self.energy_std, gaussian_width(level) * self.forces_std
        return self.intervals.half_widths(level)


def predict(
    posterior: Posterior,
    structures: Iterable[Structure],
    *,
    members: bool = False,
    device: torch.device | str | None = None,
) -> Iterator[Prediction]:
    """Predictions one after the other, for any number of structures in bounded memory.

    device  cpu, cuda, …; None: a GPU if there is one
    """
    for (prediction,) in predict_each(posterior, structures, [len(posterior)], members=members, device=device):
        yield prediction


def predict_each(
    posterior: Posterior,
    structures: Iterable[Structure],
    ks: Sequence[int],
    *,
    members: bool = False,
    device: torch.device | str | None = None,
) -> Iterator[tuple[Prediction, ...]]:
    """For every structure the predictions of the first k samples, for each k of `ks`: one pass for all of them."""
    ready = ReadyPosterior(posterior, device, k=max(ks))
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
    ) -> None:
        """device: None for a GPU if there is one;  dtype: of the arithmetic (default: the network's);  k: the first k
        samples (default: all);  own: the numbers of consecutive samples instead, where others evaluate the rest."""
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
        self.predictor = make_predictor(posterior.model, self.samples)

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
        yield from zip(*(_split(self.posterior, self.calibration, frames, output.first(k), members) for k in ks))

    @torch.no_grad()
    def atomic_energies(self, structure: Structure, graph: Graph) -> np.ndarray:
        """[n] eV, the mean over the samples; their sum is the energy of the structure.

        Reference energies that belong to a whole formula are shared equally.  Never by a fused engine, which has sums.
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
        return own + shifts + (reference.total(numbers) - shifts.sum()) / len(structure)

    @property
    def edges_at_once(self) -> int:
        """Edges times samples that are evaluated together."""
        return self.predictor.edges_at_once(self.samples.device)

    @property
    def fused(self) -> bool:
        """Whether a fused engine makes the predictions."""
        return self.predictor.fused

    def prediction(self, structure: Structure, found: "Sampled", *, members: bool = False) -> Prediction:
        """From what all samples predict for one structure."""
        (prediction,) = _split(self.posterior, self.calibration, [structure], found, members)
        return prediction

    def sampled_by_dynamics(
        self, structure: Structure, found: DynamicsOutput, novelty: np.ndarray | None = None
    ) -> "Sampled":
        """What each sample predicts, from what a `Dynamics` of the engine computed."""
        return self._as_sampled(Sampled.of_dynamics(found, structure, novelty))

    def sampled(self, frames: Sequence[Structure], graph: Graph) -> "Sampled":
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
            parts.append(Sampled.of(output, gauge(features.cpu().numpy()) if gauge and features is not None else None))
        return self._as_sampled(Sampled.joined(parts))

    def _masks(self, frames: Sequence[Structure]) -> torch.Tensor | None:
        """Of the features of all atoms, with dropout; a sample keeps its mask, whichever samples are evaluated here."""
        if not self.posterior.dropout:
            return None
        sizes, channels = [len(structure) for structure in frames], self.posterior.network.channels[0]
        first = self.own.start * len(self.samples) // len(self.own)
        return prediction_masks(self.posterior.dropout, self.samples, sizes, channels, first)

    def _as_sampled(self, output: "Sampled") -> "Sampled":
        """Of the samples, from their weight sets."""
        return output if self.steps is None else output.linearised(self.steps)


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


@dataclass(frozen=True, eq=False)
class Sampled:
    """The `ModelOutput` for B structures with N atoms under k samples, in float64 on the host.

    energy, sigma_energy [k, B]; forces [k, N, 3]; stress [k, B, 3, 3]; sigma_forces [k, N].  novelty [N], where the
    sample that it is judged by is among these.
    """

    energy: np.ndarray
    forces: np.ndarray
    stress: np.ndarray
    sigma_energy: np.ndarray
    sigma_forces: np.ndarray
    novelty: np.ndarray | None = None

    @classmethod
    def of(cls, output: ModelOutput, novelty: np.ndarray | None = None) -> "Sampled":
        tensors = (output.energy, output.forces, output.stress, output.sigma_energy, output.sigma_forces)
        energy, forces, stress, sigma_energy, sigma_forces = (tensor.double().cpu().numpy() for tensor in tensors)
        return cls(energy, forces, stress, sigma_energy, sigma_forces, novelty)

    @classmethod
    def of_dynamics(cls, found: DynamicsOutput, structure: Structure, novelty: np.ndarray | None) -> "Sampled":
        volume = structure.volume if structure.pbc.all() else np.nan
        sigma = np.exp(found.log_sigma_energy), np.exp(found.log_sigma_forces)
        stress = found.virial[:, None] / volume
        return cls(found.energy[:, None], found.forces, stress, sigma[0][:, None], sigma[1], novelty)

    @classmethod
    def joined(cls, parts: Sequence["Sampled"]) -> "Sampled":
        """Samples one after the other."""
        if len(parts) == 1:
            return parts[0]
        novelty = next((part.novelty for part in parts if part.novelty is not None), None)
        each = {name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.per_sample()}
        return replace(parts[0], **each, novelty=novelty)

    @classmethod
    def per_sample(cls) -> list[str]:
        return [each.name for each in fields(cls) if each.name != "novelty"]

    def linearised(self, steps: np.ndarray) -> "Sampled":
        """[3k, …] → [k, …]; σ is that of the centres."""
        energy, forces, stress = (linearised(values, steps) for values in (self.energy, self.forces, self.stress))
        return Sampled(energy, forces, stress, self.sigma_energy[::3], self.sigma_forces[::3], self.novelty)

    def first(self, k: int) -> "Sampled":
        return replace(self, **{name: getattr(self, name)[:k] for name in self.per_sample()})


def _split(
    posterior: Posterior,
    calibration: Calibration | None,
    structures: Sequence[Structure],
    output: Sampled,
    members: bool,
) -> Iterator[Prediction]:
    """From the k samples (first axis) of a batch to mean and deviations of each structure."""
    # often all structures are the same molecule: look up its reference energy once
    molecules = {s.numbers.tobytes(): s.numbers for s in structures}
    reference = {key: posterior.reference.total(numbers) for key, numbers in molecules.items()}
    known = {key: posterior.reference.knows(numbers) for key, numbers in molecules.items()}
    energy = output.energy + np.array([reference[s.numbers.tobytes()] for s in structures])
    sigma_energy = _sigma(energy, output.sigma_energy)
    sigma_forces = _sigma(output.forces, output.sigma_forces[:, :, None])
    raw_energy, raw_forces, k = sigma_energy.total, sigma_forces.total, len(energy)
    if calibration is not None:
        sigma_energy = calibration.energy.apply(sigma_energy, k)
        sigma_forces = calibration.forces.apply(sigma_forces, k, np.concatenate([s.numbers for s in structures]))
    forces, mean_energy = output.forces.mean(0), energy.mean(0)
    stress, stress_std = output.stress.mean(0), output.stress.std(0, ddof=DDOF)
    end = 0
    for b, structure in enumerate(structures):
        own = slice(end, end + len(structure))
        end = own.stop
        volume = bool(structure.pbc.all())
        kept: dict[str, Any] | None = None
        if members:
            kept = {"energy": energy[:, b].copy(), "forces": output.forces[:, own].copy()}
            if volume:
                kept["stress"] = output.stress[:, b].copy()
        yield Prediction(
            energy=float(mean_energy[b]),
            energy_std=float(sigma_energy.total[b]),
            energy_epistemic=float(sigma_energy.epistemic[b]),
            energy_aleatoric=float(sigma_energy.aleatoric[b]),
            forces=forces[own].copy(),  # a view would keep the whole batch alive
            forces_std=sigma_forces.total[own].copy(),
            forces_epistemic=sigma_forces.epistemic[own].copy(),
            forces_aleatoric=sigma_forces.aleatoric[own].copy(),
            stress=stress[b].copy() if volume else None,
            stress_std=stress_std[b].copy() if volume else None,
            energy_known=known[structure.numbers.tobytes()],
            novelty=None if output.novelty is None else output.novelty[own].copy(),
            members=kept,
            intervals=Intervals(float(raw_energy[b]), raw_forces[own].copy(), calibration, k) if calibration else None,
        )


def _sigma(means: np.ndarray, sigmas: np.ndarray) -> Sigma:
    """From means [k, …] and deviations of the same shape (or one for several components)."""
    epistemic = means.std(0, ddof=DDOF)
    return Sigma(epistemic, np.broadcast_to(np.sqrt(np.square(sigmas).mean(0)), epistemic.shape))
