"""The potential as one CUDA graph: captured once, replayed without launching its thousands of kernels from Python.

Shapes never change during a phase of a run, so the minibatch gather, the forward pass, the forces and the second backward pass are
recorded together; a call copies weights and frame numbers in and replays.
"""

import torch

from equibayes.bayes.potential import Evaluation, Potential

# runs before the capture, so that libraries have set themselves up
WARM_UP = 3


class GraphedPotential:
    """Behaves as the `Potential` it is made from, on a CUDA device."""

    def __init__(self, potential: Potential) -> None:
        self.potential = potential
        self._captured: dict[tuple[torch.Size, ...], _Capture] = {}

    def __call__(
        self, position: torch.Tensor, indices: torch.Tensor, feature_mask: torch.Tensor | None = None
    ) -> Evaluation:
        inputs = [position, indices] if feature_mask is None else [position, indices, feature_mask]
        key = tuple(tensor.shape for tensor in inputs)
        if key not in self._captured:
            self._captured[key] = _Capture(self.potential, inputs)
        return self._captured[key](inputs)


class _Capture:
    """The graph for one set of shapes: static inputs, static results."""

    def __init__(self, potential: Potential, inputs: list[torch.Tensor]) -> None:
        self.inputs = [tensor.detach().clone() for tensor in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                potential(*self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = potential(*self.inputs)

    def __call__(self, inputs: list[torch.Tensor]) -> Evaluation:
        for static, given in zip(self.inputs, inputs):
            static.copy_(given)
        self.graph.replay()
        # copies, because the next replay overwrites the results in place
        return Evaluation(*(getattr(self.result, name).clone() for name in Evaluation.__dataclass_fields__))
