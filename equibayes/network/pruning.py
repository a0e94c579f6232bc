"""Weights of an unpruned network for the pruned one, which computes the same energies with fewer of them."""

from collections.abc import Collection
from typing import TypeVar

import torch

from equibayes.network.irreps import SCALAR
from equibayes.network.nequip import NequIP

T = TypeVar("T")


def prune_weights(full: NequIP, pruned: NequIP, flat: torch.Tensor) -> torch.Tensor:
    """Stored weights [K, P_full] of a network built with `prune=False` -> [K, P_pruned]."""
    source = full.layout.views(flat)
    result = {name: source[name] for name in pruned.layout.names if name in source}
    last = full.config.radial_mlp_depth
    for number, (wide, narrow) in enumerate(zip(full.layers, pruned.layers)):
        radial = f"layer{number}.radial.{last}"
        result[radial] = source[radial][:, :, _columns({p: wide.inputs[p.source] for p in wide.paths}, narrow.paths)]
        # scalars before the gate: the scalars themselves and the gates of other irreps
        scalars = {irrep: wide.outputs[irrep] for irrep in [SCALAR, *wide.gated]}
        columns = _columns(scalars, [SCALAR, *narrow.gated])
        for kind in ("linear_2", "self_connection"):
            name = f"layer{number}.{kind}.{SCALAR}"
            if name in result:
                result[name] = source[name][..., columns]
    return pruned.layout.flatten(result)


def _columns(sizes: dict[T, int], kept: Collection[T]) -> list[int]:
    """Columns of the parts that are kept, where parts of these sizes follow one another."""
    columns, first = [], 0
    for part, size in sizes.items():
        columns += list(range(first, first + size)) if part in kept else []
        first += size
    return columns
