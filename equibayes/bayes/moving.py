"""One structure whose atoms move while its list of pairs stays: the evaluation from positions to results as one CUDA graph."""

from dataclasses import dataclass

import numpy as np
import torch

from equibayes.bayes.fused import HEADS, _roomy, edges_at_once, pair_virial, recorded
from equibayes.bayes.model import StochasticModel
from equibayes.data.graph import Graph
from equibayes.network.triton.engine import Engine, Shape, Tuning
from equibayes.network.triton.pairs import pairs_of
from equibayes.network.weights import Weights


@dataclass(frozen=True)
class Moment:
    """What k samples say of one structure; float64 on the host.

    energy [k] eV, forces [k, n, 3] eV/Å, virial [k, 3, 3] eV, log_sigma_energy [k], log_sigma_forces [k, n]
    """

    energy: np.ndarray
    forces: np.ndarray
    virial: np.ndarray
    log_sigma_energy: np.ndarray
    log_sigma_forces: np.ndarray


class MovingModel:
    """Calls with new positions [n, 3] cost one upload, one replay and one download.

    Neighbours are summed one after the other, so pairs of the list that are beyond the cutoff add exact zeros: results do not depend on
    when the list was made (the virial to rounding).
    """

    def __init__(
        self, model: StochasticModel, weights: Weights, graph: Graph, positions: np.ndarray, precision: str = "tf32x3"
    ) -> None:
        """graph: one structure at `positions` with all pairs within the cutoff and a skin, in float64 on the device."""
        pairs = pairs_of(graph, len(model.config.type_names))
        self.model, self.device = model, graph.vector.device
        chains, nodes = weights["embedding"].shape[0], pairs.species.shape[1]
        rows = _roomy(pairs.vector.shape[1], 64)
        shape = Shape(chains, 1, nodes, pairs.sender.shape[2], rows)
        lean = 2 * rows * chains > edges_at_once(self.device)
        self.engine = Engine(
            model.network, model.layout, HEADS, shape, device=self.device, training=False, precision=precision,
            tuning=Tuning.sequential(precision, nodes * chains), lean=lean,
        )  # fmt: skip
        self.engine.load_weights(model.layout.flatten(weights))
        self.engine.load_graph(pairs)
        self.order = pairs.order[0]
        self.place = torch.empty_like(self.order).scatter_(0, self.order, torch.arange(nodes, device=self.device))
        self.first, self.second = (self.engine.graph.ends[0, :, i].long() for i in range(2))
        start = torch.from_numpy(positions).to(self.device)[self.order]
        self.shift = self.engine.graph.vector[0] - (start[self.second] - start[self.first])
        self.positions = torch.zeros(nodes, 3, dtype=torch.float64, device=self.device)
        self.sizes = [chains, chains * nodes * 3, chains * 9, chains, chains * nodes]
        self.results = torch.zeros(sum(self.sizes), dtype=torch.float64, device=self.device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, positions: np.ndarray) -> Moment:
        self.positions.copy_(torch.from_numpy(np.ascontiguousarray(positions)))
        if self.graph is not None:
            self.graph.replay()
        else:
            self._evaluate()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
                self.graph = recorded(self._evaluate)
        shape = self.engine.shape
        parts = np.split(self.results.cpu().numpy(), np.cumsum(self.sizes)[:-1])
        shapes = [(-1,), (shape.chains, shape.nodes, 3), (shape.chains, 3, 3), (-1,), (shape.chains, shape.nodes)]
        return Moment(*(part.reshape(shape) for part, shape in zip(parts, shapes)))

    def _evaluate(self) -> None:
        engine, place = self.engine, self.place
        moved = self.positions[self.order]
        engine.graph.vector[0].copy_(moved[self.second] - moved[self.first] + self.shift)
        engine.evaluate()
        per_atom = engine.deviations[1].double()
        results = [
            engine.energies.double().sum(1),
            engine.forces[:, place],
            pair_virial(engine, self.model.config.r_max).sum(1),
            torch.logsumexp(per_atom, 1) - float(np.log(per_atom.shape[1])),
            engine.deviations[0][:, place],
        ]
        torch.cat([result.double().reshape(-1) for result in results], out=self.results)
