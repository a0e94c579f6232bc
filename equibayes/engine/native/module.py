"""The C++ source of one network: what engine/generate writes, and the description that the common sources read."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import torch

from equibayes.bayes import covariance
from equibayes.bayes.heads import HIDDEN
from equibayes.bayes.model import StochasticModel
from equibayes.engine.generate.arena import LayerArena
from equibayes.engine.generate.convolution import collect, give
from equibayes.engine.generate.gate import gate
from equibayes.engine.generate.offsets import columns, harmonics, width
from equibayes.engine.generate.pairs import geometry, pair_gradient, pair_tangent
from equibayes.engine.generate.radial import radial_backward, radial_hidden, radial_values
from equibayes.engine.native.compile import build
from equibayes.engine.native.dialect import CppDialect
from equibayes.engine.native.layout import ALIGNED, Matrix, WeightMemory
from equibayes.engine.native.target import target
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import SCALAR, LayerPlan
from equibayes.units import KCAL_PER_MOL

SOURCE = Path(__file__).parent / "source"
COMMON = ("training.cpp", "prediction.cpp", "rows.cpp")
"""Sources that are compiled once more for each network."""


@dataclass(frozen=True)
class Library:
    """
    library  the compiled functions
    places   [P] int32: where each entry of the flat buffer lies in the forward weights of the functions
    size     floats in these
    """

    library: ctypes.CDLL
    places: torch.Tensor
    size: int


def load(model: StochasticModel, *, steps: bool = False, say: Callable[[str], None] = lambda message: None) -> Library:
    """The functions of a network, compiled for this CPU if they are not in the cache; `steps`: with the sampler's."""
    memory = WeightMemory(model, target().width)
    return Library(build("network", sources(model, memory), say=say, steps=steps), memory.places, memory.size)


def sources(model: StochasticModel, memory: WeightMemory) -> dict[str, str]:
    """C++ texts by file name."""
    config, layers = model.config, memory.padding.padded_layers
    units = {f"layer{i}.cpp": _layer(config, i, layer) for i, layer in enumerate(layers)}
    units["radial.cpp"] = '#include "radial.h"\n\n' + _radial(config)
    for name in COMMON:
        units[name] = '#include "scales.h"\n' + (SOURCE / name).read_text(encoding="utf-8")
    units = {name: f'#include "network.h"\n{text}' for name, text in units.items()}
    return {"network.h": _description(model, memory, layers), "scales.h": _scales(model), **units}


# --- generated functions ---


def _function(config: NetworkConfig, name: str, equations: Callable[..., None], *about: Any, **flags: int) -> str:
    d = CppDialect(config, name, flags)
    equations(d, *about)
    return d.text


def _layer(config: NetworkConfig, number: int, layer: LayerPlan) -> str:
    """The convolution of a layer in its four versions, and its gate."""
    moving = int(number > 0)  # the embedding does not move with the atoms
    parts = []
    for name, equations in (("collect", collect), ("give", give)):
        for ending, dual in (("", 0), ("_tangent", 1)):
            own = f"{name}{ending}_{number}"
            parts.append(_function(config, own, equations, number, layer, DUAL=dual, DOT=dual and moving))
    for mode in range(4):
        parts.append(_function(config, f"gate_{number}_{mode}", gate, number, layer, MODE=mode))
    return _namespace("\n\n".join(parts))


def _pairs(config: NetworkConfig) -> str:
    """Functions of pairs, as templates."""
    parts = [
        _function(config, "geometry", geometry, MOVING=0),
        _function(config, "moving_geometry", geometry, MOVING=1),
        _function(config, "pair_gradient", pair_gradient),
        _function(config, "pair_tangent", pair_tangent),
    ]
    return "\n\n".join(parts)


def _radial(config: NetworkConfig) -> str:
    equations = (radial_values, radial_hidden, radial_backward)
    return _namespace("\n\n".join(_function(config, each.__name__, each) for each in equations))


def _namespace(text: str) -> str:
    return f"namespace equibayes {{\n\n{text}\n\n}}  // namespace equibayes\n"


# --- the description of a network ---


def _description(model: StochasticModel, memory: WeightMemory, layers: list[LayerPlan]) -> str:
    config, padding = model.config, memory.padding
    arenas, start = [], 0
    for layer in layers:
        arenas.append(LayerArena(layer, 1, start))
        start = arenas[-1].end
    place = {name: matrix.place for name, matrix in memory.matrices.items()}
    features = layers[-1].outputs[next(iter(layers[-1].outputs))]
    numbers = {
        "LAYERS": len(layers),
        "TYPES": len(config.type_names),
        "CONNECTIONS": config.self_connections,
        "HARMONICS": harmonics(config.l_max),
        "EDGE": width(config.l_max),
        "BESSELS": config.num_bessels,
        "BESSEL_ROW": padding.size(config.num_bessels),
        "RADIAL_WIDTH": config.radial_mlp_width,
        "RADIAL_ROW": padding.size(config.radial_mlp_width),
        "RADIAL_DEPTH": config.radial_mlp_depth,
        "CUTOFF_P": config.polynomial_cutoff_p,
        "CHANNELS": config.channels[0],
        "FEATURES": features,
        "EMBEDDING_ROW": padding.size(config.embedding_channels),
        "HEAD_COUNT": len(model.heads),
        "COUPLINGS": covariance.COLUMNS[config.covariance],
        "EDGE_HIDDEN": padding.size(covariance.HIDDEN),
        "EDGE_RADIAL": covariance.RADIAL,
        "EDGE_CUTOFF_P": covariance.CUTOFF_P,
        "HIDDEN_1": padding.size(HIDDEN[0]),
        "HIDDEN_2": padding.size(HIDDEN[1]),
    }
    places = {
        "ATOM": start + features,
        "LAST": start,
        "RADIAL_COLUMNS": sum(columns(layer) for layer in layers),
        "WEIGHT_COUNT": memory.size,
        "BACK_COUNT": memory.back_size,
        "EMBEDDING": place["embedding"],
        "BESSEL": place["bessel"],
        "READOUT": place["readout"],
        "SHIFT": place.get("shift", -1),
        "INVARIANTS": sum(layer.outputs[SCALAR] for layer in padding.layers),
    }
    scalars = [
        _braces([place_, wide.outputs[SCALAR], layer.outputs[SCALAR]])
        for place_, wide, layer in zip([*(arena.x[SCALAR] for arena in arenas[1:]), start], layers, padding.layers)
    ]
    lines = [f"constexpr int {name} = {value};" for name, value in numbers.items()]
    lines += [f"constexpr long {name} = {value};" for name, value in places.items()]
    lines += [
        f"constexpr double R_MAX = {config.r_max!r};",
        f"constexpr double COUPLING_BOUND = {covariance.BOUND.get(numbers['COUPLINGS'], 1.0)!r};",
        f"constexpr double XPLOR_ON = {config.xplor_on or 0.0!r};",
        f"constexpr bool XPLOR = {'false' if config.xplor_on is None else 'true'};",
        f"constexpr float LOG_UNIT = {log(KCAL_PER_MOL)!r}f;",
    ]
    for number in range(len(layers)):
        convolve = ", ".join(f"{name}_{number}" for name in ("collect", "collect_tangent", "give", "give_tangent"))
        gates = ", ".join(f"gate_{number}_{mode}" for mode in range(4))
        lines += [f"void {name}(const Convolution& given, long begin, long end);" for name in convolve.split(", ")]
        arguments = "float* x0, float* z0, long version, long N, long begin, long end"
        lines += [f"void {name}({arguments});" for name in gates.split(", ")]
    own = [_layer_table(i, layer, arenas, memory, start) for i, layer in enumerate(layers)]
    lines += [line for before, _ in own for line in before]
    lines += ["constexpr Layer LAYER[] = {", *(f"    {entry}," for _, entry in own), "};"]
    lines += [
        "constexpr Head HEADS[] = {",
        *(f"    {_head(memory, name)}," for name in model.heads),
        "};",
    ]
    lines += [f"constexpr CovarianceHead COVARIANCE_HEAD = {_covariance_head(memory)};"]
    lines += [f"constexpr Scalars SCALARS[] = {_braces(scalars)};"]
    lines += [f"constexpr Range SUMMED[] = {_braces(_summed(memory))};"]
    lines += ["struct BackMatrix { long place, back; int blocks, rows, columns; };"]
    lines += ["constexpr BackMatrix BACK_MATRICES[] = {"]
    with_back = [m for m in memory.matrices.values() if m.back >= 0]
    lines += [f"    {_braces([m.place, m.back, m.blocks, m.rows, m.columns])}," for m in with_back] + ["};"]
    names = ("radial_values", "radial_hidden", "radial_backward")
    radial = "\n".join(["struct Radial;", *(f"void {name}(Radial& radial);" for name in names)])
    head = '#pragma once\n#include "layer.h"\n#include "pairs.h"\n\n'
    return head + _namespace("\n\n".join(["\n".join(lines), radial, _pairs(config)]))


def _scales(model: StochasticModel) -> str:
    """What is taken from the data, apart: another data set does not compile the layers again."""
    scales, norms = model.network.energy_scale.values.tolist(), model.network.neighbor_norm.values.tolist()
    lines = [
        f"constexpr double ENERGY_SCALE[] = {_braces(scales)};",
        f"constexpr float NEIGHBOR_NORM[] = {_braces(f'{norm!r}f' for norm in norms)};",
    ]
    return "#pragma once\n\n" + _namespace("\n".join(lines))


def _summed(memory: WeightMemory) -> list[str]:
    """Ranges of the gradient that are sums over blocks of pairs or atoms; other matrices are written as a whole."""
    ranges: list[list[int]] = []
    for name, matrix in memory.matrices.items():
        if any(part in name for part in ("linear", "self_connection", "weight0", "weight1")):
            continue
        end = matrix.place + matrix.size
        if ranges and matrix.place - ranges[-1][1] < ALIGNED:
            ranges[-1][1] = end
        else:
            ranges.append([matrix.place, end])
    return [_braces(each) for each in ranges]


def _layer_table(
    number: int, layer: LayerPlan, arenas: list[LayerArena], memory: WeightMemory, last: int
) -> tuple[list[str], str]:
    """Lists of the linears of a layer, and its entry among the layers."""
    arena, name = arenas[number], f"layer{number}"
    following = next(iter(arenas[number + 1].x.values())) if number + 1 < len(arenas) else last
    before = [
        _linear(arena.x[ir], arena.y[ir], ir.dim, memory.matrices[f"{name}.linear_1.{ir}"]) for ir in layer.sources
    ]
    after = [
        _linear(arena.collected[ir], arena.z[ir], ir.dim, memory.matrices[f"{name}.linear_2.{ir}"])
        for ir in layer.outputs
    ]
    connection = [
        _linear(
            arena.x[ir],
            arena.z[ir],
            ir.dim,
            memory.matrices[f"{name}.self_connection.{ir}"],
            shared=ir in layer.sources,
        )
        for ir in layer.self_connection
    ]
    radial = [memory.matrices[f"{name}.radial.{i}"] for i in range(memory.padding.config.radial_mlp_depth + 1)]
    lines, entries = [], []
    for kind, rows in (("before", before), ("after", after), ("connection", connection)):
        if rows:
            lines.append(f"constexpr Linear {kind}_{number}[] = {_braces(rows)};")
        entries.append(f"{{{f'{kind}_{number}' if rows else 'nullptr'}, {len(rows)}}}")
    lines.append(f"constexpr long radial_{number}[] = {_braces(m.place for m in radial)};")
    lines.append(f"constexpr long radial_back_{number}[] = {_braces(m.back for m in radial)};")
    first = [next(iter(blocks.values())) for blocks in (arena.y, arena.collected, arena.z)]
    functions = [f"{kind}_{number}" for kind in ("collect", "collect_tangent", "give", "give_tangent")]
    gates = _braces(f"gate_{number}_{mode}" for mode in range(4))
    tables = [f"radial_{number}", f"radial_back_{number}"]
    return lines, _braces([*first, following, columns(layer), *entries, *functions, gates, *tables])


def _linear(source: int, target_: int, dim: int, matrix: Matrix, *, shared: bool = False) -> str:
    return _braces([source, target_, dim, matrix.rows, matrix.columns, matrix.place, matrix.back, int(shared)])


def _head(memory: WeightMemory, name: str) -> str:
    own = [memory.matrices[f"{name}.weight{i}"] for i in range(len(HIDDEN) + 1)]
    biases = [memory.matrices[f"{name}.bias{i}"].place for i in range(len(HIDDEN) + 1)]
    return _braces([_braces(m.place for m in own), _braces(biases), _braces(m.back for m in own[:-1])])


def _covariance_head(memory: WeightMemory) -> str:
    names = ("receiver", "sender", "radial", "bias", "out")
    own = [memory.matrices.get(f"{covariance.COVARIANCE_HEAD}.{name}") for name in names]
    places = [-1 if m is None else m.place for m in own]
    return _braces([*places, *(-1 if m is None else m.back for m in own[:2])])


def _braces(values: Any) -> str:
    return "{" + ", ".join(str(value) for value in values) + "}"
