"""The model and its likelihood on the fused engine: what `StochasticModel` and `Potential` compute, in a fraction of the kernels.

Only the pieces are here; `engine/triton/steps.py` makes a whole step of them, `FusedModel` predictions.
"""

from collections.abc import Callable
from dataclasses import replace
from math import log

import torch

from equibayes.bayes.heads import ENERGY_HEAD, FORCE_HEAD, HIDDEN, log_mean_exp
from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.bayes.potential import Evaluation, Potential
from equibayes.data.graph import Graph
from equibayes.engine.triton import likelihood as density
from equibayes.engine.triton import minibatch
from equibayes.engine.triton.memory import Heads, Shape
from equibayes.engine.triton.pairs import Pairs, pairs_of
from equibayes.engine.triton.passes import Engine
from equibayes.network.nequip import sum_over_structures
from equibayes.network.weights import Weights
from equibayes.units import KCAL_PER_MOL

# radial weights, harmonics and features that belong to an edge and a sample of the paper's network
BYTES_PER_EDGE = 32_000
HEADS = Heads((FORCE_HEAD, ENERGY_HEAD), HIDDEN, log(KCAL_PER_MOL))


class FusedPotential:
    """−N/|batch| Σ ln p and its gradient for K chains with a minibatch of B frames each, in place and without touching the host.

    frames   [S, K, B] int32  the minibatches of the next S steps
    counter  [1] int64        which of them is meant
    The gradient is left in `engine.gradient`, as parts of forward weights; prior and scales are the sampler's business.
    """

    def __init__(self, potential: Potential, chains: int, batch: int, steps: int, precision: str = "float32") -> None:
        model, data = potential.model, potential.data
        self.potential, self.batch = potential, batch
        self.device = device = data.forces.device
        types = len(model.config.type_names)
        frames = pairs_of(data.frames, types)
        self.resident = frames
        self.atoms, self.slots = frames.sender.shape[1:]
        self.pair_rows = frames.vector.shape[1]
        self.counts = data.frames.num_atoms[:, 0].int().contiguous()
        self.labels = data.forces.gather(1, frames.order[..., None].expand(-1, -1, 3)).contiguous()
        self.scale = len(data) / batch
        shape = Shape(chains, chains, self.atoms * batch, self.slots, self.pair_rows * batch)
        self.engine = Engine(
            model.network, model.layout, HEADS, shape, device=device, training=True, precision=precision,
            masked=potential.dropout is not None,
        )  # fmt: skip
        self.frames = torch.zeros(steps, chains, batch, dtype=torch.int32, device=device)
        self.counter = torch.zeros(1, dtype=torch.int64, device=device)
        self.summary = torch.zeros(chains, batch, 4, dtype=torch.float64, device=device)
        # where all frames have the same species in the same rows, so have all minibatches
        self.same_species = bool((frames.species == frames.species[:1]).all())
        if self.same_species:
            self.engine.graph.species.copy_(frames.species[0].repeat_interleave(batch).expand(chains, -1))
            self.engine.find_types()
            self.engine.sorted = True  # rows a·B + b of frames whose atoms are sorted

    def __call__(self) -> None:
        engine, resident, batch = self.engine, self.resident, self.batch
        chains, graph = engine.shape.chains, engine.graph
        minibatch.gather_atoms[(-(-self.atoms * batch // 64), chains)](
            self.frames, self.counter, resident.species, resident.degree, resident.sender, resident.pair, engine.norms,
            graph.species, graph.degree, graph.sender, graph.pair, engine.norm, self.atoms, self.slots, batch, self.pair_rows,
            chains=chains, BLOCK=64, num_warps=2,
        )  # fmt: skip
        minibatch.gather_pairs[(-(-self.pair_rows * batch // 128), chains)](
            self.frames, self.counter, resident.vector, resident.ends, graph.vector, graph.ends, batch, self.pair_rows,
            chains=chains, BLOCK=128,
        )  # fmt: skip
        if not self.same_species:
            engine.find_types()
        engine.evaluate()
        density.likelihood[(batch, chains)](
            self.frames, self.counter, self.counts, self.potential.data.energy, self.labels, engine.energies, engine.forces,
            engine.deviations, engine.direction, engine.deviation_tilde, engine.energy_bar, self.summary, self.atoms, batch,
            self.scale, chains=chains, SQUARES=self.potential.objective == "squares",
            ATOMS=max(16, 1 << (self.atoms - 1).bit_length()), num_warps=1,
        )  # fmt: skip
        engine.differentiate()

    def draw_mask(self, first_step: torch.Tensor, identities: torch.Tensor) -> None:
        """The dropout mask of the step that the counter points to, `first_step` being where the minibatches begin."""
        dropout, engine = self.potential.dropout, self.engine
        if dropout is None:
            return
        channels = engine.mask.shape[2]
        minibatch.dropout[(-(-self.atoms * self.batch * channels // 1024), engine.shape.chains)](
            engine.mask, self.frames, self.counter, self.resident.order, first_step, identities, dropout.seed, dropout.stream,
            int(dropout.rate * 2**32), 1 / (1 - dropout.rate), self.atoms, self.batch, engine.shape.chains, CHANNELS=channels,
            BLOCK=256,
        )  # fmt: skip

    def evaluation(self, gradient: torch.Tensor, neg_log_prior: torch.Tensor) -> Evaluation:
        """What the last step knew of itself; gradient [K, P] and −ln p(θ) [K] are the sampler's."""
        log_p, wrong, sigma, count = self.summary.clone().unbind(2)
        return Evaluation(
            gradient=gradient,
            potential=neg_log_prior - self.scale * log_p.sum(1),
            log_likelihood=log_p.mean(1),
            force_mae=(wrong.sum(1) / count.sum(1)).to(gradient),
            force_sigma=(sigma.sum(1) / count.sum(1)).to(gradient),
        )


class FusedModel:
    """Predictions of a `StochasticModel` for K weight sets on graphs that all chains share; a drop-in for its `forward`."""

    def __init__(
        self, model: StochasticModel, precision: str = "tf32x3", prepare: Callable[[int], None] = lambda rows: None
    ) -> None:
        """prepare: called with the number of atoms in all chains together before kernels are made for them."""
        self.model, self.layout, self.precision, self.prepare = model, model.layout, precision, prepare
        self._engine: Engine | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._loaded: Weights | None = None

    def forward(self, weights: Weights, graph: Graph, *, feature_mask: torch.Tensor | None = None) -> ModelOutput:
        """As `StochasticModel.forward`, not differentiable."""
        if graph.species.shape[0] != 1:
            return self.model.forward(weights, graph, feature_mask=feature_mask)
        pairs = pairs_of(graph, len(self.model.config.type_names))
        engine = self.engine_for(weights, pairs, masked=feature_mask is not None)
        engine.load_graph(pairs)
        if feature_mask is not None:
            engine.mask.copy_(feature_mask[:, pairs.order[0]])
        self._evaluate(engine)
        return self._output(engine, graph, pairs.order)

    def engine_for(self, weights: Weights, pairs: Pairs, *, masked: bool = False) -> Engine:
        """An engine of the right size with these weights; the last one is kept."""
        chains, device = weights["embedding"].shape[0], weights["embedding"].device
        # a little room, so that a molecule that moves keeps its engine
        slots, rows = filled_up(pairs.sender.shape[2], 4), filled_up(pairs.vector.shape[1], 64)
        shape = Shape(chains, 1, pairs.species.shape[1], slots, rows)
        engine = self._engine
        if engine is None or (engine.masked, engine.device) != (masked, device) or not has_room(engine.shape, shape):
            if engine is not None and engine.shape.nodes == shape.nodes:
                # the next batch of such frames may have some more pairs still; making an engine takes longer than using it
                shape = replace(shape, slots=slots + 4, pairs=filled_up(rows + rows // 16, 64))
            engine = self._engine = self._graph = self._loaded = None  # memory for one is enough
            lean = 2 * shape.pairs * chains > edges_at_once(device)
            self.prepare(shape.nodes * chains)
            engine = self._engine = Engine(
                self.model.network, self.layout, HEADS, shape, device=device, training=False, precision=self.precision, lean=lean,
                masked=masked,
            )  # fmt: skip
        if self._loaded is not weights:
            engine.load_weights(self.layout.flatten(weights))
            self._loaded = weights
        return engine

    def _evaluate(self, engine: Engine) -> None:
        """The second time the kernels are recorded, from then on replayed."""
        if engine.device.type != "cuda":
            engine.evaluate()
        elif self._graph is None:
            engine.evaluate()
            torch.cuda.synchronize(engine.device)
            self._graph = recorded(engine.evaluate)
        else:
            self._graph.replay()

    def _output(self, engine: Engine, graph: Graph, order: torch.Tensor) -> ModelOutput:
        """The engine's results in the order of the graph's atoms."""
        chains, nodes = engine.energies.shape
        place = torch.empty_like(order[0]).scatter_(0, order[0], torch.arange(nodes, device=order.device))
        energies, deviations = engine.energies[:, place], engine.deviations[:, :, place]
        structures = graph.num_structures
        virial = pair_virial(engine, self.model.config.r_max)  # [K, Q, 3, 3]
        if structures == 1:
            virial = virial.sum(1, keepdim=True)
        else:
            first = graph.structure.gather(1, order).gather(1, engine.graph.ends[..., 0].long())
            member = first[0, :, None] == torch.arange(structures, device=order.device)
            virial = torch.einsum("qb,kqij->kbij", member.double(), virial)
        last = engine.arena[:, 0, engine.last : engine.last + nodes * self.model.config.channels[0]]
        return ModelOutput(
            energy=sum_over_structures(energies.double(), graph),
            forces=engine.forces[:, place],
            stress=(virial / graph.volume[..., None, None].double()).to(engine.forces),
            log_sigma_energy=log_mean_exp(deviations[1], graph),
            log_sigma_forces=deviations[0],
            features=last.reshape(chains, nodes, -1)[:, place],
        )


def has_room(made: Shape, asked: Shape) -> bool:
    """Whether a graph fits an engine that was made for another, without much that only fills up."""
    same = (made.chains, made.groups, made.nodes) == (asked.chains, asked.groups, asked.nodes)
    return same and asked.slots <= made.slots and asked.pairs <= made.pairs <= 2 * asked.pairs


def recorded(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Work that has run once already, as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def pair_virial(engine: Engine, r_max: float) -> torch.Tensor:
    """What each pair adds to ∂E/∂strain, [K, Q, 3, 3] float64, symmetric."""
    # rows that only fill up may hold what an earlier graph left there
    pull = torch.where(engine.unit[..., 3:] < r_max, engine.pull, 0.0).double()
    outer = engine.graph.vector[..., :, None].double() * pull[..., None, :]
    return (outer + outer.transpose(2, 3)) / 2


def edges_at_once(device: torch.device | str) -> int:
    """Edges times samples for which the buffers of the paper's network fill half of the memory."""
    if torch.device(device).type != "cuda":
        return 100_000
    return int(torch.cuda.get_device_properties(device).total_memory / 2 / BYTES_PER_EDGE)


def filled_up(count: int, unit: int) -> int:
    return -(-count // unit) * unit
