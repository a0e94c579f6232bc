"""Models for tests: any configuration with weights that leave nothing at its start value, as a callable on
structures."""

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import torch

from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.data import Structure
from equibayes.data.graph import Graph, concatenate, graph_of
from equibayes.network.config import NetworkConfig, preset
from tests.physics import Evaluation
from tests.samples import SPECIES, SPECIES_OF


def stack_chains(graphs: Sequence[Graph]) -> Graph:
    """One graph with G = len(graphs): chain k sees graphs[k].  All must have the same shapes (see `pad_graph`)."""
    return Graph(**{f.name: torch.cat([getattr(graph, f.name) for graph in graphs], 0) for f in fields(Graph)})


def full_config(config: NetworkConfig) -> NetworkConfig:
    """With species and scales that differ from type to type, so that mixing them up shows."""
    return replace(
        config,
        type_names=list(SPECIES),
        avg_num_neighbors={name: 8.0 + i for i, name in enumerate(SPECIES)},
        per_type_energy_scales={name: 0.5 + 0.1 * i for i, name in enumerate(SPECIES)},
        model_dtype="float64",
    )


def random_weights(model: StochasticModel, chains: int, seed: int = 0) -> torch.Tensor:
    """[K, P] float64: the start, everything moved by N(0, 0.2²), so that biases, Bessel frequencies and last layers
    take part."""
    start = model.layout.start(chains, seed, torch.float64)
    noise = torch.randn(start.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return start + 0.2 * noise


def small_model(chains: int, **changes: object) -> tuple[StochasticModel, torch.Tensor]:
    """A `tiny` model that knows all sample species, and weights [K, P]."""
    model = StochasticModel(full_config(preset("tiny", **changes)))
    return model, random_weights(model, chains)


def graph(structure: Structure, r_max: float = 4.0) -> Graph:
    return graph_of(structure, r_max=r_max, species_of=SPECIES_OF)


class Reference:
    """The reference network as an evaluation engine: chain 0 of `weights` [K, P]."""

    def __init__(self, model: StochasticModel, weights: torch.Tensor) -> None:
        self.model, self.weights = model, weights

    def __call__(self, structure: Structure) -> Evaluation:
        return self.batch([structure])[0]

    def batch(self, structures: Sequence[Structure]) -> list[Evaluation]:
        graphs = [graph(structure, self.model.config.r_max) for structure in structures]
        return split_output(self.model(self.weights, concatenate(graphs)), [len(s) for s in structures])


def split_output(output: ModelOutput, sizes: Sequence[int]) -> list[Evaluation]:
    """Chain 0 of a batched output, one Evaluation for each structure."""
    last = np.cumsum(sizes)
    result = []
    for i, (start, end) in enumerate(zip(last - sizes, last)):
        stress = output.stress[0, i].numpy()
        result.append(
            Evaluation(
                energy=float(output.energy[0, i]),
                forces=output.forces[0, start:end].numpy(),
                stress=None if np.isnan(stress).all() else stress,
                sigma_energy=float(output.sigma_energy[0, i]),
                sigma_forces=output.sigma_forces[0, start:end].numpy(),
                features=output.features[0, start:end].numpy(),
                sigma_stress=None if output.sigma_stress[0, i].isnan() else float(output.sigma_stress[0, i]),
            )
        )
    return result
