"""Runs the kernels: energies, forces and, for the sampler, the gradient of a loss by all weights.

Everything lies in buffers that are made once, for shapes that do not change, so that a run of the kernels can be recorded as one CUDA
graph and replayed.  Without a GPU the same kernels run under Triton's interpreter, slowly: that is how they are tested.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from equibayes.network.nequip import NequIP
from equibayes.network.triton import density, generate, kernels, minibatch
from equibayes.network.triton.cache import load_kernels
from equibayes.network.triton.generate.convolution import columns as radial_columns
from equibayes.network.triton.generate.writing import blocks as channel_blocks
from equibayes.network.triton.generate.writing import channel_block, collecting_groups, giving_groups, width
from equibayes.network.triton.layout import Job, LayerArena, WeightPlaces, common_tile, layer_jobs
from equibayes.network.triton.pairs import Pairs
from equibayes.network.triton.tuning import Tuning
from equibayes.network.weights import Layout

# what tl.dot calls the precisions that users choose from
PRECISIONS = {"float32": "ieee", "tf32x3": "tf32x3", "tf32": "tf32"}


@dataclass(frozen=True)
class Shape:
    """chains K; groups 1 (all chains see the same atoms) or K; atoms, slots and pairs of a group."""

    chains: int
    groups: int
    nodes: int
    slots: int
    pairs: int


@dataclass(frozen=True)
class Heads:
    """The deviation heads: where their weights lie (for forces, then energy), their hidden sizes, and ln of their unit."""

    names: tuple[str, str]
    hidden: tuple[int, int]
    unit: float


class Engine:
    """The network with its heads for K weight sets and graphs of one shape."""

    def __init__(
        self,
        network: NequIP,
        layout: Layout,
        heads: Heads,
        shape: Shape,
        *,
        device: torch.device | str,
        training: bool,
        precision: str = "float32",
        tuning: Tuning | None = None,
        lean: bool = False,
    ) -> None:
        """lean: keep the radial weights of one layer at a time and compute them twice; for systems of many thousand atoms."""
        self.lean = lean
        self.network, self.shape, self.heads = network, shape, heads
        self.device, self.training = torch.device(device), training
        self.precision = PRECISIONS[precision]
        self.tuning = tuning or Tuning.best(precision, shape.nodes * shape.chains)
        self.places = WeightPlaces(layout)
        self.places_flat = self.places.flat.to(self.device)
        self.generated = load_kernels(generate.kernels(network.config, network.layers))
        self.tile = common_tile(network.layers)
        # sums into which the rows of a weight gradient are divided: few programs are too few for a GPU
        self.parts = max(1, self.tuning.gradient_parts // shape.chains)
        self.sorted = False  # whether all atoms of one type lie together; see `find_types`
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" and training else None
        self._allocate()
        self._make_jobs()

    # --- memory ---

    def _allocate(self) -> None:
        shape, layers, config = self.shape, self.network.layers, self.network.config
        chains, groups, nodes, pairs = shape.chains, shape.groups, shape.nodes, shape.pairs
        total, row = (config.l_max + 1) ** 2, width(config.l_max)
        self.arenas: list[LayerArena] = []
        start = 0
        for layer in layers:
            self.arenas.append(LayerArena(layer, nodes, start))
            start = self.arenas[-1].end
        self.last = start  # where the last features lie
        self.version = start + nodes * config.channels[0]
        self.arena = self._zeros(chains, 4 if self.training else 2, self.version)
        self.weights = self._zeros(chains, self.places.size)
        self.graph = Pairs(
            species=self._zeros(groups, nodes, dtype=torch.int32),
            degree=self._zeros(groups, nodes, dtype=torch.int32),
            sender=self._zeros(groups, nodes, shape.slots, dtype=torch.int32),
            pair=self._zeros(groups, nodes, shape.slots, dtype=torch.int32),
            # predictions keep positions in float64, so that the energy is smooth; training data are float32 already
            vector=self._zeros(groups, pairs, 3, dtype=torch.float32 if self.training else torch.float64),
            ends=self._zeros(groups, pairs, 2, dtype=torch.int32),
            order=self._zeros(groups, nodes, dtype=torch.int64),
        )
        self.norm = self._zeros(groups, nodes)
        self.norms = self.network.neighbor_norm.values.to(self.device, torch.float32)
        self.energy_scale = self.network.energy_scale.values.to(self.device, torch.float32)
        self.unit = self._zeros(groups, pairs, 4)
        self.harmonics = self._zeros(groups, pairs, total)
        self.columns = [radial_columns(layer) for layer in layers]
        self.width = config.radial_mlp_width
        self.hidden = self._zeros(chains, len(layers), 2, pairs, self.width)
        self.radial_start = [0 if self.lean else 2 * pairs * sum(self.columns[:i]) for i in range(len(layers))]
        self.radial = self._zeros(chains, 2 * pairs * (max(self.columns) if self.lean else sum(self.columns)))
        self.jobs_giving = [
            len(giving_groups(layer)) * channel_blocks(layer, self._channels(layer)) for layer in layers
        ]
        self.edge = self._zeros(chains, pairs, 2, sum(self.jobs_giving), row)
        self.pull = self._zeros(chains, pairs, 3)
        self.forces = self._zeros(chains, nodes, 3)
        self.energies = self._zeros(chains, nodes)
        self.deviations = self._zeros(2, chains, nodes)
        self.tangents = self._zeros(chains, pairs, row) if self.training else self.pull
        if self.training:
            self.direction = self._zeros(chains, nodes, 3)
            self.deviation_tilde = self._zeros(2, chains, nodes)
            self.energy_bar = self._zeros(chains, nodes)
            self.radial_tilde = self._zeros(chains, 4 * pairs * sum(self.columns))
            self.hidden_tilde = self._zeros(chains, len(layers), 2, pairs, self.width)
            self.gradient = self._zeros(self.parts, chains, self.places.size)
            self.ranges = self._zeros(groups, len(config.type_names), 2, dtype=torch.int32)
            block = self.tuning.radial_block
            self.radial_turns = max(1, -(-pairs * chains // (block * self.tuning.radial_programs)))
            self.radial_parts = -(-pairs // (block * self.radial_turns))
            depth = config.radial_mlp_depth
            self.radial_size = config.num_bessels * self.width + (depth - 1) * self.width**2 + config.num_bessels
            self.partial = self._zeros(chains, self.radial_parts, len(layers), self.radial_size)

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def _channels(self, layer: Any) -> int:
        return min(channel_block(layer.inputs[source]) for source in layer.sources)

    def _make_jobs(self) -> None:
        config, pairs = self.network.config, self.shape.pairs
        types = len(config.type_names)
        jobs = [
            layer_jobs(arena, self.places, number, types, self.tile, first=number == 0)
            for number, arena in enumerate(self.arenas)
        ]
        self.before = [self._table(own.before) for own in jobs]
        self.after = [self._table(own.after) for own in jobs]
        self.after_back = [self._table(own.after_back) for own in jobs]
        self.before_back = [self._table(own.before_back) for own in jobs]
        self.gradients = self._table([job for own in jobs for job in own.gradients])
        # the last layer of the radial networks, all interaction blocks at once
        depth, width = config.radial_mlp_depth, self.width
        self.radial_tile = channel_block(width)
        radial: list[Job] = []
        back: list[Job] = []
        gradients: list[Job] = []
        for number, columns in enumerate(self.columns):
            place = self.places.of[f"layer{number}.radial.{depth}"]
            hidden, start = number * 2 * pairs * width, self.radial_start[number]
            both, twin = 2 * start, 2 * pairs * columns  # both directions of a pair
            radial.append([start, columns, hidden, width, place])
            for c in range(0, columns, self.tile):
                for i in range(0, width, self.radial_tile):
                    out = place + i * columns + c
                    gradients.append([out, columns, hidden + i, width, both + c, columns, 1, -1, 1, twin])
            for c in range(0, width, self.radial_tile):
                back.append([hidden + c, width, both, columns, columns, place + c * columns, columns, twin])
        self.radial_jobs, self.radial_back = self._table(radial), self._table(back)
        self.radial_gradients = self._table(gradients)
        offsets = [[self.places.of[f"layer{n}.radial.{i}"] for i in range(depth)] for n in range(len(self.columns))]
        self.radial_offsets = torch.tensor(offsets, dtype=torch.int64, device=self.device)
        places: list[int] = []
        for firsts in offsets:
            for i, first in enumerate(firsts):
                size = (config.num_bessels if i == 0 else width) * width
                places += range(first, first + size)
        places += range(self.places.of["bessel"], self.places.of["bessel"] + config.num_bessels)
        self.radial_places = torch.tensor(places, dtype=torch.int32, device=self.device)
        names = [f"{head}.{kind}{i}" for head in self.heads.names for i in range(3) for kind in ("weight", "bias")]
        self.head_places = torch.tensor([self.places.of[name] for name in names], dtype=torch.int64, device=self.device)

    def _table(self, jobs: list[Job]) -> torch.Tensor:
        rows = [job + [0] * (kernels.JOB - len(job)) for job in jobs]
        return torch.tensor(rows, dtype=torch.int64, device=self.device).reshape(-1, kernels.JOB)

    # --- what goes in ---

    def load_weights(self, forward: torch.Tensor) -> None:
        """Weights [K, P], scaled for the forward pass."""
        self.weights[:, self.places_flat.long()] = forward.float()

    def load_graph(self, graph: Pairs) -> None:
        """Atoms and pairs of this engine's shape (fewer slots or pairs are filled up)."""
        for name in ("species", "degree", "order"):
            getattr(self.graph, name).copy_(getattr(graph, name))
        for name in ("sender", "pair"):
            getattr(self.graph, name)[:, :, : graph.sender.shape[2]].copy_(getattr(graph, name))
        count = graph.vector.shape[1]
        self.graph.vector[:, :count].copy_(graph.vector)
        self.graph.vector[:, count:] = self.graph.vector.new_tensor([1000.0, 0.0, 0.0])
        self.graph.ends[:, :count].copy_(graph.ends)
        self.graph.ends[:, count:] = 0
        self.norm.copy_(self.norms[self.graph.species.long()])
        if self.training:
            self.find_types()

    # --- passes ---

    def evaluate(self) -> None:
        """Versions 0 and 1: energies, deviations, ∂E/∂vector of all pairs and forces."""
        self._geometry()
        self._radial()
        config, shape = self.network.config, self.shape
        start = self.arenas[0].x[next(iter(self.arenas[0].x))]
        channels = config.embedding_channels
        kernels.embed[(_div(shape.nodes * channels, 256), shape.chains)](
            self.arena, self.weights, self.graph.species, shape.nodes, start, self.places.of["embedding"],
            self.arena.stride(0), self.places.size, self._graph_nodes, CHANNELS=channels, BLOCK=256,
        )  # fmt: skip
        for number in range(len(self.arenas)):
            self._linear(self.before[number], 0)
            if self.lean:
                self._radial_weights(self.radial_jobs[number : number + 1])
            self._collect(number, dual=False)
            self._linear(self.after[number], 0, typed=True)
            self._gate(number, 0)
        width, wide = config.channels[0], _power(config.channels[0])
        density.readout[(_div(shape.nodes, 32), shape.chains)](
            self.arena, self.weights, self.head_places, self.graph.species, self.energy_scale, self.energies, self.deviations,
            shape.nodes, self.last, self.version, self.places.of["readout"], self.arena.stride(0), self.places.size,
            self._graph_nodes, self.heads.unit, chains=shape.chains, WIDTH=width, WIDE=wide, H1=self.heads.hidden[0],
            H2=self.heads.hidden[1], PREC=self.precision, ROWS=32,
        )  # fmt: skip
        for number in reversed(range(len(self.arenas))):
            self._gate(number, 1)
            self._linear(self.after_back[number], 1, transposed=True)
            if self.lean and number + 1 < len(self.arenas):
                self._radial_weights(self.radial_jobs[number : number + 1])
            self._give(number, dual=False)
            if number:
                self._linear(self.before_back[number], 1, transposed=True, typed=True)
        self.generated.pair_gradient[(_div(shape.pairs, 32), shape.chains)](
            self.unit, self.edge, self.pull, shape.pairs, self._graph_pairs, GROUPS=sum(self.jobs_giving), BLOCK=32,
        )  # fmt: skip
        kernels.atom_forces[(_div(shape.nodes, 32), shape.chains)](
            self.pull, self.graph.pair, self.graph.degree, self.forces, shape.nodes, shape.slots, shape.pairs,
            self._graph_nodes, BLOCK=32, num_warps=1,
        )  # fmt: skip

    def differentiate(self) -> None:
        """Versions 2 and 3 and from them the gradient of the loss by the weights, as PARTS sums.

        `direction`, `deviation_tilde` and `energy_bar` say what the loss is (see density.likelihood).
        """
        shape = self.shape
        self.generated.pair_tangent[(_div(shape.pairs, 64), shape.chains)](
            self.unit, self.graph.ends, self.direction, self.tangents, shape.pairs, shape.nodes, self._graph_pairs, BLOCK=64,
            num_warps=2,
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
        with self._aside():
            self._radial_gradients()
        self._node_gradients()
        self._join()

    # --- launches ---

    @property
    def _graph_nodes(self) -> int:
        return self.shape.nodes if self.shape.groups > 1 else 0

    @property
    def _graph_pairs(self) -> int:
        return self.shape.pairs if self.shape.groups > 1 else 0

    def _geometry(self) -> None:
        rows = self.shape.groups * self.shape.pairs
        self.generated.geometry[(_div(rows, 128),)](self.graph.vector, self.unit, self.harmonics, rows, BLOCK=128)

    def _radial(self) -> None:
        shape = self.shape
        self.generated.radial_hidden[(_div(shape.pairs, 32), len(self.arenas), shape.chains)](
            self.unit, self.weights, self.hidden, self.radial_offsets, shape.pairs, self.places.of["bessel"],
            self.places.size, self._graph_pairs, LAYERS=len(self.arenas), **self._radial_constants, BLOCK=32,
        )  # fmt: skip
        if not self.lean:
            self._radial_weights(self.radial_jobs)

    def _radial_weights(self, jobs: torch.Tensor) -> None:
        """R and R' of some layers from the last hidden layer of their radial networks."""
        shape, tuning = self.shape, self.tuning
        kernels.wide_linear[(_div(2 * shape.pairs, tuning.radial_rows), len(jobs), shape.chains)](
            self.hidden, self.weights, self.radial, jobs, 2 * shape.pairs, self.hidden.stride(0),
            self.places.size, self.radial.stride(0), ROWS=tuning.radial_rows, INNER=self.width,
            WIDE=_power(self.width), COLUMNS=self.tile, PREC=self.precision, STAGES=tuning.radial_stages,
            num_warps=tuning.radial_last_warps,
        )  # fmt: skip

    @property
    def _radial_constants(self) -> dict[str, Any]:
        config = self.network.config
        return {
            "R_MAX": config.r_max,
            "P": config.polynomial_cutoff_p,
            "BESSELS": config.num_bessels,
            # the slope of a Bessel function is a difference of large numbers: tf32 alone would not do
            "FIRST_PREC": "tf32x3" if self.precision == "tf32" else self.precision,
            "PREC": self.precision,
        }

    def _linear(self, jobs: torch.Tensor, version: int, *, transposed: bool = False, typed: bool = False) -> None:
        shape, tuning = self.shape, self.tuning
        rows = tuning.rows
        arena = self.arena[:, version:]
        kernels.linear[(_div(shape.nodes, rows), len(jobs), shape.chains)](
            arena, self.weights, arena, self.graph.species, jobs, shape.nodes, self.arena.stride(0), self.places.size,
            self.arena.stride(0), self._graph_nodes, TRANSPOSED=transposed, TYPED=typed, TWIN=False, ROWS=rows,
            COLUMNS=self.tile, INNER=self.tile, PREC=self.precision, STAGES=tuning.stages, num_warps=tuning.warps,
        )  # fmt: skip

    def _collect(self, number: int, *, dual: bool) -> None:
        shape, arena, layer = self.shape, self.arenas[number], self.network.layers[number]
        channels, at_once = self._channels(layer), self.tuning.slots_collecting
        blocks = channel_blocks(layer, channels)
        y, out = next(iter(arena.y.values())), next(iter(arena.collected.values()))
        grid = (shape.nodes, len(collecting_groups(layer)) * blocks, shape.chains)
        getattr(self.generated, f"collect_{number}")[grid](
            self.arena, self.harmonics, self.tangents, self.radial[:, self.radial_start[number] :], self.graph.sender,
            self.graph.pair, self.graph.degree, self.norm, shape.nodes, shape.slots, shape.pairs, y, y + 2 * self.version,
            out + 2 * self.version * dual, self.arena.stride(0), self.radial.stride(0), self.tangents.stride(0),
            self._graph_pairs, self._graph_nodes, DUAL=dual, DOT=number > 0, CB=channels, BLOCKS=blocks, EB=at_once,
            num_warps=at_once,
        )  # fmt: skip

    def _give(self, number: int, *, dual: bool) -> None:
        shape, arena, layer, version = self.shape, self.arenas[number], self.network.layers[number], self.version
        channels, at_once = self._channels(layer), self.tuning.slots_giving
        y, collected = next(iter(arena.y.values())), next(iter(arena.collected.values()))
        radial_out = self.radial_tilde[:, 2 * self.radial_start[number] :] if dual else self.radial
        getattr(self.generated, f"give_{number}")[(shape.nodes, self.jobs_giving[number], shape.chains)](
            self.arena, self.harmonics, self.tangents, self.radial[:, self.radial_start[number] :], radial_out, self.edge,
            self.graph.sender, self.graph.pair, self.graph.degree, self.norm, shape.nodes, shape.slots, shape.pairs,
            y, y + 2 * version, collected + version, collected + 3 * version, y + (3 if dual else 1) * version,
            self.arena.stride(0), self.radial.stride(0), radial_out.stride(0), self.tangents.stride(0), self.edge.stride(0),
            self._graph_pairs, self._graph_nodes, DUAL=dual, DOT=number > 0, FIRST=sum(self.jobs_giving[:number]),
            GROUPS=sum(self.jobs_giving), CB=channels, BLOCKS=channel_blocks(layer, channels), EB=at_once, num_warps=at_once,
        )  # fmt: skip

    def _gate(self, number: int, mode: int) -> None:
        shape, layer = self.shape, self.network.layers[number]
        x = self.last if number + 1 == len(self.arenas) else next(iter(self.arenas[number + 1].x.values()))
        z = next(iter(self.arenas[number].z.values()))
        size = shape.nodes * max(layer.outputs.values())
        getattr(self.generated, f"gate_{number}")[(_div(size, 128), len(layer.outputs), shape.chains)](
            self.arena, x, z, self.version, shape.nodes, self.arena.stride(0), MODE=mode, BLOCK=128, num_warps=4,
        )  # fmt: skip

    def _readout_tilde(self) -> None:
        shape, config = self.shape, self.network.config
        width, wide, rows = config.channels[0], _power(config.channels[0]), 32
        common = {
            "WIDTH": width,
            "WIDE": wide,
            "H1": self.heads.hidden[0],
            "H2": self.heads.hidden[1],
            "PREC": self.precision,
        }
        inputs = (
            self.arena, self.weights, self.head_places, self.graph.species, self.energy_scale, self.deviation_tilde, self.energy_bar,
        )  # fmt: skip
        place = self.places.of["readout"]
        with self._aside():
            density.readout_gradient[(self.parts, shape.chains, 2)](
                *inputs, self.gradient, shape.nodes, self.last, self.version, place, _div(shape.nodes, rows * self.parts),
                self.arena.stride(0), self.places.size, self.places.size, self.gradient.stride(0), self._graph_nodes,
                shape.chains, **common, ROWS=rows,
            )  # fmt: skip
        density.readout_tilde[(_div(shape.nodes, rows), shape.chains)](
            *inputs, shape.nodes, self.last, self.version, place, self.arena.stride(0), self.places.size, self._graph_nodes,
            shape.chains, **common, ROWS=rows,
        )  # fmt: skip

    def _node_gradients(self) -> None:
        shape, tuning, config = self.shape, self.tuning, self.network.config
        kernels.weight_gradient[(len(self.gradients), shape.chains, self.parts)](
            self.arena, self.arena[:, 1:], self.gradient, self.graph.species, self.ranges, self.gradients, shape.nodes,
            self.version, self.arena.stride(0), self.arena.stride(0), self.places.size, self.gradient.stride(0),
            self._graph_nodes, TYPES=len(config.type_names), SORTED=self.sorted, TWIN=False, PARTS=self.parts,
            ROWS=tuning.gradient_rows, INNER=self.tile, COLUMNS=self.tile, PREC=self.precision, STAGES=tuning.gradient_stages,
            num_warps=tuning.gradient_warps,
        )  # fmt: skip
        channels = config.embedding_channels
        start = self.arenas[0].x[next(iter(self.arenas[0].x))] + 3 * self.version
        types = len(config.type_names)
        kernels.embedding_gradient[(types, shape.chains)](
            self.arena, self.gradient, self.graph.species, self.ranges, start, self.places.of["embedding"],
            self.arena.stride(0), self.places.size, self._graph_nodes, TYPES=types, CHANNELS=channels, WIDE=_power(channels),
            ROWS=64,
        )  # fmt: skip

    def _radial_gradients(self) -> None:
        shape, config, layers, tuning = self.shape, self.network.config, len(self.arenas), self.tuning
        pairs, rows = shape.pairs, tuning.radial_back_rows
        kernels.linear[(_div(2 * pairs, rows), len(self.radial_back), shape.chains)](
            self.radial_tilde, self.weights, self.hidden_tilde, self.graph.species, self.radial_back, 2 * pairs,
            self.radial_tilde.stride(0), self.places.size, self.hidden_tilde.stride(0), 0, TRANSPOSED=True, TYPED=False,
            TWIN=True, ROWS=rows, COLUMNS=self.radial_tile, INNER=self.tile, PREC=self.precision, STAGES=tuning.stages,
            num_warps=tuning.radial_back_warps,
        )  # fmt: skip
        self.generated.radial_backward[(self.radial_parts, layers, shape.chains)](
            self.unit, self.weights, self.hidden_tilde, self.partial, self.radial_offsets, shape.pairs,
            self.places.of["bessel"], self.radial_turns, self.places.size, self._graph_pairs, LAYERS=layers,
            SIZE=self.radial_size, **self._radial_constants, BLOCK=tuning.radial_block, num_warps=tuning.radial_warps,
        )  # fmt: skip
        size = layers * (self.radial_size - config.num_bessels) + config.num_bessels
        kernels.add_partial[(_div(size, 128), shape.chains)](
            self.partial, self.gradient, self.radial_places, self.radial_parts, self.radial_size, self.places.size,
            LAYERS=layers, BESSELS=config.num_bessels, BLOCK=128,
        )  # fmt: skip
        kernels.weight_gradient[(len(self.radial_gradients), shape.chains, self.parts)](
            self.hidden, self.radial_tilde, self.gradient, self.graph.species, self.ranges, self.radial_gradients, 2 * pairs, 0,
            self.hidden.stride(0), self.radial_tilde.stride(0), self.places.size, self.gradient.stride(0), 0,
            TYPES=1, SORTED=True, TWIN=True, PARTS=self.parts, ROWS=tuning.gradient_rows, INNER=self.radial_tile,
            COLUMNS=self.tile, PREC=self.precision, STAGES=tuning.gradient_stages, num_warps=tuning.gradient_warps,
        )  # fmt: skip

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """What is launched here runs beside what follows, until `_join`; a single chain leaves much of a GPU idle."""
        if self._side is None:
            yield
            return
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            yield

    def _join(self) -> None:
        if self._side is not None:
            torch.cuda.current_stream().wait_stream(self._side)

    def find_types(self) -> None:
        """Which rows hold which type, for the gradients of weights that belong to a type."""
        types = len(self.network.config.type_names)
        minibatch.type_ranges[(types, self.shape.groups)](
            self.graph.species, self.ranges, self.shape.nodes, TYPES=types, BLOCK=128
        )


def _div(a: int, b: int) -> int:
    return -(-a // b)


def _power(n: int) -> int:
    """The next power of two, at least 16."""
    return max(16, 1 << (n - 1).bit_length())
