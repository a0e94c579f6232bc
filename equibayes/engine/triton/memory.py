"""The buffers on the device, what is loaded into them, and the tables of jobs of the linears."""

from dataclasses import dataclass
from typing import Any

import torch
from triton import cdiv

from equibayes.bayes.model import StochasticModel
from equibayes.engine import generate
from equibayes.engine.generate.arena import LayerArena
from equibayes.engine.generate.groups import blocks as channel_blocks
from equibayes.engine.generate.groups import channel_block, giving_groups
from equibayes.engine.generate.offsets import columns as radial_columns
from equibayes.engine.generate.offsets import harmonics, width
from equibayes.engine.triton import kernels, minibatch
from equibayes.engine.triton.cache import load_kernels
from equibayes.engine.triton.dialect import TritonDialect
from equibayes.engine.triton.layout import Job, Pieces, WeightPlaces, common_tile, layer_jobs
from equibayes.engine.triton.pairs import Pairs
from equibayes.engine.triton.tuning import Tuning, narrow

# of tl.dot: for energies and forces, and for passes that only the gradient by weights needs (tf32: for tests)
PRECISIONS = {
    "float32": ("ieee", "ieee"),
    "tf32x3": ("tf32x3", "tf32x3"),
    "bf16x3": ("bf16x3", "bf16x3"),
    "mixed": ("bf16x3", "tf32"),
    "tf32": ("tf32", "tf32"),
}
MOST_PARTS = 8  # partial sums of a weight gradient; the sampler reads all of them


@dataclass(frozen=True)
class Shape:
    chains: int  # K
    groups: int  # 1 (all chains see the same atoms) or K
    nodes: int  # atoms of a group
    slots: int  # of an atom
    pairs: int  # of a group


# radial weights, harmonics and features of one edge and sample of the paper's network
BYTES_PER_EDGE = 32_000


def edges_at_once(device: torch.device | str) -> int:
    """Edges times samples for which the buffers of the paper's network fill half of the memory."""
    if torch.device(device).type != "cuda":
        return 100_000
    return int(torch.cuda.get_device_properties(device).total_memory / 2 / BYTES_PER_EDGE)


def padded(count: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return cdiv(count, unit) * unit


class Memory:
    """Everything on the device for K weight sets and graphs of one shape."""

    def __init__(
        self,
        model: StochasticModel,
        shape: Shape,
        *,
        device: torch.device | str,
        training: bool,
        precision: str = "float32",
        lean: bool = False,
        masked: bool = False,
        strained: int = 0,
    ) -> None:
        """masked: features are multiplied by `mask` before readout and heads read them (dropout).
        strained: structures of a group whose strains (see generate) the gradient takes into account, or 0.
        lean: keep the radial weights of one layer at a time and compute them twice, for many thousand atoms."""
        self.network, self.heads = model.network, model.heads
        self.shape, self.device = shape, torch.device(device)
        self.training, self.lean, self.masked, self.strained = training, lean, masked, strained
        self.precision, self.gradient_precision = PRECISIONS[precision]
        self.tuning = Tuning.best(precision, shape.nodes * shape.chains, narrow=narrow(self.device))
        self.places = WeightPlaces(model.layout)
        self.places_flat = self.places.flat.to(self.device)
        self.generated = load_kernels(generate.kernels(model.config, self.network.layers, TritonDialect))
        self.tile = common_tile(self.network.layers)
        # sums into which the rows of a weight gradient are divided: few programs are too few for a GPU
        self.parts = min(MOST_PARTS, max(1, self.tuning.gradient_parts // shape.chains))
        self.sorted = False  # whether all atoms of one type lie together; see `find_types`
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" and training else None
        # from the atoms and pairs of one chain to those of the next: 0 where all chains share them
        self.graph_nodes, self.graph_pairs = (shape.nodes, shape.pairs) if shape.groups > 1 else (0, 0)
        self._allocate()
        self._make_jobs()

    def _allocate(self) -> None:
        shape, layers, config = self.shape, self.network.layers, self.network.config
        chains, groups, nodes, pairs = shape.chains, shape.groups, shape.nodes, shape.pairs
        total, row = harmonics(config.l_max), width(config.l_max)
        self.arenas: list[LayerArena] = []
        self.last = 0  # where the last features lie
        for layer in layers:
            self.arenas.append(LayerArena(layer, nodes, self.last))
            self.last = self.arenas[-1].end
        self.version = self.last + nodes * config.channels[0]
        versions, pieces = 4 if self.training else 2, self.tuning.pieces
        # once more for each further piece of a sum; small systems only, large ones have one piece
        self.arena = self._zeros(chains, versions * pieces, self.version)
        self.apart = versions * self.version
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
        blocks = [channel_blocks(layer, self._channels(layer)) for layer in layers]
        self.jobs_giving = [len(giving_groups(layer)) * count for layer, count in zip(layers, blocks)]
        self.edge = self._zeros(chains, pairs, 2, sum(self.jobs_giving), row)
        self.pull = self._zeros(chains, pairs, 3)
        self.forces = self._zeros(chains, nodes, 3)
        self.energies = self._zeros(chains, nodes)
        self.deviations = self._zeros(len(self.heads), chains, nodes)
        self.mask = self._zeros(chains, nodes, config.channels[0]) if self.masked else self.pull
        self.tangents = self._zeros(chains, pairs, row) if self.training else self.pull
        if self.training:
            self.direction = self._zeros(chains, nodes, 3)
            self.strain = self._zeros(chains, max(1, self.strained), 3, 3)
            self.structure = self._zeros(nodes, dtype=torch.int32)  # that each atom belongs to
            self.deviation_tilde = self._zeros(len(self.heads), chains, nodes)
            self.energy_bar = self._zeros(chains, nodes)
            self.radial_tilde = self._zeros(chains, 4 * pairs * sum(self.columns))
            self.hidden_tilde = self._zeros(chains, len(layers), 2, pairs, self.width)
            self.gradient = self._zeros(self.parts, chains, self.places.size)
            self.ranges = self._zeros(groups, len(config.type_names), 2, dtype=torch.int32)
            block = self.tuning.radial_block
            self.radial_turns = max(1, cdiv(pairs * chains, block * self.tuning.radial_programs))
            self.radial_parts = cdiv(pairs, block * self.radial_turns)
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
        # rows are sorted by species, but a few atoms lie in one tile together
        pieces = Pieces(self.tuning.pieces, self.apart, types if self.shape.nodes <= 2 * self.tuning.rows else 1)
        connections = config.self_connections
        jobs = [layer_jobs(own, self.places, i, connections, self.tile, pieces) for i, own in enumerate(self.arenas)]
        self.before = [self._table(own.before) for own in jobs]
        self.after = [self._table(own.after) for own in jobs]
        self.after_back = [self._table(own.after_back) for own in jobs]
        self.before_back = [self._table(own.before_back) for own in jobs]
        self.gradients = self._table([job for own in jobs for job in own.gradients])
        # the last layer of the radial networks, all interaction blocks at once
        depth, width = config.radial_mlp_depth, self.width
        self.radial_tile = channel_block(width)
        radial: list[list[Job]] = []
        back: list[Job] = []
        gradients: list[Job] = []
        for number, columns in enumerate(self.columns):
            place = self.places.of[f"layer{number}.radial.{depth}"]
            hidden, start = number * 2 * pairs * width, self.radial_start[number]
            both, twin = 2 * start, 2 * pairs * columns  # both directions of a pair
            most = self.tuning.radial_columns
            chunks = [(c, min(most, columns - c)) for c in range(0, columns, most)]
            radial.append([[start + c, columns, hidden, width, place + c, count] for c, count in chunks])
            for c in range(0, columns, self.tile):
                for i in range(0, width, self.radial_tile):
                    out = place + i * columns + c
                    gradients.append([out, columns, hidden + i, width, both + c, columns, 1, -1, 1, twin])
            for c in range(0, width, self.radial_tile):
                back.append([hidden + c, width, both, columns, columns, place + c * columns, columns, twin])
        self.radial_jobs = [self._table(own) for own in radial]
        self.all_radial_jobs = torch.cat(self.radial_jobs)
        self.radial_back = self._table(back)
        self.radial_gradients = self._table(gradients)
        offsets = [[self.places.of[f"layer{n}.radial.{i}"] for i in range(depth)] for n in range(len(self.columns))]
        self.radial_offsets = torch.tensor(offsets, dtype=torch.int64, device=self.device)
        sizes = [config.num_bessels * width] + [width * width] * (depth - 1)
        blocks = [(first, size) for firsts in offsets for first, size in zip(firsts, sizes)]
        blocks.append((self.places.of["bessel"], config.num_bessels))
        places = [place for first, size in blocks for place in range(first, first + size)]
        self.radial_places = torch.tensor(places, dtype=torch.int32, device=self.device)
        names = [f"{head}.{kind}{i}" for head in self.heads for i in range(3) for kind in ("weight", "bias")]
        self.head_places = torch.tensor([self.places.of[name] for name in names], dtype=torch.int64, device=self.device)

    def _table(self, jobs: list[Job]) -> torch.Tensor:
        rows = [job + [0] * (kernels.JOB - len(job)) for job in jobs]
        return torch.tensor(rows, dtype=torch.int64, device=self.device).reshape(-1, kernels.JOB)

    def load_weights(self, forward: torch.Tensor) -> None:
        """Weights [K, P], scaled for the forward pass."""
        self.weights[:, self.places_flat.long()] = forward.float()

    def load_graph(self, graph: Pairs) -> None:
        """Atoms and pairs of this shape; fewer slots or pairs are padded."""
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

    def find_types(self) -> None:
        """Which rows hold which type, for the gradients of weights that belong to a type."""
        types = len(self.network.config.type_names)
        minibatch.type_ranges[(types, self.shape.groups)](
            self.graph.species, self.ranges, self.shape.nodes, TYPES=types, BLOCK=128
        )
