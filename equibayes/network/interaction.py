"""One interaction block: linear, convolution over neighbours, linear, plus self-connection, then the gate."""

from collections.abc import Iterator
from math import sqrt

import torch
from torch.nn.functional import silu

from equibayes.network.config import NetworkConfig
from equibayes.network.convolution import Features, Neighbors, Triple, convolve
from equibayes.network.irreps import SCALAR, LayerPlan
from equibayes.network.weights import Parameter, Weights

# Factors that give silu(z) and tanh(z) unit second moment for z ~ N(0, 1).  e3nn estimates them by Monte Carlo with a
# fixed seed; these are its values to the last digit (the exact integrals are 1.6765 and 1.5937), because official
# weights were trained with them.
SILU_NORM = 1.6791767923989418
TANH_NORM = 1.5937334472592695


def block_parameters(config: NetworkConfig, layer: LayerPlan, name: str) -> Iterator[Parameter]:
    """Every weight of one block, in the order of the flat buffer."""
    yield from radial_parameters(config, layer, name)
    for irrep in layer.sources:
        size = layer.inputs[irrep]
        yield Parameter(f"{name}.linear_1.{irrep}", (size, size), 1 / sqrt(size))
    for irrep in layer.outputs:
        size = layer.collected(irrep)
        yield Parameter(f"{name}.linear_2.{irrep}", (size, layer.before_gate(irrep)), 1 / sqrt(size))
    for irrep in layer.self_connection:
        size = layer.inputs[irrep]
        shape = (config.self_connections, size, layer.before_gate(irrep))
        per_type = config.self_connection == "species"
        yield Parameter(f"{name}.self_connection.{irrep}", shape, 1 / sqrt(size), per_type=per_type)


def radial_parameters(config: NetworkConfig, layer: LayerPlan, name: str) -> Iterator[Parameter]:
    """The radial network: Bessel functions -> hidden layers -> one weight for each channel of each path."""
    sizes = [config.num_bessels, *[config.radial_mlp_width] * config.radial_mlp_depth]
    sizes.append(sum(layer.inputs[path.source] for path in layer.paths))
    for i, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:])):
        gain = 1.0 if i == 0 else sqrt(2)  # √2 compensates for the reduction by silu
        last = i == len(sizes) - 2  # a quarter of all weights, whose rotation lowers the error by 1 %
        yield Parameter(f"{name}.radial.{i}", (fan_in, fan_out), gain / sqrt(fan_in), rotated=not last)


def interaction_block(
    layer: LayerPlan,
    name: str,
    weights: Weights,
    features: Features,
    basis: torch.Tensor,
    matrices: dict[Triple, torch.Tensor],
    neighbors: Neighbors,
    species_mask: torch.Tensor,
) -> Features:
    """New features of every atom from its own and its neighbours'.

    features     {irrep: [K, N, 2l+1, channels]}
    basis        [K, N, D, num_bessels]  radial basis of the edges
    species_mask [K or 1, N, T]          1 where an atom is of type t
    """
    radial = radial_network(weights, name, basis)
    sent = {irrep: linear(features[irrep], weights[f"{name}.linear_1.{irrep}"]) for irrep in layer.sources}
    collected = convolve(layer, sent, radial, matrices, neighbors)
    result = {irrep: linear(x, weights[f"{name}.linear_2.{irrep}"]) for irrep, x in collected.items()}
    for irrep in layer.self_connection:
        own = self_connection(features[irrep], weights[f"{name}.self_connection.{irrep}"], species_mask)
        result[irrep] = result[irrep] + own
    return gate(layer, result)


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Mixes channels: [K, N, 2l+1, C] × [K, C, C'] -> [K, N, 2l+1, C']."""
    chains, atoms, components, _ = x.shape
    return torch.bmm(x.flatten(1, 2), weight).reshape(chains, atoms, components, -1)


def self_connection(x: torch.Tensor, weight: torch.Tensor, species_mask: torch.Tensor) -> torch.Tensor:
    """Mixes channels with a matrix of the atom's own species, or one that all share: weight [K, T or 1, C, C']."""
    if weight.shape[1] == 1:
        return linear(x, weight[:, 0])
    by_species = x[:, :, :, None, :] * species_mask[:, :, None, :, None]
    return linear(by_species.flatten(3), weight.flatten(1, 2))


def radial_network(weights: Weights, name: str, basis: torch.Tensor) -> torch.Tensor:
    """Bias-free, so that it vanishes where the basis does: beyond the cutoff."""
    chains, atoms, slots, _ = basis.shape
    hidden = basis.flatten(1, 2)
    depth = sum(key.startswith(f"{name}.radial.") for key in weights)
    for i in range(depth):
        hidden = torch.bmm(silu(hidden) if i else hidden, weights[f"{name}.radial.{i}"])
    return hidden.reshape(chains, atoms, slots, -1)


def gate(layer: LayerPlan, x: Features) -> Features:
    """Scalars through silu (even) or tanh (odd); every other feature times silu of a scalar of its own."""
    result: Features = {}
    scalars = x[SCALAR].split([layer.outputs[irrep] for irrep in [SCALAR, *layer.gated]], 3)
    gates = dict(zip([SCALAR, *layer.gated], scalars))
    for irrep in layer.outputs:
        if irrep == SCALAR:
            result[irrep] = SILU_NORM * silu(gates[irrep])
        elif irrep.l == 0:
            result[irrep] = TANH_NORM * torch.tanh(x[irrep])
        else:
            result[irrep] = x[irrep] * (SILU_NORM * silu(gates[irrep]))
    return result
