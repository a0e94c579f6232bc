"""One structure whose atoms move while its list of pairs stays: from positions to results in one CUDA graph."""

from collections.abc import Callable

import numpy as np
import torch
from triton import cdiv

from equibayes.bayes.model import StochasticModel
from equibayes.data.graph import Graph
from equibayes.engine.interface import DynamicsOutput
from equibayes.engine.triton.capture import Capture
from equibayes.engine.triton.memory import Shape, padded
from equibayes.engine.triton.pack import pack
from equibayes.engine.triton.pairs import pairs_of
from equibayes.engine.triton.passes import prediction_passes
from equibayes.engine.triton.virial import SHARES
from equibayes.network.weights import Weights


class TritonDynamics:
    """Calls with new positions [n, 3] cost one upload, one replay and one download.

    A new list of pairs is loaded into the same buffers as long as it fits, and the recorded kernels stay.  Results
    depend on the list in their last bits, since pairs beyond the cutoff take part in the order of sums.
    """

    def __init__(
        self,
        model: StochasticModel,
        weights: Weights,
        graph: Graph,
        precision: str = "tf32x3",
        prepare: Callable[[int], None] = lambda rows: None,
    ) -> None:
        """graph: the first list (see `load`).  prepare: as of `TritonModel`."""
        self.model, self.device = model, graph.vector.device
        self.weights, self.precision, self.prepare = weights, precision, prepare
        filled = graph.reverse.flatten() != torch.arange(graph.reverse.numel(), device=self.device)
        nodes, slots = graph.sender.shape[1:]
        self._make(nodes, slots, max(1, int(filled.sum()) // 2))

    def _make(self, nodes: int, slots: int, pairs: int) -> None:
        """Buffers with some room for later lists."""
        chains = self.weights["embedding"].shape[0]
        shape = Shape(chains, 1, nodes, padded(slots + 2, 4), padded(int(1.1 * pairs) + 1, 64))
        self.prepare(nodes * chains)
        self.passes = prediction_passes(self.model, shape, self.device, self.precision)
        self.passes.load_weights(self.model.layout.flatten(self.weights))
        self.shift = torch.zeros(shape.pairs, 3, dtype=torch.float64, device=self.device)
        self.positions = torch.zeros(nodes, 3, dtype=torch.float64, device=self.device)
        # in pinned memory of the host, so that upload and download are part of the recorded work
        on_gpu, size = self.device.type == "cuda", 3 + 4 * nodes + 6 * SHARES
        self.asked = torch.zeros(nodes, 3, dtype=torch.float64, pin_memory=on_gpu)
        # the last number, of the stress, stays NaN where that is not learned
        self.found = torch.full((chains, size), torch.nan, dtype=torch.float64, pin_memory=on_gpu)
        self.evaluate = Capture(self._evaluate, self.device)

    @property
    def num_atoms(self) -> int:
        return self.passes.shape.nodes

    def load(self, graph: Graph, positions: np.ndarray) -> None:
        """See `Dynamics.load`."""
        pairs = pairs_of(graph, len(self.model.config.type_names))
        shape = self.passes.shape
        slots, rows = pairs.sender.shape[2], pairs.vector.shape[1]
        if slots > shape.slots or rows > shape.pairs:
            self._make(shape.nodes, slots, rows)
        self.passes.load_graph(pairs)
        self.passes.begin()
        start = torch.from_numpy(np.ascontiguousarray(positions)).to(self.device)[pairs.order[0]]
        first, second = (self.passes.graph.ends[0, :, i].long() for i in range(2))
        # the lattice translations, which stay while the atoms move
        self.shift.copy_(self.passes.graph.vector[0] - (start[second] - start[first]))

    def __call__(self, positions: np.ndarray) -> DynamicsOutput:
        self.asked.numpy()[:] = positions
        self.evaluate()
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        shape = self.passes.shape
        found = self.found.numpy().copy()
        deviations, forces, virial = np.split(found[:, 2:-1], [shape.nodes, 4 * shape.nodes], axis=1)
        return DynamicsOutput(
            energy=found[:, 0],
            log_sigma_energy=found[:, 1],
            virial=virial.reshape(-1, SHARES, 6).sum(1)[:, [[0, 3, 4], [3, 1, 5], [4, 5, 2]]],
            log_sigma_forces=deviations,
            log_sigma_virial=found[:, -1],
            forces=forces.reshape(-1, shape.nodes, 3),
        )

    def _evaluate(self) -> None:
        passes, shape = self.passes, self.passes.shape
        graph = passes.graph
        self.positions.copy_(self.asked, non_blocking=True)
        passes.move(self.positions, self.shift)
        passes.propagate()
        at_once = 128 if shape.pairs < 2048 else 1024
        pack[(shape.chains, 1 + SHARES + cdiv(shape.nodes, at_once))](
            passes.energies, passes.deviations, passes.pull, graph.pair, graph.degree, graph.vector, passes.unit, graph.order,
            self.found, shape.nodes, shape.slots, shape.pairs, shape.chains, SHARES, self.found.shape[1],
            STRESS=self.model.learns_stress, R_MAX=self.model.config.r_max, BLOCK=at_once, num_warps=4 if at_once == 128 else 8,
        )  # fmt: skip
