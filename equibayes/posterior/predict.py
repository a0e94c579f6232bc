"""Predictions with uncertainties, for one structure or millions.

The predictive of the paper: the mean over the k samples, and a Gaussian with the mixture's variance,

    σ² = mean over samples of σ_s²  +  spread of the means over samples      (aleatoric + epistemic)

A calibration of the posterior is applied to σ (calibration.py), and where atoms are novel σ is at least what `floor.py`
says.  Every σ has the unit of its quantity.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from equibayes.bayes.model import ModelOutput
from equibayes.data.graph import Graph, concatenate, graph_of
from equibayes.data.structures import Structure
from equibayes.device import choose_device
from equibayes.engine.interface import DynamicsOutput
from equibayes.engine.select import make_predictor
from equibayes.notebook import html_table
from equibayes.plural import counted
from equibayes.posterior.calibration import Calibration, Intervals, gaussian_width
from equibayes.posterior.file import Posterior
from equibayes.posterior.floor import floors
from equibayes.posterior.force_covariance import ForceCovariance, check_size, covariance_of
from equibayes.posterior.force_noise import ForceNoise, force_noise
from equibayes.posterior.linearised import weight_sets
from equibayes.posterior.sampled import Sampled
from equibayes.posterior.sigma import of_samples
from equibayes.posterior.stress import StressSigma, stress_sigma
from equibayes.sampling.dropout import prediction_masks
from equibayes.units import GPA

Floor = tuple[float, np.ndarray]
"""Of the energy, eV, and of the forces on n atoms [n], eV/Å."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction for one structure.  eV, eV/Å, eV/Å³ (ASE's sign).

    energy, energy_std, energy_epistemic, energy_aleatoric     numbers
    forces, forces_std, forces_epistemic, forces_aleatoric     [n, 3]
    stress, stress_std, stress_epistemic, stress_aleatoric     [3, 3]; None without a volume
    pressure, pressure_std, _epistemic, _aleatoric             numbers, of −(S_xx + S_yy + S_zz)/3; None likewise
    energy_known  False where the energy holds only up to a constant (see data/reference.py)
    novelty       [n] how far each atom is from all that was learned: 1 is the edge (see novelty.py); None: not known
    forces_covariance  with `covariance=True`: how errors of the forces go together (see force_covariance.py)
    floor         eV and [n] eV/Å, what of the epistemic σ novelty asks for (see floor.py); None: nothing
    members       with `members=True`: energies [k], forces [k, n, 3], stress [k, 3, 3] of each sample
    intervals     used by `interval` if the posterior is calibrated

    The aleatoric σ of the stress is 0 where the posterior did not learn stress.  `energy_uncertainty`,
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
    stress_epistemic: np.ndarray | None = None
    stress_aleatoric: np.ndarray | None = None
    pressure_std: float | None = None
    pressure_epistemic: float | None = None
    pressure_aleatoric: float | None = None
    energy_known: bool = True
    novelty: np.ndarray | None = None
    floor: Floor | None = None
    members: dict[str, np.ndarray] | None = None
    intervals: Intervals | None = None
    forces_covariance: ForceCovariance | None = None

    def __repr__(self) -> str:
        return "\n".join(f"{heading:<9} {text}" for heading, text in self._lines())

    def _repr_html_(self) -> str:
        return html_table(self._lines(), "Prediction")

    def _lines(self) -> list[tuple[str, str]]:
        """Heading and text of what is worth a look."""
        energy = f"{self.energy:.4f} ± {self.energy_std:.4f} eV"
        energy += f" (epistemic {self.energy_epistemic:.4f}, aleatoric {self.energy_aleatoric:.4f})"
        sigma = 1e3 * np.sqrt(np.square(self.forces_std).mean(1))
        spread = f"σ of an atom {sigma.mean():.1f} on average, {sigma.max():.1f} at most, meV/Å, atom {sigma.argmax()}"
        lines = [
            ("energy", energy if self.energy_known else f"{energy}, up to a constant"),
            ("forces", f"{counted(len(sigma), 'atom')}, at most {np.abs(self.forces).max():.3f} eV/Å"),
            ("", spread),
        ]
        if self.stress is not None and self.stress_std is not None:
            pressure, std = (each.trace() / 3 / GPA for each in (self.stress, self.stress_std))
            lines.append(("stress", f"{pressure:.3f} ± {std:.3f} GPa, mean of the diagonal and of its σ"))
        return lines

    @property
    def pressure(self) -> float | None:
        """eV/Å³, positive under compression."""
        return None if self.stress is None else -float(np.trace(self.stress)) / 3

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

    def stress_interval(self, level: float) -> np.ndarray | None:
        """The same for the stress, [3, 3] eV/Å³; None without a volume, NaN where the calibration had no labels."""
        if self.stress_std is None or self.intervals is None:
            return None if self.stress_std is None else gaussian_width(level) * self.stress_std
        return self.intervals.stress_half_width(level)


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
        yield from zip(*(_split(self.posterior, self.calibration, frames, output.first(k), members) for k in ks))

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
        (prediction,) = _split(self.posterior, self.calibration, [structure], found, members)
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
    sigma_energy = of_samples(energy, output.sigma_energy)
    noise = output.sigma_forces
    sigma_forces = of_samples(output.forces, noise if noise.ndim == 3 else noise[:, :, None])
    sigma_stress = output.sigma_stress if posterior.model.learns_stress else np.zeros_like(output.sigma_stress)
    of_stress = stress_sigma(output.stress, sigma_stress, None if calibration is None else calibration.stress)
    raw_energy, raw_forces, k, raw = sigma_energy.total, sigma_forces.total, len(energy), sigma_forces
    if calibration is not None:
        sigma_energy = calibration.energy.apply(sigma_energy, k)
        sigma_forces = calibration.forces.apply(sigma_forces, k, np.concatenate([s.numbers for s in structures]))
    least = _floors(posterior, structures, output.novelty)
    if least is not None:
        sigma_energy, sigma_forces = sigma_energy.at_least(least[0]), sigma_forces.at_least(least[1][:, None])
        of_stress = of_stress.at_least(least[0] / np.array([s.volume or np.nan for s in structures]))
    forces, mean_energy, stress = output.forces.mean(0), energy.mean(0), output.stress.mean(0)
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
        raw_stress = of_stress.raw.total[b].copy() if volume else None
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
            **(_of_stress(of_stress, b) if volume else {"stress_std": None}),
            energy_known=known[structure.numbers.tobytes()],
            novelty=None if output.novelty is None else output.novelty[own].copy(),
            floor=_of_one(least, b, own),
            members=kept,
            forces_covariance=None
            if output.noise is None
            else covariance_of(
                structure,
                output.forces[:, own],
                output.noise[b],
                raw[own],
                sigma_forces[own],
                posterior.network.rigid_noise,
            ),
            intervals=Intervals(
                float(raw_energy[b]), raw_forces[own].copy(), calibration, k, raw_stress, _of_one(least, b, own)
            )
            if calibration
            else None,
        )


def _floors(
    posterior: Posterior, structures: Sequence[Structure], novelty: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """The least σ of energies [B] and forces [N]; None where nothing is novel."""
    if novelty is None or posterior.novelty is None:
        return None
    return floors(structures, novelty, posterior.novelty.force_scale, posterior.network.r_max)


def _of_one(least: tuple[np.ndarray, np.ndarray] | None, b: int, own: slice) -> Floor | None:
    """Those of structure b."""
    return None if least is None else (float(least[0][b]), least[1][own].copy())


def _of_stress(found: StressSigma, b: int) -> dict[str, Any]:
    """The fields of structure b."""
    parts = {"std": "total", "epistemic": "epistemic", "aleatoric": "aleatoric"}
    stress = {f"stress_{name}": getattr(found.elements, part)[b].copy() for name, part in parts.items()}
    return stress | {f"pressure_{name}": float(getattr(found.pressure, part)[b]) for name, part in parts.items()}
