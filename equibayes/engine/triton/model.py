"""Predictions on the fused kernels: what `StochasticModel.forward` computes, in a fraction of the kernels."""

from collections.abc import Callable
from dataclasses import replace

import torch

from equibayes.bayes.heads import log_mean_exp
from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.data.graph import Graph
from equibayes.engine.triton.capture import Capture
from equibayes.engine.triton.dynamics import TritonDynamics
from equibayes.engine.triton.memory import Shape, edges_at_once, padded
from equibayes.engine.triton.pairs import Pairs, pairs_of
from equibayes.engine.triton.passes import Passes, prediction_passes
from equibayes.network.nequip import sum_over_structures
from equibayes.network.weights import Weights


class TritonModel:
    """Predictions of a `StochasticModel` for K weight sets on graphs that all chains share."""

    engine = "triton"
    fused = True

    def __init__(
        self, model: StochasticModel, precision: str = "tf32x3", prepare: Callable[[int], None] = lambda rows: None
    ) -> None:
        """prepare: called with the number of atoms in all chains together before kernels are made for them."""
        self.model, self.layout, self.precision, self.prepare = model, model.layout, precision, prepare
        self._passes: Passes | None = None
        self._evaluate: Capture[None] | None = None
        self._loaded: Weights | None = None

    def edges_at_once(self, device: torch.device) -> int:
        return edges_at_once(device)

    def samples_at_once(self, device: torch.device, edges: int) -> int:
        return max(1, edges_at_once(device) // max(1, edges))

    def dynamics(self, weights: Weights, graph: Graph) -> TritonDynamics:
        return TritonDynamics(self.model, weights, graph, self.precision, self.prepare)

    def part(self, weights: Weights) -> None:
        return None

    def forward(self, weights: Weights, graph: Graph, *, feature_mask: torch.Tensor | None = None) -> ModelOutput:
        """As `StochasticModel.forward`, not differentiable."""
        if graph.species.shape[0] != 1:
            return self.model.forward(weights, graph, feature_mask=feature_mask)
        pairs = pairs_of(graph, len(self.model.config.type_names))
        passes, evaluate = self._passes_for(weights, pairs, masked=feature_mask is not None)
        passes.load_graph(pairs)
        if feature_mask is not None:
            passes.mask.copy_(feature_mask[:, pairs.order[0]])
        evaluate()
        output = self._output(passes, graph, pairs.order)
        return replace(output, couplings=self.model.couplings(weights, output.features, graph))

    def _passes_for(self, weights: Weights, pairs: Pairs, *, masked: bool) -> tuple[Passes, Capture[None]]:
        """Passes of the right size with these weights; the last ones are kept."""
        chains, device = weights["embedding"].shape[0], weights["embedding"].device
        # a little room, so that a molecule that moves keeps its buffers
        slots, rows = padded(pairs.sender.shape[2], 4), padded(pairs.vector.shape[1], 64)
        shape = Shape(chains, 1, pairs.species.shape[1], slots, rows)
        passes, evaluate = self._passes, self._evaluate
        usable = passes is not None and (passes.masked, passes.device) == (masked, device)
        if passes is None or evaluate is None or not usable or not has_room(passes.shape, shape):
            if passes is not None and passes.shape.nodes == shape.nodes:
                # the next batch of such frames may have more pairs; making new buffers takes longer than using them
                shape = replace(shape, slots=slots + 4, pairs=padded(rows + rows // 16, 64))
            passes = evaluate = self._passes = self._evaluate = self._loaded = None  # memory for one set is enough
            self.prepare(shape.nodes * chains)
            passes = self._passes = prediction_passes(self.model, shape, device, self.precision, masked=masked)
            evaluate = self._evaluate = Capture(passes.evaluate, passes.device)
        if self._loaded is not weights:
            passes.load_weights(self.layout.flatten(weights))
            self._loaded = weights
        return passes, evaluate

    def _output(self, passes: Passes, graph: Graph, order: torch.Tensor) -> ModelOutput:
        """Results in the order of the graph's atoms."""
        chains, nodes = passes.energies.shape
        place = torch.empty_like(order[0]).scatter_(0, order[0], torch.arange(nodes, device=order.device))
        energies, deviations = passes.energies[:, place], passes.deviations[:, :, place]
        structures = graph.num_structures
        virial = pair_virial(passes, self.model.config.r_max)  # [K, Q, 3, 3]
        if structures == 1:
            virial = virial.sum(1, keepdim=True)
        else:
            first = graph.structure.gather(1, order).gather(1, passes.graph.ends[..., 0].long())
            member = first[0, :, None] == torch.arange(structures, device=order.device)
            virial = torch.einsum("qb,kqij->kbij", member.double(), virial)
        last = passes.arena[:, 0, passes.last : passes.last + nodes * self.model.config.channels[0]]
        return ModelOutput(
            energy=sum_over_structures(energies.double(), graph),
            forces=passes.forces[:, place],
            stress=(virial / graph.volume[..., None, None].double()).to(passes.forces),
            log_sigma_energy=log_mean_exp(deviations[1], graph),
            log_sigma_forces=deviations[0],
            log_sigma_stress=self._log_sigma_stress(deviations, graph),
            features=last.reshape(chains, nodes, -1)[:, place],
            invariants=passes.invariants[place][None],
        )

    def _log_sigma_stress(self, deviations: torch.Tensor, graph: Graph) -> torch.Tensor:
        """[K, B] from the heads [3, K, N]; NaN where stress is not learned, or there is no volume."""
        if not self.model.learns_stress:
            return deviations.new_full((deviations.shape[1], graph.num_structures), torch.nan)
        return log_mean_exp(deviations[2], graph) - (graph.volume / graph.num_atoms).log().to(deviations)


def has_room(made: Shape, asked: Shape) -> bool:
    """Whether a graph fits buffers that were made for another one, without much padding."""
    same = (made.chains, made.groups, made.nodes) == (asked.chains, asked.groups, asked.nodes)
    return same and asked.slots <= made.slots and asked.pairs <= made.pairs <= 2 * asked.pairs


def pair_virial(passes: Passes, r_max: float) -> torch.Tensor:
    """What each pair adds to ∂E/∂strain, [K, Q, 3, 3] float64, symmetric."""
    # padding rows may hold values of an earlier graph
    pull = torch.where(passes.unit[..., 3:] < r_max, passes.pull, 0.0).double()
    outer = passes.graph.vector[..., :, None].double() * pull[..., None, :]
    return (outer + outer.transpose(2, 3)) / 2
