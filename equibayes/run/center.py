"""The network that a prior is centred on: what it predicts for the training frames before anything is learned from
them, and the widths of the prior that follow from that.

A width that is a number says little about forces: arrays of weights differ in size by a factor of 100, and how forces
react to them is not known beforehand.  So a width is a fraction w of the RMS of each array (or of its spread over the
samples of a posterior), and w follows from the data: forces of networks drawn from the prior vary as much as the
forces of the centre are wrong.  For a model that is linear in its weights this is the w with which the errors that are
seen have the size that is expected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from equibayes.bayes.likelihood import squared_norm, stress_error
from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number, symbol
from equibayes.data.reference import EnergyReference, fit
from equibayes.data.resident import ResidentData
from equibayes.labelling.baseline import Baseline
from equibayes.network.config import NetworkConfig
from equibayes.network.pretrained import restrict
from equibayes.plural import counted
from equibayes.run.settings import PriorSettings
from equibayes.run.validation import evaluation_of, in_parts

LEAST_RMS = 1e-3
"""Of an array of weights; those that are all 0 need a width too."""
LEAST_ENERGY_SIGMA = 1e-3
"""eV; where energies fit by chance."""
DRAWS = 4
ATOMS_OF_DRAWS = 100
"""Networks and atoms with which the spread of forces is found."""
NARROWEST, WIDEST, FIRST = 1e-3, 1.0, 0.1
TURNS = 5
"""Bounds of w, its first value, and how often it is improved."""


@dataclass(frozen=True, eq=False)
class Center:
    """The network that a prior is centred on, read from what `prior.center` names by `posterior.center`.

    weights  [S, P] float64: chain k has the centre k modulo S; P without the heads where the file has none
    spread   [P] standard deviation of the weights over samples, RMS over each array; None where it is not known
    digest   SHA-256 of the file
    baseline what its network corrects
    origin   who made the weights, from what, and under which licence
    """

    path: str
    network: NetworkConfig
    weights: torch.Tensor
    digest: str
    spread: torch.Tensor | None = None
    origin: str = ""
    baseline: Baseline | None = None

    def restricted(self, names: Sequence[str]) -> "Center":
        """Without the rows of other species."""
        if list(names) == self.network.type_names:
            return self
        network, weights = restrict(self.network, self.weights, names)
        spread = None if self.spread is None else restrict(self.network, self.spread[None], names)[1][0]
        return replace(self, network=network, weights=weights, spread=spread)

    def with_sigma(self, model: StochasticModel, factors: Mapping[str, float]) -> "Center":
        """Where the file has heads, by name: σ multiplied by a factor, for every atom."""
        weights = self.weights.clone()
        for head, factor in factors.items():
            place = model.layout.groups[head].stop - 1  # the last bias, ln σ up to a constant
            if place < weights.shape[1] and np.isfinite(factor) and factor > 0:
                weights[:, place] += np.log(factor)
        return replace(self, weights=weights)

    def positions(self, model: StochasticModel) -> torch.Tensor:
        """[S, P] of all parameters; heads that are not known, or not learned here, are where they start."""
        known = self.weights[:, : self._known(model)]
        start = model.layout.start(1, 0, torch.float64)[:, known.shape[1] :]
        return torch.cat([known, start.expand(len(known), -1)], 1)

    def _known(self, model: StochasticModel) -> int:
        """How many weights, from the first on, are those of the same parameters."""
        size = 0
        for theirs, ours in zip(StochasticModel(self.network).layout.parameters, model.layout.parameters):
            if (theirs.name, theirs.shape) != (ours.name, ours.shape):
                break
            size += ours.size
        return min(size, self.weights.shape[1])

    def unit(self, model: StochasticModel) -> torch.Tensor:
        """[P]: what a relative width is a fraction of; 1 for heads that are not known."""
        unit, first, known = torch.ones(model.layout.size, dtype=torch.float64), 0, self._known(model)
        for parameter in model.layout.parameters:
            own = slice(first, first + parameter.size)
            first += parameter.size
            if own.stop > known or parameter.group in model.noise_networks:
                continue
            rms = self.weights[:, own].square().mean().sqrt() if self.spread is None else self.spread[own]
            unit[own] = rms.clamp(min=LEAST_RMS)
        return unit


def adopted(settings: NetworkConfig, center: NetworkConfig) -> NetworkConfig:
    """The network of a centre with what the settings may choose: precision, stress, and the zero of energy."""
    return replace(
        center,
        stress_head=settings.stress_head,
        covariance=settings.covariance,
        rigid_noise=settings.rigid_noise,
        model_dtype=settings.model_dtype,
        per_type_energy_shifts=settings.per_type_energy_shifts,
    )


@dataclass(frozen=True, eq=False)
class ZeroShot:
    """What the centre predicts for training frames; the mean over its S networks.

    force_mae, force_rms  errors of force components, eV/Å
    energies              [n] eV, of the network alone, without energy reference
    virial_rms            error of the components of the virial per atom, eV; None where no stress is learned
    sigma_forces          RMS of what the heads of the centre predict, eV/Å
    sigma_energy          likewise, eV
    """

    force_mae: float
    force_rms: float
    energies: np.ndarray
    virial_rms: float | None
    sigma_forces: float
    sigma_energy: float

    def energy_rms(self, train: Sequence, reference: EnergyReference) -> tuple[float, float] | None:
        """RMS of what energy reference and network leave: eV, and eV per atom."""
        left = [
            ((s.energy - reference.total(s.numbers) - energy), len(s))
            for s, energy in zip(train, self.energies)
            if s.energy is not None
        ]
        if not left:
            return None
        errors, atoms = np.array(left).T
        return float(np.sqrt(np.mean(errors**2))), float(np.sqrt(np.mean((errors / atoms) ** 2)))


@torch.no_grad()
def zero_shot(center: Center, model: StochasticModel, data: ResidentData) -> ZeroShot:
    """data: training frames without an energy reference."""
    position = center.positions(model).to(data.forces)
    output = in_parts(evaluation_of(model, position, None), len(position), data)
    graph, labels = data.batch(torch.arange(len(data), device=position.device)[None])
    real = graph.real[0]
    error = (output.forces.to(labels.forces).mean(0) - labels.forces[0])[real].double()
    virial = None
    if labels.stress is not None:
        learned, wrong = stress_error(_mean_stress(output), labels.stress)
        volume = graph.volume.nan_to_num().double() / graph.num_atoms
        virial = float(((squared_norm(wrong) * volume**2).sum() / (6 * learned.sum().clamp(min=1))).sqrt())
    return ZeroShot(
        force_mae=float(error.abs().mean()),
        force_rms=float(error.square().mean().sqrt()),
        energies=output.energy.mean(0).cpu().numpy(),
        virial_rms=virial,
        sigma_forces=float(output.sigma_forces[:, real].double().square().mean().sqrt()),
        sigma_energy=float(output.sigma_energy.double().square().mean().sqrt()),
    )


def _mean_stress(output: ModelOutput) -> ModelOutput:
    sigma = output.log_sigma_stress[:1]
    return replace(output, stress=output.stress.mean(0, keepdim=True), log_sigma_stress=sigma)


def fit_to_rest(center: NetworkConfig, shot: ZeroShot, train: Dataset) -> EnergyReference:
    """Per-species energies: those of the centre, and least squares for what the labels differ from its prediction."""
    own = center.per_type_energy_shifts or dict.fromkeys(center.type_names, 0.0)
    shifts = {atomic_number(name): own[name] for name in center.type_names}
    rest = [
        replace(s, energy=None if s.energy is None else s.energy - float(e) - sum(shifts[int(z)] for z in s.numbers))
        for s, e in zip(train, shot.energies)
    ]
    found = fit(Dataset(rest, train.name), "lstsq")
    total = {z: shift + found.shifts.get(z, 0.0) for z, shift in shifts.items()}
    return EnergyReference("lstsq", total, undetermined=found.undetermined)


@torch.no_grad()
def choose_width(center: Center, model: StochasticModel, data: ResidentData, target: float, seed: int) -> float:
    """The relative width with which forces of networks drawn from the prior vary by `target` (RMS, eV/Å)."""
    position = center.positions(model)
    few = max(1, min(len(data), ATOMS_OF_DRAWS // max(1, int(data.frames.num_atoms.float().mean()))))
    numbers = torch.linspace(0, len(data) - 1, few).long().to(data.forces.device)
    graph, _ = data.batch(numbers[None])
    rows = torch.arange(DRAWS) % len(position)
    noise = torch.randn(DRAWS, position.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    heads = model.layout.groups
    for name in (head for head in model.heads if head in heads):
        noise[:, heads[name]] = 0.0
    centre = _forces(model, position[rows], data, numbers)
    width = FIRST
    for _ in range(TURNS):
        moved = _forces(model, position[rows] + width * center.unit(model) * noise, data, numbers)
        spread = float((moved - centre)[:, graph.real[0]].square().mean().sqrt())
        following = min(WIDEST, max(NARROWEST, width * target / spread)) if np.isfinite(spread) else width / 4
        if abs(np.log(following / width)) < 0.02:
            break
        width = following
    return float(f"{width:.2g}")  # the same on every machine, whose rounding differs


def _forces(model: StochasticModel, position: torch.Tensor, data: ResidentData, numbers: torch.Tensor) -> torch.Tensor:
    """[K, N, 3] float64."""
    own = position.to(data.forces)
    return in_parts(evaluation_of(model, own, None), len(own), data, numbers).forces.double()


def species_of(names: Sequence[str], *parts: Dataset) -> list[str]:
    """Symbols in the order of atomic numbers: those that the settings name, or those of the frames."""
    if names:
        return list(names)
    return [symbol(z) for z in sorted({int(z) for part in parts for s in part for z in s.numbers})]


def sentences(
    center: Center, shot: ZeroShot, prior: PriorSettings, energy: tuple[float, float] | None, frames: int
) -> list[str]:
    """What is told before sampling begins."""
    about = f"{center.path}: {center.origin}" if center.origin else f"prior centred on {center.path}"
    forces = f"forces {1e3 * shot.force_mae:.0f} meV/Å (MAE), {1e3 * shot.force_rms:.0f} (RMS)"
    energies = "" if energy is None else f"; energies {1e3 * energy[1]:.1f} meV/atom (RMS, after per-species shifts)"
    what = "RMS" if center.spread is None else "spread over the samples"
    return [
        about,
        f"zero-shot error on {counted(frames, 'training frame')}: {forces}{energies}",
        f"prior: each array of weights varies by {prior.width:g} of its {what}" if prior.relative else "",
    ]
