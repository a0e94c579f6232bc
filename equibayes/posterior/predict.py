"""Predictions with uncertainties, for one structure or millions.

The predictive of the paper: the mean over the k samples, and a Gaussian with the mixture's variance,

    σ² = mean over samples of σ_s²  +  spread of the means over samples      (aleatoric + epistemic)

Every σ is a standard deviation in the unit of its quantity.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from equibayes.bayes.model import ModelOutput
from equibayes.data.graph import Graph, concatenate, graph_of
from equibayes.data.structures import Structure
from equibayes.posterior.file import Posterior

# The spread over samples is their population deviation (ddof 0): the Gaussian fitted to the mixture of the k samples has exactly this
# variance.  This is the only place where it is chosen.
DDOF = 0
# Edges times samples evaluated at once; bounds the memory (about 2 kB an edge and sample for the paper's network).
EDGES_AT_ONCE = 200_000


@dataclass(frozen=True, eq=False)
class Prediction:
    """What the posterior says about one structure.  eV, eV/Å, eV/Å³ (ASE's sign).

    energy, energy_std, energy_epistemic, energy_aleatoric     numbers
    forces, forces_std, forces_epistemic, forces_aleatoric     [n, 3]
    stress, stress_std                                         [3, 3], None without a volume (the model predicts no noise for it)
    energy_known  False where the energy holds only up to a constant (see data/reference.py)
    members       with `members=True`: energies [k], forces [k, n, 3], stress [k, 3, 3] of each sample
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
    members: dict[str, np.ndarray] | None = None


def predict(
    posterior: Posterior,
    structures: Iterable[Structure],
    *,
    members: bool = False,
    device: torch.device | str = "cpu",
) -> Iterator[Prediction]:
    """Predictions one after the other, for any number of structures in bounded memory."""
    samples = posterior.samples.to(device)
    dtype = samples.dtype
    for batch in _batches(posterior, structures):
        graph = concatenate([graph for _, graph in batch]).to(device, dtype)
        with torch.no_grad():
            output = posterior.model(samples, graph)
        yield from _split(posterior, [structure for structure, _ in batch], output, members)


def _batches(posterior: Posterior, structures: Iterable[Structure]) -> Iterator[list[tuple[Structure, Graph]]]:
    """Structures with their graphs, grouped so that a batch fits the memory; a single large one stands alone."""
    limit = max(1, EDGES_AT_ONCE // len(posterior))
    batch: list[tuple[Structure, Graph]] = []
    edges = 0
    for structure in structures:
        graph = graph_of(structure, r_max=posterior.network.r_max, species_of=posterior.species_of)
        size = graph.sender.numel()
        if batch and edges + size > limit:
            yield batch
            batch, edges = [], 0
        batch.append((structure, graph))
        edges += size
    if batch:
        yield batch


def _split(
    posterior: Posterior, structures: Sequence[Structure], output: ModelOutput, members: bool
) -> Iterator[Prediction]:
    energy, forces, stress = (t.double().cpu().numpy() for t in (output.energy, output.forces, output.stress))
    sigma_energy, sigma_forces = (t.double().cpu().numpy() for t in (output.sigma_energy, output.sigma_forces))
    atoms = iter(range(forces.shape[1]))
    for b, structure in enumerate(structures):
        own = list(islice(atoms, len(structure)))
        reference = posterior.reference.total(structure.numbers)
        volume = bool(np.isfinite(stress[:, b]).all())
        yield _combine(
            energy[:, b] + reference,
            forces[:, own],
            stress[:, b] if volume else None,
            sigma_energy[:, b],
            sigma_forces[:, own],
            posterior.reference.knows(structure.numbers),
            members,
        )


def _combine(
    energy: np.ndarray,
    forces: np.ndarray,
    stress: np.ndarray | None,
    sigma_energy: np.ndarray,
    sigma_forces: np.ndarray,
    energy_known: bool,
    members: bool,
) -> Prediction:
    """From the k samples (first axis) to mean and deviations."""
    aleatoric_forces = np.broadcast_to(np.sqrt((sigma_forces**2).mean(0))[:, None], forces.shape[1:]).copy()
    aleatoric_energy = float(np.sqrt((sigma_energy**2).mean()))
    epistemic_forces, epistemic_energy = forces.std(0, ddof=DDOF), float(energy.std(ddof=DDOF))
    kept = {"energy": energy, "forces": forces} | ({"stress": stress} if stress is not None else {})
    return Prediction(
        energy=float(energy.mean()),
        energy_std=float(np.hypot(epistemic_energy, aleatoric_energy)),
        energy_epistemic=epistemic_energy,
        energy_aleatoric=aleatoric_energy,
        forces=forces.mean(0),
        forces_std=np.hypot(epistemic_forces, aleatoric_forces),
        forces_epistemic=epistemic_forces,
        forces_aleatoric=aleatoric_forces,
        stress=None if stress is None else stress.mean(0),
        stress_std=None if stress is None else stress.std(0, ddof=DDOF),
        energy_known=energy_known,
        members=kept if members else None,
    )
