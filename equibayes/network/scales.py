"""Properties of the network that are taken from the training data: species, neighbour counts and energy scales."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from equibayes.data.elements import symbol
from equibayes.data.neighbors import neighbor_list
from equibayes.data.plausibility import rms_force
from equibayes.data.resident import has_stress
from equibayes.data.rigid import rigid_noise
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.network.config import NetworkConfig

# Neighbours are counted on at most this many frames, spread over the set: the mean does not need more.
COUNTED_FRAMES = 100
# The sum of more atomic energies than this drifts away from the labels while forces are learned, and the weights alone
# hardly correct it: this happened to one network of eight with 12 and 15 atoms, to several with 27, to all with 106.
MANY_ATOMS = 10


def fit_scales(config: NetworkConfig, structures: Sequence[Structure]) -> NetworkConfig:
    """Fill in settings that the user left open: type_names, avg_num_neighbors, per_type_energy_scales (the RMS force
    component), whether per-species energy shifts are sampled too, whether stress is learned, and the noise of labels
    along net force and torque."""
    changes: dict[str, object] = {}
    if not config.type_names:
        numbers = sorted({int(z) for structure in structures for z in structure.numbers})
        changes["type_names"] = [symbol(z) for z in numbers]
    if config.avg_num_neighbors is None:
        changes["avg_num_neighbors"] = mean_neighbors(structures, config.r_max)
    if config.per_type_energy_scales is None:
        changes["per_type_energy_scales"] = force_scale(structures)
    if config.per_type_energy_shifts_trainable is None:
        changes["per_type_energy_shifts_trainable"] = float(np.mean([len(s) for s in structures])) > MANY_ATOMS
    if config.stress_head is None:
        changes["stress_head"] = has_stress(structures)
    if config.covariance == "pair" and config.rigid_noise is None:
        changes["rigid_noise"] = rigid_noise(structures)
    return replace(config, **changes)  # type: ignore[arg-type]


def force_scale(structures: Sequence[Structure]) -> float:
    """Root mean square of all force components, eV/Å; an `InputError` where there are none or all are 0."""
    rms = rms_force(structures)
    if rms is None:
        raise InputError("no forces in the training data; the energy scale of the model is taken from them")
    if rms == 0.0:
        raise InputError("all forces in the training data are 0; are the labels right?")
    return rms


def virial_scale(structures: Sequence[Structure]) -> float | None:
    """Root mean square of the components of the virial per atom, eV; None where there is none or all are 0."""
    labels = [s.stress_label * (s.volume / len(s)) for s in structures if s.stress_label is not None]
    return float(np.sqrt(np.mean(np.square(labels)))) or None if labels else None


def mean_neighbors(structures: Sequence[Structure], r_max: float) -> float:
    """Average number of neighbours per atom within the cutoff."""
    chosen = structures[:: max(1, len(structures) // COUNTED_FRAMES)]
    edges = sum(len(neighbor_list(s.positions, s.cell, s.pbc, r_max).sender) for s in chosen)
    atoms = sum(len(s) for s in chosen)
    # a set of isolated atoms has no neighbours at all; 1 leaves their (absent) messages as they are
    return edges / atoms if edges else 1.0
