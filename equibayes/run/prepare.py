"""What follows from data and settings before the first step: frames held back, energy reference, network, model and
prior."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch

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
from equibayes.run.settings import SampleConfig

# what `fit_scales` fills in
TAKEN_FROM_DATA = ("type_names", "avg_num_neighbors", "per_type_energy_scales", "per_type_energy_shifts_trainable")


# eV per atom above a ground state; more than the cohesion of any matter
HIGHEST_RELATIVE = 10.0


@dataclass(frozen=True, eq=False)
class Center:
    """The network that a prior is centred on, read from the file of `prior.center` by `posterior.center`.

    weights   [P] float64; shorter where the file has no deviation heads, whose centre is then where they start
    digest    SHA-256 of the file
    baseline  what its network corrects
    """

    path: str
    network: NetworkConfig
    weights: torch.Tensor
    digest: str
    baseline: Baseline | None = None


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything that follows from data and settings before the first step.

    train, validation   as they were given
    baseline            whose labels are taken off where the network learns
    """

    config: SampleConfig
    network: NetworkConfig
    reference: EnergyReference
    train: Dataset
    validation: Dataset
    model: StochasticModel
    center: Center | None = None
    baseline: Baseline | None = None

    def resident(self, data: Dataset, device: torch.device | str) -> ResidentData:
        """A data set on the device, with baseline and energy reference taken off."""
        return ResidentData(
            taken_off(self.baseline, data),
            r_max=self.network.r_max,
            species_of={atomic_number(name): index for index, name in enumerate(self.network.type_names)},
            reference=[self._zero_of(structure) for structure in data],
            stress=self.model.learns_stress,
            dtype=getattr(torch, self.network.model_dtype),
            device=device,
        )

    def _zero_of(self, structure: Structure) -> float:
        """eV; NaN for a molecule whose zero the training frames do not tell: its energy is then no label."""
        known = self.reference.knows(structure.numbers)
        return self.reference.total(structure.numbers) if known else float("nan")


def prepare(
    data: Dataset, config: SampleConfig, validation: Dataset | None = None, center: Center | None = None
) -> Prepared:
    """Hold frames back, fit energy reference and scales on the rest, lay out the model.

    validation  frames that are held back already, none of them in `data`; data.validation must then be 0
    center      the network of prior.center, where the settings name one
    """
    check_forces(data)  # before frames are held back, which changes their numbers
    if validation is None:
        return lay_out(*hold_back(data, config.data.validation, config.seed), config, center=center)
    if config.data.validation:
        raise InputError(
            f"{validation.name}: frames to validate on are given, and data.validation={config.data.validation} more are to be "
            "held back; set data.validation=0"
        )
    return lay_out(data, _without(data, validation), config, center=center)


def lay_out(
    train: Dataset,
    validation: Dataset,
    config: SampleConfig,
    *,
    network: NetworkConfig | None = None,
    reference: EnergyReference | None = None,
    center: Center | None = None,
) -> Prepared:
    """The same for training and validation frames that are split already.

    network, reference  of an earlier posterior, whose weights keep their meaning; else fitted to the training frames
    """
    check_forces([*train, *validation])
    if narrow := narrow_range(train):
        warnings.warn(narrow, InputWarning, stacklevel=2)
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
    if reference is None:
        reference = fit_reference(learned, config)
    told = config.network.per_type_energy_shifts
    wanted = config.network if network is None else replace(network, per_type_energy_shifts=told)
    if center is not None:
        wanted = _with_scales_of(wanted, center.network)
    energies = [s.energy - reference.total(s.numbers) for s in learned if s.energy is not None]
    if energies and reference.kind in ("isolated", "given") and wanted.per_type_energy_shifts_trainable is None:
        # several eV/atom of cohesion remain, which the weights alone hardly learn
        wanted = replace(wanted, per_type_energy_shifts_trainable=True)
    scaled = fit_scales(wanted, learned)
    shifts = {name: reference.shifts.get(atomic_number(name), 0.0) for name in scaled.type_names}
    network = replace(scaled, per_type_energy_shifts=shifts)
    if center is not None:
        _check_same_network(center, network)
        _check_same_baseline(center, baseline)
    if ignored := _ignored_stress(train, network):
        warnings.warn(ignored, InputWarning, stacklevel=2)
    force = force_scale(learned)
    spread = float(np.sqrt(np.mean(np.square(energies)))) if energies else force
    model = StochasticModel(network, force, max(force, spread), virial_scale(learned))
    # the effective settings: with them again, the same posterior.  The energies follow from data.energy_reference.
    effective = replace(config, network=scaled)
    return Prepared(effective, network, reference, train, validation, model, center, baseline)


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


def make_prior(prepared: Prepared, device: torch.device | str) -> Prior:
    """N(0, I), or a normal around given weights with a width for each group of parameters."""
    settings, layout = prepared.config.prior, prepared.model.layout
    dtype = getattr(torch, prepared.network.model_dtype)
    if settings.center is None and settings.width == 1.0 and not settings.group_widths:
        return StandardNormal()
    width = group_widths(layout.groups, settings.group_widths, layout.size, settings.width)
    center = torch.zeros(layout.size, dtype=torch.float64)
    if prepared.center is not None:
        known = prepared.center.weights[: layout.size]  # without its stress head, where stress is not learned here
        center = torch.cat([known, layout.start(1, 0, torch.float64)[0, len(known) :]])
    return CentredNormal(center.to(device, dtype), width.to(device, dtype))


def _with_scales_of(network: NetworkConfig, center: NetworkConfig) -> NetworkConfig:
    """What a network would take from its data it takes from the network of the centre, whose weights shall mean the
    same here."""
    open_ = {name: getattr(center, name) for name in TAKEN_FROM_DATA if not getattr(network, name)}
    return replace(network, **open_)


def _check_same_network(center: Center, network: NetworkConfig) -> None:
    """An `InputError` where the weights of the centre belong to a network with other settings."""
    theirs, ours = center.network.to_dict(), network.to_dict()
    free = ("model_dtype", "per_type_energy_shifts", "stress_head")
    other = [name for name in ours if name not in free and theirs[name] != ours[name]]
    if other:
        settings = " ".join(f"network.{name}={theirs[name]}" for name in other)
        raise InputError(f"{center.path}: its weights belong to a network with other settings; use {settings}")


def _check_same_baseline(center: Center, baseline: Baseline | None) -> None:
    """An `InputError` where the weights of the centre correct another engine."""
    if center.baseline not in (None, baseline):
        raise InputError(
            f"{center.path}: its network corrects {center.baseline}; use prior.baseline={center.baseline.engine}"
        )
