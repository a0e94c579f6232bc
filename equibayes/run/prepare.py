"""What follows from data and settings before the first step: frames held back, energy reference, network, model and
prior."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from equibayes.bayes.heads import ENERGY_HEAD, FORCE_HEAD
from equibayes.bayes.model import StochasticModel
from equibayes.bayes.prior import CentredNormal, Prior, StandardNormal, group_widths
from equibayes.data.checks import check_forces
from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number, symbol
from equibayes.data.narrow import narrow_range
from equibayes.data.reference import EnergyReference, fit, suggest_kind
from equibayes.data.resident import ResidentData
from equibayes.data.splits import split
from equibayes.data.structures import Structure
from equibayes.errors import InputError, InputWarning
from equibayes.labelling.baseline import Baseline
from equibayes.labelling.pseudo import with_free_atoms, with_pseudo_labels
from equibayes.network.config import NetworkConfig
from equibayes.network.scales import fit_scales, force_scale, virial_scale
from equibayes.plural import counted
from equibayes.run.center import (
    LEAST_ENERGY_SIGMA,
    Center,
    adopted,
    choose_width,
    fit_to_rest,
    sentences,
    species_of,
    zero_shot,
)
from equibayes.run.settings import SampleConfig

# eV per atom above a ground state; more than the cohesion of any matter
HIGHEST_RELATIVE = 10.0


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything that follows from data and settings before the first step.

    train, validation   as they were given
    baseline            whose labels are taken off where the network learns
    zero_shot           errors of the centre, for the file
    notes               what to tell the user before sampling begins
    """

    config: SampleConfig
    network: NetworkConfig
    reference: EnergyReference
    train: Dataset
    validation: Dataset
    model: StochasticModel
    center: Center | None = None
    baseline: Baseline | None = None
    zero_shot: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def resident(self, data: Dataset, device: torch.device | str) -> ResidentData:
        """A data set on the device, with baseline and energy reference taken off."""
        zeros = [self._zero_of(structure) for structure in data]
        return _resident(taken_off(self.baseline, data), self.model, zeros, device)

    def _zero_of(self, structure: Structure) -> float:
        """eV; NaN for a molecule whose zero the training frames do not tell: its energy is then no label."""
        known = self.reference.knows(structure.numbers)
        return self.reference.total(structure.numbers) if known else float("nan")


def _resident(
    data: Dataset, model: StochasticModel, reference: list[float], device: torch.device | str
) -> ResidentData:
    network = model.config
    return ResidentData(
        data,
        r_max=network.r_max,
        species_of={atomic_number(name): index for index, name in enumerate(network.type_names)},
        reference=reference,
        stress=model.learns_stress,
        rigid_noise=network.rigid_noise if network.covariance == "pair" else None,
        dtype=getattr(torch, network.model_dtype),
        device=device,
    )


def prepare(
    data: Dataset,
    config: SampleConfig,
    validation: Dataset | None = None,
    center: Center | None = None,
    device: torch.device | str = "cpu",
) -> Prepared:
    """Hold frames back, fit energy reference and scales on the rest, lay out the model.

    validation  frames that are held back already, none of them in `data`; data.validation must then be 0
    center      the network of prior.center, where the settings name one
    device      where the centre is evaluated
    """
    check_forces(data)  # before frames are held back, which changes their numbers
    if validation is None:
        return lay_out(*hold_back(data, config.data.validation, config.seed), config, center=center, device=device)
    if config.data.validation:
        raise InputError(
            f"{validation.name}: frames to validate on are given, and data.validation={config.data.validation} more are to be "
            "held back; set data.validation=0"
        )
    return lay_out(data, _without(data, validation), config, center=center, device=device)


def lay_out(
    train: Dataset,
    validation: Dataset,
    config: SampleConfig,
    *,
    network: NetworkConfig | None = None,
    reference: EnergyReference | None = None,
    center: Center | None = None,
    device: torch.device | str = "cpu",
) -> Prepared:
    """The same for training and validation frames that are split already.

    network, reference  of an earlier posterior, whose weights keep their meaning; else fitted to the training frames
    """
    check_forces([*train, *validation])
    if narrow := narrow_range(train):
        warnings.warn(narrow, InputWarning, stacklevel=2)
    config = _with_baseline_of(center, config)
    baseline = Baseline.of(config.prior.baseline, config.prior.baseline_settings)
    if config.prior.free_atoms:
        train = with_free_atoms(train)
    if config.prior.pseudo_labels is not None:
        train = _with_pseudo_labels(train, config)
    learned = taken_off(baseline, train).right
    if (config.prior.center is None) != (center is None):
        raise ValueError(f"prior.center={config.prior.center}, but the network of the centre is {center}")
    if not train.weights.any():
        raise InputError(f"{train.name}: every frame to learn from has config_weight=0; give some a weight above 0")
    config = replace(config, network=_with_covariance(config.network, config))
    if train.noises.any() and config.network.covariance != "isotropic":
        raise InputError(
            f"{train.name}: frames with config_noise, pseudo-labels or free atoms need likelihood.covariance=isotropic"
        )
    if center is not None:
        _check_same_baseline(center, baseline)
        return _around(center, train, validation, config, network, reference, baseline, device)
    if reference is None:
        reference = fit_reference(learned, config)
    told = config.network.per_type_energy_shifts
    wanted = config.network if network is None else replace(network, per_type_energy_shifts=told)
    energies = [s.energy - reference.total(s.numbers) for s in learned if s.energy is not None]
    if energies and reference.kind in ("isolated", "given") and wanted.per_type_energy_shifts_trainable is None:
        # several eV/atom of cohesion remain, which the weights alone hardly learn
        wanted = replace(wanted, per_type_energy_shifts_trainable=True)
    scaled = fit_scales(wanted, learned)
    network = _with_reference(scaled, reference)
    _warn_of_ignored_stress(train, network)
    force = force_scale(learned)
    spread = float(np.sqrt(np.mean(np.square(energies)))) if energies else force
    model = StochasticModel(network, force, max(force, spread), virial_scale(learned))
    # the effective settings: with them again, the same posterior.  The energies follow from data.energy_reference.
    effective = replace(config, network=scaled)
    return Prepared(effective, network, reference, train, validation, model, baseline=baseline)


def _around(
    center: Center,
    train: Dataset,
    validation: Dataset,
    config: SampleConfig,
    network: NetworkConfig | None,
    reference: EnergyReference | None,
    baseline: Baseline | None,
    device: torch.device | str,
) -> Prepared:
    """Around a network that was trained elsewhere: its architecture, noise heads that start at its errors, and an
    energy reference fitted to what its energies leave."""
    learned = taken_off(baseline, train).right
    named = config.network if network is None else network
    center = center.restricted(species_of(named.type_names, train, validation))
    scaled = fit_scales(adopted(config.network, center.network), learned)
    plain = StochasticModel(scaled)
    frames = _resident(learned, plain, [0.0] * len(learned), device)
    shot = zero_shot(center, plain, frames)
    if reference is None:
        fitted = config.data.energy_reference in ("auto", "lstsq") and not config.network.per_type_energy_shifts
        known = any(structure.energy is not None for structure in learned)
        reference = fit_to_rest(center.network, shot, learned) if fitted and known else fit_reference(learned, config)
    energy = shot.energy_rms(learned, reference)
    width = config.prior.width
    if width is None:
        width = choose_width(center, plain, frames, shot.force_rms, config.seed)
    adopted_network = _with_reference(scaled, reference)
    _warn_of_ignored_stress(train, adopted_network)
    sigma_energy = shot.force_rms if energy is None else max(energy[0], LEAST_ENERGY_SIGMA)
    model = StochasticModel(adopted_network, shot.force_rms, sigma_energy, shot.virial_rms or shot.force_rms)
    effective = replace(config, network=scaled, prior=replace(config.prior, width=width))
    ratios = {FORCE_HEAD: shot.force_rms / shot.sigma_forces, ENERGY_HEAD: sigma_energy / shot.sigma_energy}
    center = center.with_sigma(model, ratios)
    found = {
        "center": center.path,
        "origin": center.origin,
        "force_mae": shot.force_mae,
        "force_rms": shot.force_rms,
        "energy_rms_per_atom": None if energy is None else energy[1],
    }
    told = tuple(sentences(center, shot, effective.prior, energy, len(train)))
    return Prepared(effective, adopted_network, reference, train, validation, model, center, baseline, found, told)


def _with_reference(network: NetworkConfig, reference: EnergyReference) -> NetworkConfig:
    shifts = {name: reference.shifts.get(atomic_number(name), 0.0) for name in network.type_names}
    return replace(network, per_type_energy_shifts=shifts)


def _warn_of_ignored_stress(train: Dataset, network: NetworkConfig) -> None:
    if ignored := _ignored_stress(train, network):
        warnings.warn(ignored, InputWarning, stacklevel=3)


def _ignored_stress(train: Dataset, network: NetworkConfig) -> str | None:
    """A line where the settings or the cells do not let stress labels be learned."""
    labels = sum(structure.stress_label is not None for structure in train)
    elsewhere = sum(structure.stress is not None for structure in train) - labels
    if labels and not network.stress_head:
        return f"{train.name}: {counted(labels, 'stress label')} ignored (network.stress_head=false)"
    if elsewhere:
        where = "not periodic in three directions, so that they have no volume"
        return f"{train.name}: {counted(elsewhere, 'stress label')} ignored: their cells are {where}"
    if network.stress_head and not labels:
        return f"{train.name}: no frame to learn from has a stress label, though network.stress_head=true"
    return None


def _with_pseudo_labels(train: Dataset, config: SampleConfig) -> Dataset:
    """With frames that a cheap engine labels."""
    prior, engine = config.prior, Baseline.of(config.prior.pseudo_labels)
    assert engine is not None
    return with_pseudo_labels(train, engine, prior.pseudo_frames, noise=prior.pseudo_noise, seed=config.seed)


def taken_off(baseline: Baseline | None, data: Dataset) -> Dataset:
    """What a network learns of the labels."""
    return data if baseline is None else baseline.taken_off(data)


def hold_back(data: Dataset, held: int, seed: int) -> tuple[Dataset, Dataset]:
    """Training and validation frames.  One that repeats the geometry of a training frame proves nothing and is left
    out."""
    if len(data) - held < 1:
        raise InputError(
            f"{data.name}: {counted(len(data), 'frame')}, of which data.validation={held} are held back, so that none is left to learn "
            "from; give more frames or lower data.validation"
        )
    parts = split(data, {"train": len(data) - held, "validation": held}, seed)
    train = data.subset(parts["train"])
    return train, _without(train, data.subset(parts["validation"]))


def _without(known: Dataset, data: Dataset) -> Dataset:
    """Those frames whose geometry is not known."""
    digests = {structure.geometry_digest() for structure in known}
    return data.subset([i for i, structure in enumerate(data) if structure.geometry_digest() not in digests])


def fit_reference(train: Dataset, config: SampleConfig) -> EnergyReference:
    """What an energy of 0 means, as the settings say or as the data suggest."""
    kind, given = config.data.energy_reference, config.data.given_energies
    shifts = config.network.per_type_energy_shifts
    if shifts:
        if kind not in ("auto", "given") or given:
            raise InputError("network.per_type_energy_shifts and data.energy_reference both say what an energy of 0 is")
        kind, given = "given", shifts
    elif kind == "auto" and all(structure.energy is None for structure in train):
        kind, given = "given", {symbol(z): 0.0 for z in train.species}  # forces alone: no energy has a meaning
    elif kind == "zero":
        if given:
            raise InputError("data.given_energies and data.energy_reference=zero both say what an energy of 0 is")
        _check_relative(train)
        kind, given = "given", {symbol(z): 0.0 for z in train.species}
    elif kind == "auto":
        kind = suggest_kind(train)
    return fit(train, kind, given or None)


def _check_relative(train: Dataset) -> None:
    """An `InputError` where energies are totals, which a network cannot learn."""
    largest = max((abs(s.energy) / len(s) for s in train if s.energy is not None), default=0.0)
    if largest > HIGHEST_RELATIVE:
        raise InputError(
            f"{train.name}: data.energy_reference=zero, but energies are up to {largest:.4g} eV per atom, not relative to a "
            "ground state; use data.energy_reference=lstsq"
        )


def make_prior(prepared: Prepared, device: torch.device | str, identities: Sequence[int] | None = None) -> Prior:
    """N(0, I), or a normal around given weights with a width for each group of parameters.

    identities  of the chains, where they are not all chains of the run: each may have a centre of its own
    """
    settings, model = prepared.config.prior, prepared.model
    layout, center = model.layout, prepared.center
    dtype = getattr(torch, prepared.network.model_dtype)
    if settings.width is None:
        raise InputError(
            "prior.width=none: is chosen by the errors of a centre; name one with prior.center, or a width"
        )
    if center is None and settings.width == 1.0 and not settings.group_widths:
        return StandardNormal()
    width = group_widths(layout.groups, settings.group_widths, layout.size, settings.width)
    if center is None:
        return CentredNormal(torch.zeros(layout.size, device=device, dtype=dtype), width.to(device, dtype))
    if settings.relative:
        for head in (head for head in model.noise_networks if head not in settings.group_widths):
            width[layout.groups[head]] = 1.0
        width = width * center.unit(model)
    positions = center.positions(model)
    chains = range(prepared.config.chains) if identities is None else identities
    middle = positions[0] if len(positions) == 1 else positions[[chain % len(positions) for chain in chains]]
    return CentredNormal(middle.to(device, dtype), width.to(device, dtype))


def _with_covariance(network: NetworkConfig, config: SampleConfig) -> NetworkConfig:
    """The network has the noise that the likelihood asks for."""
    asked = config.likelihood.covariance
    if network.covariance not in ("isotropic", asked):
        raise InputError(
            f"network.covariance={network.covariance}, but likelihood.covariance={asked}; set likelihood.covariance alone"
        )
    return replace(network, covariance=asked)


def _with_baseline_of(center: Center | None, config: SampleConfig) -> SampleConfig:
    """What the network of a centre corrects, unless the settings name something."""
    if center is None or center.baseline is None or config.prior.baseline is not None:
        return config
    own = center.baseline.to_dict()
    return replace(config, prior=replace(config.prior, baseline=own["engine"], baseline_settings=own["settings"]))


def _check_same_baseline(center: Center, baseline: Baseline | None) -> None:
    """An `InputError` where the weights of the centre correct another engine."""
    if center.baseline not in (None, baseline):
        raise InputError(
            f"{center.path}: its network corrects {center.baseline}; use prior.baseline={center.baseline.engine}"
        )
