"""What is timed: one training step and one evaluation, of official NequIP and of ours, on the same atoms."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from ase.build import bulk

from equibayes.bayes.likelihood import log_likelihood
from equibayes.bayes.model import StochasticModel
from equibayes.data import Structure, bundled_ethanol
from equibayes.data.elements import atomic_number
from equibayes.data.graph import Graph, graph_of
from equibayes.data.resident import ResidentData
from equibayes.network.config import NetworkConfig, preset
from equibayes.network.scales import fit_scales, rms_force

BATCH = 4


@cache
def ethanol_frames() -> list[Structure]:
    """The first frames of the bundled rMD17 ethanol."""
    return list(bundled_ethanol()[:BATCH])


@cache
def ethanol_config(name: str) -> NetworkConfig:
    return fit_scales(preset(name), ethanol_frames())


@dataclass
class Ours:
    """The stochastic model: Gaussian likelihood of energy and forces with both deviation heads."""

    name: str
    chains: int
    seed: int = 0

    def __post_init__(self) -> None:
        frames, config = ethanol_frames(), ethanol_config(self.name)
        self.model = StochasticModel(config, rms_force(frames))
        self.weights = self.model.layout.start(self.chains, self.seed).requires_grad_()
        mean = sum(frame.energy or 0.0 for frame in frames) / len(frames)
        data = ResidentData(frames, r_max=config.r_max, species_of=species_of(config), reference=[mean] * len(frames))
        # every chain has a minibatch of its own, as in sampling
        self.graph, self.labels = data.batch(torch.arange(len(frames)).expand(self.chains, -1))

    def step(self) -> torch.Tensor:
        """Gradient [K, P] of the log-likelihood: forward, forces, double backward."""
        output = self.model(self.weights, self.graph, differentiable=True)
        total = log_likelihood(output, self.graph, self.labels).sum()
        return torch.autograd.grad(total, self.weights)[0]


@dataclass
class Official:
    """NequIP's own model with the same architecture; mean squared error of energies per atom and of
    forces."""

    name: str
    seed: int = 0
    mode: str = "eager"  # or "compile", which takes minutes

    def __post_init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from nequip.data import AtomicDataDict, from_ase
            from nequip.data.transforms import ChemicalSpeciesToAtomTypeMapper, NeighborListTransform
            from nequip.model import NequIPGNNModel
            from nequip.utils.global_state import set_global_state

            set_global_state()
            frames, config = ethanol_frames(), ethanol_config(self.name)
            self.settings = official_settings(config, self.seed)
            self.model = NequIPGNNModel(compile_mode=self.mode, **self.settings)
            species = ChemicalSpeciesToAtomTypeMapper(config.type_names)
            neighbors = NeighborListTransform(r_max=config.r_max)
            self.data = AtomicDataDict.batched_from_list(
                [neighbors(species(from_ase(frame.to_atoms()))) for frame in frames]
            )
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        atoms = len(frames[0])
        self.energy = torch.tensor([[(frame.energy or 0.0) / atoms] for frame in frames], dtype=torch.float64)
        self.forces = self.data["forces"].clone()
        self.atoms = atoms

    def evaluate(self) -> dict[str, torch.Tensor]:
        return self.model(self.data.copy())

    def step(self) -> tuple[torch.Tensor, ...]:
        """Gradient of the loss by all parameters: forward, forces, double backward."""
        output = self.evaluate()
        loss = ((output["total_energy"] / self.atoms - self.energy) ** 2).mean()
        loss = loss + ((output["forces"] - self.forces) ** 2).mean()
        return torch.autograd.grad(loss, self.parameters)


def official_settings(config: NetworkConfig, seed: int) -> dict[str, Any]:
    """Arguments of NequIPGNNModel for our configuration."""
    same = ("r_max", "l_max", "parity", "num_features", "num_layers", "num_bessels", "polynomial_cutoff_p")
    same += ("radial_mlp_depth", "radial_mlp_width", "type_names", "avg_num_neighbors", "per_type_energy_scales")
    values = {name: getattr(config, name) for name in same}
    shifts = dict.fromkeys(config.type_names, 0.0)
    return {
        "seed": seed,
        "model_dtype": "float32",
        "bessel_trainable": True,
        "per_type_energy_shifts": shifts,
        **values,
    }


def disagreement(official: Official) -> float:
    """Largest difference of forces between the two, with the same weights, relative to the largest force."""
    from equibayes.network.nequip import NequIP
    from equibayes.network.official import convert_official

    converted = convert_official(official.settings, official.model.state_dict())
    network, ours = NequIP(converted.config), Ours(official.name, 1)
    weights = network.layout.forward_weights(converted.weights.float())
    theirs = official.evaluate()["forces"].detach()
    return float((network(weights, ours.graph).forces[0] - theirs).abs().max() / theirs.abs().max())


def species_of(config: NetworkConfig) -> dict[int, int]:
    return {atomic_number(name): i for i, name in enumerate(config.type_names)}


def silicon_graph(cells: int, config: NetworkConfig) -> Graph:
    """A rattled diamond crystal of 8·cells³ atoms, float32."""
    atoms = bulk("Si", cubic=True).repeat(cells)
    atoms.rattle(0.05, seed=0)
    return graph_of(Structure.from_atoms(atoms), r_max=config.r_max, species_of=species_of(config)).to(
        dtype=torch.float32
    )


def silicon_evaluation(name: str, cells: int, chains: int = 1) -> Callable[[], torch.Tensor]:
    """Energy, forces, stress and deviations of a silicon crystal."""
    config = preset(name, type_names=["Si"], avg_num_neighbors=16.0, per_type_energy_scales=1.0)
    model, graph = StochasticModel(config), silicon_graph(cells, config)
    weights = model.layout.start(chains, 0)
    return lambda: model(weights, graph).forces
