"""What the self-test evaluates: networks, structures, weights and data with random labels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.data.graph import Graph, graph_of
from equibayes.data.resident import ResidentData
from equibayes.data.structures import Structure
from equibayes.network.config import NetworkConfig, preset
from equibayes.network.weights import Weights

SPECIES = {1: 0, 6: 1, 8: 2}

SCALES: dict[str, Any] = {
    "type_names": ["H", "C", "O"],
    "avg_num_neighbors": {"H": 3.0, "C": 4.0, "O": 5.0},
    "per_type_energy_scales": {"H": 1.0, "C": 1.5, "O": 2.0},
}


def network(l_max: int, num_features: int | list[int], **more: Any) -> NetworkConfig:
    return NetworkConfig(**SCALES | {"l_max": l_max, "num_features": num_features, "num_layers": 2} | more)


FOUNDATION: dict[str, Any] = {"rotations_only": True, "self_connection": "shared", "xplor_on": 2.5}
SHIFTED = {"parity": False, "per_type_energy_shifts_trainable": True}

NETWORKS = {
    "paper": NetworkConfig(**SCALES),
    "l=1, 32 features": network(1, 32, num_layers=3, radial_mlp_width=32, **SHIFTED),
    "l=3, mixed features": network(3, [48, 32, 16, 16]),
    "l=0": network(0, 16, num_bessels=5, radial_mlp_depth=1),
    "deep radial": network(2, 16, radial_mlp_depth=3, radial_mlp_width=48),
    "stress": network(2, [32, 16, 16], stress_head=True),
    "foundation": network(2, [32, 16, 16], num_layers=3, **FOUNDATION),
}

SMALL_NETWORKS = {
    "l=1": network(1, 16, radial_mlp_width=16, num_bessels=4),
    "l=2, mixed": network(2, [32, 16, 16], radial_mlp_width=16, radial_mlp_depth=1, **SHIFTED),
    "stress": network(1, 16, r_max=3.0, radial_mlp_width=16, radial_mlp_depth=1, num_bessels=4, stress_head=True),
    "foundation": network(1, 16, radial_mlp_width=16, num_bessels=4, **FOUNDATION),
}

QUICK = ("tiny", "small", "tiny, stress")

NATIVE_NETWORKS = {
    "tiny": preset("tiny", **SCALES),
    "small": preset("small", **SCALES),
    "tiny, stress": preset("tiny", stress_head=True, **SCALES),
    "tiny, atom": preset("tiny", covariance="atom", **SCALES),
    "tiny, pair": preset("tiny", covariance="pair", **SCALES),
    **{name: config for name, config in NETWORKS.items() if name != "paper"},
    "odd sizes": network(2, [10, 3, 2], num_bessels=5, radial_mlp_width=7, type_embed_num_features=6, **SHIFTED),
    "paper": NETWORKS["paper"],
}


def cluster(atoms: int, seed: int) -> Structure:
    """Random atoms with a minimum distance, and random labels."""
    rng = np.random.default_rng(seed)
    places: list[np.ndarray] = []
    while len(places) < atoms:
        place = rng.normal(size=3) * 1.2 * atoms ** (1 / 3)
        if all(np.linalg.norm(place - other) > 0.8 for other in places):
            places.append(place)
    numbers = rng.choice(list(SPECIES), atoms)
    forces, energy = rng.normal(size=(atoms, 3)), float(rng.normal())
    return Structure(numbers, np.array(places), np.zeros((3, 3)), np.zeros(3, bool), energy=energy, forces=forces)


def crystal(atoms: int, edge: float, seed: int) -> Structure:
    """Random atoms in a skewed cell so small that atoms interact with their own images."""
    structure = cluster(atoms, seed)
    cell = edge * (np.eye(3) + 0.2 * np.tri(3, k=-1))
    return replace(structure, cell=cell, pbc=np.ones(3, bool), positions=structure.positions % edge)


def strained(atoms: int, edge: float, seed: int) -> Structure:
    """Such a cell with a random stress as its label, as large as random weights predict."""
    stress = 0.01 * np.random.default_rng(seed).normal(size=(3, 3))
    return replace(crystal(atoms, edge, seed), stress=stress + stress.T)


def training(config: NetworkConfig, small: bool) -> list[Structure]:
    """Frames of several sizes; where stress is learned, cells with and without its label, and a molecule."""
    if config.stress_head and small:
        return [strained(2, 3.5, 6), cluster(2, 8), strained(1, 2.8, 7), crystal(1, 3.2, 8)]
    if config.stress_head:
        return [strained(8, 5.0, 6), cluster(7, 11), strained(2, 3.0, 7), crystal(4, 4.5, 8), strained(6, 4.5, 9)]
    sizes = ((3, 8), (2, 9), (1, 10)) if small else ((9, 8), (12, 9), (1, 10), (7, 11), (9, 12))
    return [cluster(atoms, seed) for atoms, seed in sizes]


def weights(model: StochasticModel, chains: int, seed: int) -> torch.Tensor:
    """Random weights [K, P], also where a run begins with zeros."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(chains, model.layout.size, generator=generator, dtype=torch.float64) * 0.7


def model_with_weights(
    config: NetworkConfig, chains: int, seed: int, device: str
) -> tuple[StochasticModel, torch.Tensor, Weights]:
    """A model, its weights, and the same in float32 on the device, scaled for the forward pass."""
    model = StochasticModel(config)
    flat = weights(model, chains, seed)
    return model, flat, model.layout.forward_weights(flat.to(device, torch.float32))


def structures(small: bool) -> dict[str, list[Structure]]:
    if small:
        return {"molecules": [cluster(4, 1), cluster(1, 2), cluster(3, 3)], "cell": [crystal(2, 3.5, 4)]}
    return {
        "molecules": [cluster(21, 1), cluster(9, 2), cluster(1, 3), cluster(2, 4)],
        "isolated atoms": [replace(cluster(3, 5), positions=np.diag([0.0, 50.0, 100.0]))],
        "cell": [crystal(8, 5.0, 6)],
        "small cell": [crystal(2, 3.0, 7)],
    }


def graph_at(frame: Structure, positions: np.ndarray, r_max: float) -> Graph:
    return graph_of(replace(frame, positions=positions), r_max=r_max, species_of=SPECIES)


def data(frames: Sequence[Structure], config: NetworkConfig, dtype: torch.dtype, device: str) -> ResidentData:
    return ResidentData(
        frames,
        r_max=config.r_max,
        species_of=SPECIES,
        reference=[0.0] * len(frames),
        rigid_noise=0.01 if config.covariance == "pair" else None,
        dtype=dtype,
        device=device,
    )
