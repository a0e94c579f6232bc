"""Runs the kernels: energies, forces and, for the sampler, the gradient of a loss by all weights.

All buffers are allocated once for fixed shapes, so that the kernels can be recorded as one CUDA graph and replayed.
Without a GPU the same kernels run slowly under Triton's interpreter, for tests.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import log
from typing import Any

import torch
from triton import cdiv, next_power_of_2

from equibayes.bayes.heads import HIDDEN
from equibayes.bayes.model import StochasticModel
from equibayes.engine.generate.groups import blocks as channel_blocks
from equibayes.engine.generate.groups import collecting_groups
from equibayes.engine.triton import kernels, readout
from equibayes.engine.triton.memory import Memory, Shape, edges_at_once
from equibayes.network.irreps import SCALAR
from equibayes.units import KCAL_PER_MOL


class Passes(Memory):
    """The network with its heads for K weight sets and graphs of one shape."""

    def evaluate(self) -> None:
        """Versions 0 and 1: energies, deviations, ∂E/∂vector of all pairs and forces."""
        shape, graph = self.shape, self.graph
        self._geometry(graph.vector, graph.vector, moving=False)
        self.begin()
        self.propagate()
        kernels.atom_forces[(cdiv(shape.nodes, 32), shape.chains)](
            self.pull, graph.pair, graph.degree, self.forces, shape.nodes, shape.slots, shape.pairs, self.graph_nodes,
            BLOCK=32, num_warps=1,
        )  # fmt: skip

    @property
    def invariants(self) -> torch.Tensor:
        """[N, S]: the scalars after every layer, of the first weight set."""
        nodes, layers = self.shape.nodes, self.network.layers
        starts = [*(arena.x[SCALAR] for arena in self.arenas[1:]), self.last]
        sizes = [nodes * layer.outputs[SCALAR] for layer in layers]
        blocks = (self.arena[0, 0, start : start + size] for start, size in zip(starts, sizes))
        return torch.cat([block.reshape(nodes, -1) for block in blocks], 1)

    def move(self, positions: torch.Tensor, shift: torch.Tensor) -> None:
        """Vectors, lengths and directions of pairs from positions [N, 3] and lattice translations [Q, 3]."""
        self._geometry(positions, shift, moving=True)

    def begin(self) -> None:
        """The part that depends on weights and species alone, not on positions."""
        shape, channels = self.shape, self.network.config.embedding_channels
        start = next(iter(self.arenas[0].x.values()))
        kernels.embed[(cdiv(shape.nodes * channels, 256), shape.chains)](
            self.arena, self.weights, self.graph.species, shape.nodes, start, self.places.of["embedding"],
            self.arena.stride(0), self.places.size, self.graph_nodes, CHANNELS=channels, BLOCK=256,
        )  # fmt: skip
        self._linear(self.before[0], 0)

    def propagate(self) -> None:
        """Energies, deviations and ∂E/∂vector, after `begin` and the geometry."""
        shape = self.shape
        self._radial_hidden()
        if not self.lean:
            self._radial_weights(self.all_radial_jobs)
        for number in range(len(self.arenas)):
            if number:
                self._linear(self.before[number], 0)
            if self.lean:
                self._radial_weights(self.radial_jobs[number])
            self._collect(number, dual=False)
            self._linear(self.after[number], 0, typed=True)
            self._gate(number, 0)
        readout.readout[(cdiv(shape.nodes, 32), shape.chains, 1 + len(self.heads))](
            self.arena, self.weights, self.head_places, self.graph.species, self.energy_scale, self.mask, self.energies,
            self.deviations, shape.nodes, self.last, self.version, self.places.of["readout"], self.places.of.get("shift", 0),
            self.arena.stride(0), self.places.size, self.graph_nodes, log(KCAL_PER_MOL), chains=shape.chains,
            SHIFTED="shift" in self.places.of, **self._head_constants(self.precision),
        )  # fmt: skip
        for number in reversed(range(len(self.arenas))):
            self._gate(number, 1)
            self._linear(self.after_back[number], 1, transposed=True)
            if self.lean and number + 1 < len(self.arenas):
                self._radial_weights(self.radial_jobs[number])
            self._give(number, dual=False)
            if number:
                self._linear(self.before_back[number], 1, transposed=True, typed=True)
        at_once = 8 if shape.pairs * shape.chains < 4096 else 32
        self.generated.pair_gradient[(cdiv(shape.pairs, at_once), shape.chains)](
            self.unit, self.edge, self.pull, shape.pairs, self.graph_pairs, GROUPS=sum(self.jobs_giving), BLOCK=at_once,
        )  # fmt: skip

    def differentiate(self) -> None:
        """Versions 2 and 3 and from them the gradient of the loss by the weights, as several partial sums.

        `direction`, `strain`, `deviation_tilde` and `energy_bar` are the derivatives of the loss (see likelihood.py).
        """
        shape = self.shape
        strained, sizes = ([self.structure, self.strain], [self.strained]) if self.strained else ([], [])
        self.generated.pair_tangent[(cdiv(shape.pairs, 64), shape.chains)](
            self.unit, self.graph.ends, self.direction, *strained, self.tangents, shape.pairs, shape.nodes, *sizes,
            self.graph_pairs, BLOCK=64, num_warps=2,
        )  # fmt: skip
        for number in range(len(self.arenas)):
            if number:
                self._linear(self.before[number], 2)
            self._collect(number, dual=True)
            self._linear(self.after[number], 2, typed=number > 0)
            self._gate(number, 2)
        self._readout_tilde()
        for number in reversed(range(len(self.arenas))):
            self._gate(number, 3)
            self._linear(self.after_back[number], 3, transposed=True)
            self._give(number, dual=True)
            self._linear(self.before_back[number], 3, transposed=True, typed=True)
        # gradients of a layer beside the passes of earlier layers take longer (one ethanol chain: 1.47 ms, not 1.20)
        with self._aside():
            self._radial_gradients()
        self._node_gradients()
        self._join()

    # --- launches ---

    def _geometry(self, positions: torch.Tensor, shift: torch.Tensor, *, moving: bool) -> None:
        rows = self.shape.groups * self.shape.pairs
        self.generated.geometry[(cdiv(rows, 128),)](
            self.graph.vector, self.unit, self.harmonics, positions, self.graph.order, self.graph.ends, shift, rows, MOVING=moving,
            BLOCK=128,
        )  # fmt: skip

    def _radial_hidden(self) -> None:
        shape = self.shape
        self.generated.radial_hidden[(cdiv(shape.pairs, 32), len(self.arenas), shape.chains)](
            self.unit, self.weights, self.hidden, self.radial_offsets, shape.pairs, self.places.of["bessel"],
            self.places.size, self.graph_pairs, LAYERS=len(self.arenas), **self._radial_constants(self.precision), BLOCK=32,
        )  # fmt: skip

    def _radial_weights(self, jobs: torch.Tensor) -> None:
        """R and R' of some layers from the last hidden layer of their radial networks."""
        shape, tuning = self.shape, self.tuning
        kernels.wide_linear[(cdiv(2 * shape.pairs, tuning.radial_rows), len(jobs), shape.chains)](
            self.hidden, self.weights, self.radial, jobs, 2 * shape.pairs, self.hidden.stride(0),
            self.places.size, self.radial.stride(0), ROWS=tuning.radial_rows, INNER=self.width,
            WIDE=_power(self.width), COLUMNS=self.tile, PREC=self.precision, STAGES=tuning.radial_stages,
            num_warps=tuning.radial_last_warps,
        )  # fmt: skip

    def _radial_constants(self, precision: str) -> dict[str, Any]:
        config = self.network.config
        return {
            "R_MAX": config.r_max,
            "P": config.polynomial_cutoff_p,
            "ON": -1.0 if config.xplor_on is None else config.xplor_on / config.r_max,
            "BESSELS": config.num_bessels,
            # the slope of a Bessel function is a difference of large numbers: fewer bits would not do
            "FIRST_PREC": "tf32x3" if precision in ("tf32", "bf16x3") else precision,
            "PREC": precision,
        }

    def _linear(self, jobs: torch.Tensor, version: int, *, transposed: bool = False, typed: bool = False) -> None:
        shape, tuning = self.shape, self.tuning
        if version < 2:
            precision, rows, stages, warps = self.precision, tuning.rows, tuning.stages, tuning.warps
        else:
            precision, rows = self.gradient_precision, tuning.tangent_rows
            stages, warps = tuning.tangent_stages, tuning.tangent_warps
        arena = self.arena[:, version:]
        kernels.linear[(cdiv(shape.nodes, rows), len(jobs), shape.chains)](
            arena, self.weights, arena, self.graph.species, jobs, shape.nodes, self.arena.stride(0), self.places.size,
            self.arena.stride(0), self.graph_nodes, TRANSPOSED=transposed, TYPED=typed, TWIN=False, ROWS=rows,
            COLUMNS=self.tile, INNER=self.tile, PREC=precision, STAGES=stages, num_warps=warps,
        )  # fmt: skip

    def _collect(self, number: int, *, dual: bool) -> None:
        shape, arena, layer = self.shape, self.arenas[number], self.network.layers[number]
        channels, at_once = self._channels(layer), self.tuning.slots_collecting
        registers = self.tuning.tangent_registers if dual else self.tuning.registers
        blocks = channel_blocks(layer, channels)
        y, out = next(iter(arena.y.values())), next(iter(arena.collected.values()))
        grid = (shape.nodes, len(collecting_groups(layer)) * blocks, shape.chains)
        getattr(self.generated, f"collect_{number}")[grid](
            self.arena, self.harmonics, self.tangents, self.radial[:, self.radial_start[number] :], self.graph.sender,
            self.graph.pair, self.graph.degree, self.norm, shape.nodes, shape.slots, shape.pairs, y, y + 2 * self.version,
            out + 2 * self.version * dual, self.arena.stride(0), self.radial.stride(0), self.tangents.stride(0),
            self.graph_pairs, self.graph_nodes, DUAL=dual, DOT=number > 0, CB=channels, BLOCKS=blocks, EB=at_once,
            num_warps=at_once, maxnreg=registers,
        )  # fmt: skip

    def _give(self, number: int, *, dual: bool) -> None:
        shape, arena, layer, version = self.shape, self.arenas[number], self.network.layers[number], self.version
        channels, at_once = self._channels(layer), self.tuning.slots_giving
        registers = self.tuning.tangent_registers if dual else self.tuning.registers
        y, collected = next(iter(arena.y.values())), next(iter(arena.collected.values()))
        radial_out = self.radial_tilde[:, 2 * self.radial_start[number] :] if dual else self.radial
        getattr(self.generated, f"give_{number}")[(shape.nodes, self.jobs_giving[number], shape.chains)](
            self.arena, self.harmonics, self.tangents, self.radial[:, self.radial_start[number] :], radial_out, self.edge,
            self.graph.sender, self.graph.pair, self.graph.degree, self.norm, shape.nodes, shape.slots, shape.pairs,
            y, y + 2 * version, collected + version, collected + 3 * version, y + (3 if dual else 1) * version,
            self.arena.stride(0), self.radial.stride(0), radial_out.stride(0), self.tangents.stride(0), self.edge.stride(0),
            self.graph_pairs, self.graph_nodes, DUAL=dual, DOT=number > 0, FIRST=sum(self.jobs_giving[:number]),
            GROUPS=sum(self.jobs_giving), CB=channels, BLOCKS=channel_blocks(layer, channels), EB=at_once, num_warps=at_once,
            maxnreg=registers,
        )  # fmt: skip

    def _gate(self, number: int, mode: int) -> None:
        shape, layer = self.shape, self.network.layers[number]
        x = self.last if number + 1 == len(self.arenas) else next(iter(self.arenas[number + 1].x.values()))
        z = next(iter(self.arenas[number].z.values()))
        size = shape.nodes * max(layer.outputs.values())
        getattr(self.generated, f"gate_{number}")[(cdiv(size, 128), len(layer.outputs), shape.chains)](
            self.arena, x, z, self.version, self.apart, shape.nodes, self.arena.stride(0), MODE=mode,
            PIECES=self.tuning.pieces, BLOCK=128, num_warps=4,
        )  # fmt: skip

    def _head_constants(self, precision: str) -> dict[str, Any]:
        width, (h1, h2) = self.network.config.channels[0], HIDDEN
        sizes = {"WIDTH": width, "WIDE": _power(width), "H1": h1, "H2": h2, "ROWS": 32}
        return sizes | {"MASKED": self.masked, "PREC": precision}

    def _readout_tilde(self) -> None:
        shape, config = self.shape, self.network.config
        types, rows, common = len(config.type_names), 32, self._head_constants(self.gradient_precision)
        inputs = (
            self.arena, self.weights, self.head_places, self.graph.species, self.energy_scale, self.mask, self.deviation_tilde,
            self.energy_bar,
        )  # fmt: skip
        place = self.places.of["readout"]
        with self._aside():
            readout.readout_gradient[(self.parts, shape.chains, len(self.heads))](
                *inputs, self.gradient, shape.nodes, self.last, self.version, place, self.places.of.get("shift", 0), types,
                cdiv(shape.nodes, rows * self.parts), self.arena.stride(0), self.places.size, self.places.size,
                self.gradient.stride(0), self.graph_nodes, shape.chains, SHIFTED="shift" in self.places.of,
                TYPES=_power(types), **common,
            )  # fmt: skip
        readout.readout_tilde[(cdiv(shape.nodes, rows), shape.chains)](
            *inputs, shape.nodes, self.last, self.version, place, self.arena.stride(0), self.places.size, self.graph_nodes,
            shape.chains, HEADS=len(self.heads), **common,
        )  # fmt: skip

    def _node_gradients(self) -> None:
        shape, tuning, config = self.shape, self.tuning, self.network.config
        kernels.weight_gradient[(len(self.gradients), shape.chains, self.parts)](
            self.arena, self.arena[:, 1:], self.gradient, self.graph.species, self.ranges, self.gradients, shape.nodes,
            self.version, self.arena.stride(0), self.arena.stride(0), self.places.size, self.gradient.stride(0),
            self.graph_nodes, TYPES=len(config.type_names), SORTED=self.sorted, TWIN=False,
            ROWS=tuning.gradient_rows, INNER=self.tile, COLUMNS=self.tile, PREC=self.gradient_precision,
            STAGES=tuning.gradient_stages, num_warps=tuning.gradient_warps,
        )  # fmt: skip
        channels, types = config.embedding_channels, len(config.type_names)
        start = next(iter(self.arenas[0].x.values())) + 3 * self.version
        kernels.embedding_gradient[(types, shape.chains)](
            self.arena, self.gradient, self.graph.species, self.ranges, start, self.places.of["embedding"],
            self.arena.stride(0), self.places.size, self.graph_nodes, TYPES=types, CHANNELS=channels, WIDE=_power(channels),
            ROWS=64,
        )  # fmt: skip

    def _radial_gradients(self) -> None:
        shape, config, layers, tuning = self.shape, self.network.config, len(self.arenas), self.tuning
        pairs, rows = shape.pairs, tuning.radial_back_rows
        kernels.linear[(cdiv(2 * pairs, rows), len(self.radial_back), shape.chains)](
            self.radial_tilde, self.weights, self.hidden_tilde, self.graph.species, self.radial_back, 2 * pairs,
            self.radial_tilde.stride(0), self.places.size, self.hidden_tilde.stride(0), 0, TRANSPOSED=True, TYPED=False,
            TWIN=True, ROWS=rows, COLUMNS=self.radial_tile, INNER=self.tile, PREC=self.gradient_precision, STAGES=tuning.stages,
            num_warps=tuning.radial_back_warps,
        )  # fmt: skip
        self.generated.radial_backward[(self.radial_parts, layers, shape.chains)](
            self.unit, self.weights, self.hidden_tilde, self.partial, self.radial_offsets, shape.pairs,
            self.places.of["bessel"], self.radial_turns, self.places.size, self.graph_pairs, LAYERS=layers,
            SIZE=self.radial_size, **self._radial_constants(self.gradient_precision), BLOCK=tuning.radial_block,
            num_warps=tuning.radial_warps,
            num_stages=1,  # few turns: prefetching would only take memory from a second program
        )  # fmt: skip
        size = layers * (self.radial_size - config.num_bessels) + config.num_bessels
        kernels.add_partial[(cdiv(size, 128), shape.chains)](
            self.partial, self.gradient, self.radial_places, self.radial_parts, self.radial_size, self.places.size,
            LAYERS=layers, BESSELS=config.num_bessels, BLOCK=128,
        )  # fmt: skip
        kernels.weight_gradient[(len(self.radial_gradients), shape.chains, self.parts)](
            self.hidden, self.radial_tilde, self.gradient, self.graph.species, self.ranges, self.radial_gradients, 2 * pairs, 0,
            self.hidden.stride(0), self.radial_tilde.stride(0), self.places.size, self.gradient.stride(0), 0,
            TYPES=1, SORTED=True, TWIN=True, ROWS=tuning.gradient_rows, INNER=self.radial_tile,
            COLUMNS=self.tile, PREC=self.gradient_precision, STAGES=tuning.gradient_stages, num_warps=tuning.gradient_warps,
        )  # fmt: skip

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Kernels launched here run beside the following ones, until `_join`: one chain leaves much of a GPU idle."""
        if self._side is None:
            yield
            return
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            yield

    def _join(self) -> None:
        if self._side is not None:
            torch.cuda.current_stream().wait_stream(self._side)


def prediction_passes(
    model: StochasticModel, shape: Shape, device: torch.device, precision: str, *, masked: bool = False
) -> Passes:
    """Passes without gradients; lean where the radial weights of all layers would take too much memory."""
    lean = 2 * shape.pairs * shape.chains > edges_at_once(device)
    return Passes(model, shape, device=device, training=False, precision=precision, lean=lean, masked=masked)


def _power(n: int) -> int:
    return max(16, next_power_of_2(n))
