"""Weights of an unpruned network for the pruned one, which computes the same energies with fewer of them."""

import torch

from equibayes.network.irreps import SCALAR, Irrep, LayerPlan
from equibayes.network.nequip import NequIP


def prune_weights(full: NequIP, pruned: NequIP, flat: torch.Tensor) -> torch.Tensor:
    """Stored weights [K, P_full] of a network built with `prune=False` -> [K, P_pruned]."""
    source = full.layout.views(flat)
    result = {name: source[name] for name in pruned.layout.names if name in source}
    last = full.config.radial_mlp_depth
    for number, (wide, narrow) in enumerate(zip(full.layers, pruned.layers)):
        radial = f"layer{number}.radial.{last}"
        result[radial] = source[radial][:, :, _path_columns(wide, narrow)]
        columns = _scalar_columns(wide, narrow)
        for kind in ("linear_2", "self_connection"):
            name = f"layer{number}.{kind}.{SCALAR}"
            if name in result:
                result[name] = source[name][..., columns]
    return pruned.layout.flatten(result)


def _path_columns(wide: LayerPlan, narrow: LayerPlan) -> list[int]:
    """Outputs of the radial network that belong to the paths which remain."""
    kept, columns, first = set(narrow.paths), [], 0
    for path in wide.paths:
        size = wide.inputs[path.source]
        columns += list(range(first, first + size)) if path in kept else []
        first += size
    return columns


def _scalar_columns(wide: LayerPlan, narrow: LayerPlan) -> list[int]:
    """Scalars before the gate that remain: the scalars themselves and the gates of the irreps which remain."""
    columns, first = [], 0
    kept: set[Irrep] = {SCALAR, *narrow.gated}
    for irrep in [SCALAR, *wide.gated]:
        size = wide.outputs[irrep]
        columns += list(range(first, first + size)) if irrep in kept else []
        first += size
    return columns
