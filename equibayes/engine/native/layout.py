"""Where weights and features lie in the memory of the C++ functions.

Every row is padded to whole vector registers: the plan of each layer gets more channels, whose weights are 0 and stay
0, so all their features vanish.  Nothing else knows that there are channels too many.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from equibayes.bayes import covariance
from equibayes.bayes.heads import HIDDEN
from equibayes.bayes.model import StochasticModel
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import SCALAR, Irrep, LayerPlan

ALIGNED = 16
"""Matrices begin at multiples of this, in floats: 64 bytes."""


@dataclass(frozen=True)
class Padding:
    """The layers of a network and their versions with rows of whole registers of `width` floats."""

    config: NetworkConfig
    layers: list[LayerPlan]
    width: int

    def size(self, count: int) -> int:
        """A count, padded."""
        return -(-count // self.width) * self.width

    @cached_property
    def padded_layers(self) -> list[LayerPlan]:
        def wider(channels: dict[Irrep, int]) -> dict[Irrep, int]:
            return {irrep: self.size(count) for irrep, count in channels.items()}

        return [LayerPlan(wider(own.inputs), wider(own.outputs), own.paths, own.self_connection) for own in self.layers]

    def places(self, parts: Iterable[int]) -> np.ndarray:
        """Where the entries of a row lie that consists of parts, each padded by itself."""
        found, first = [], 0
        for count in parts:
            found.append(np.arange(first, first + count))
            first += self.size(count)
        return np.concatenate(found)

    def padded(self, parts: Iterable[int]) -> int:
        return sum(self.size(count) for count in parts)


@dataclass(frozen=True)
class Matrix:
    """A parameter in memory: `blocks` matrices [rows, columns], one after the other.

    place     of the first entry
    back      place of the transposed matrices among the transposed weights, -1 where nothing needs them
    """

    place: int
    back: int
    blocks: int
    rows: int
    columns: int

    @property
    def size(self) -> int:
        return self.blocks * self.rows * self.columns


class WeightMemory:
    """The forward weights of a chain: each parameter in padded rows, `size` floats in all."""

    def __init__(self, model: StochasticModel, width: int) -> None:
        self.padding, self.heads = Padding(model.config, model.network.layers, width), model.heads
        self.matrices: dict[str, Matrix] = {}
        self.size = self.back_size = 0
        places = []
        parts = self._parts()
        for parameter in model.layout.parameters:
            places.append(self._add(parameter.name, *parts[parameter.name]).ravel())
        # [P]: where each entry of the flat buffer lies
        self.places = torch.from_numpy(np.concatenate(places).astype(np.int32))

    def _add(self, name: str, blocks: int, rows: list[int] | int, columns: list[int]) -> np.ndarray:
        padding = self.padding
        row_places = np.arange(rows) if isinstance(rows, int) else padding.places(rows)
        row_count = rows if isinstance(rows, int) else padding.padded(rows)
        column_count = padding.padded(columns)
        has_back = any(
            part in name for part in ("radial", "linear", "self_connection", "weight0", "weight1", "receiver", "sender")
        )
        matrix = Matrix(self.size, self.back_size if has_back else -1, blocks, row_count, column_count)
        self.matrices[name] = matrix
        first = np.arange(blocks)[:, None, None] * row_count * column_count
        found = self.size + first + row_places[:, None] * column_count + padding.places(columns)
        self.size += -(-matrix.size // ALIGNED) * ALIGNED
        self.back_size += -(-matrix.size // ALIGNED) * ALIGNED if has_back else 0
        return found

    def _parts(self) -> dict[str, tuple[int, list[int] | int, list[int]]]:
        """Blocks, and the parts that rows and columns consist of; rows that nothing sums over are not padded."""
        config = self.padding.config
        types, radial = len(config.type_names), [config.radial_mlp_width]
        found: dict[str, tuple[int, list[int] | int, list[int]]] = {
            "embedding": (1, types, [config.embedding_channels]),
            "bessel": (1, 1, [config.num_bessels]),
            "readout": (1, 1, [config.channels[0]]),
            "shift": (1, 1, [types]),
        }
        for number, layer in enumerate(self.padding.layers):
            name = f"layer{number}"
            for i in range(config.radial_mlp_depth):
                found[f"{name}.radial.{i}"] = (1, radial if i else [config.num_bessels], radial)
            last = [layer.inputs[path.source] for path in layer.paths]
            found[f"{name}.radial.{config.radial_mlp_depth}"] = (1, radial, last)
            for irrep, size in layer.inputs.items():
                found[f"{name}.linear_1.{irrep}"] = (1, [size], [size])
            for irrep, size in layer.outputs.items():
                gates = [layer.outputs[gated] for gated in layer.gated] if irrep == SCALAR else []
                rows = [layer.inputs[path.source] for path in layer.paths_to(irrep)]
                found[f"{name}.linear_2.{irrep}"] = (1, rows, [size, *gates])
                if irrep in layer.self_connection:
                    found[f"{name}.self_connection.{irrep}"] = (
                        config.self_connections,
                        [layer.inputs[irrep]],
                        [size, *gates],
                    )
        for head in self.heads:
            sizes = [config.channels[0], *HIDDEN]
            for i, (inner, width) in enumerate(zip(sizes, HIDDEN)):
                found[f"{head}.weight{i}"] = (1, [inner], [width])
                found[f"{head}.bias{i}"] = (1, 1, [width])
            found[f"{head}.weight{len(HIDDEN)}"] = (1, 1, [HIDDEN[-1]])
            found[f"{head}.bias{len(HIDDEN)}"] = (1, 1, [1])
        features, hidden = [config.channels[0]], [covariance.HIDDEN]
        of_edges: dict[str, tuple[int, list[int] | int, list[int]]] = {
            "receiver": (1, features, hidden),
            "sender": (1, features, hidden),
            "radial": (1, covariance.RADIAL, hidden),
            "bias": (1, 1, hidden),
            "out": (1, covariance.COLUMNS[config.covariance], hidden),
        }
        found |= {f"{covariance.COVARIANCE_HEAD}.{name}": part for name, part in of_edges.items()}
        return found
