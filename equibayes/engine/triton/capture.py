"""Work on a GPU recorded as one CUDA graph and replayed, without launching its many kernels from Python each time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from equibayes.bayes.potential import Evaluation, Potential

Result = TypeVar("Result")


@dataclass
class Capture(Generic[Result]):
    """Work on tensors that stay in place, recorded when it is first called; without a GPU it simply runs.

    The result of a call lies in tensors that the next call overwrites.
    """

    work: Callable[[], Result]
    device: torch.device
    warm_up: int = 1  # runs before the recording, in which libraries set themselves up
    changing: Sequence[
        torch.Tensor
    ] = ()  # tensors that the work reads and changes; the warm-up leaves them as they were

    def __post_init__(self) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Result | None = None

    def __call__(self) -> Result:
        if self.device.type != "cuda":
            return self.work()
        graph = self._graph or self._record()
        graph.replay()
        return self._result  # type: ignore[return-value]

    def _record(self) -> torch.cuda.CUDAGraph:
        saved = [tensor.clone() for tensor in self.changing]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(self.warm_up):
                self.work()
                for tensor, value in zip(self.changing, saved):
                    tensor.copy_(value)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._result = self.work()
        return self._graph


class CapturedPotential:
    """A `Potential` (the reference) on a CUDA device, recorded as one graph for each set of shapes."""

    def __init__(self, potential: Potential) -> None:
        self.potential = potential
        self._known: dict[tuple[object, ...], tuple[list[torch.Tensor], Capture[Evaluation]]] = {}

    def __call__(
        self,
        position: torch.Tensor,
        indices: torch.Tensor,
        feature_mask: torch.Tensor | None = None,
        balance: float = 0.0,
    ) -> Evaluation:
        given = [position, indices] if feature_mask is None else [position, indices, feature_mask]
        key = (balance, *(tensor.shape for tensor in given))
        if key not in self._known:
            inputs = [tensor.detach().clone() for tensor in given]
            mask = None if feature_mask is None else inputs[2]
            work = Capture(lambda: self.potential(inputs[0], inputs[1], mask, balance), position.device, warm_up=3)
            self._known[key] = inputs, work
        inputs, work = self._known[key]
        for static, tensor in zip(inputs, given):
            static.copy_(tensor)
        result = work()
        # copies, because the next replay overwrites the results in place
        return Evaluation(*(getattr(result, name).clone() for name in Evaluation.__dataclass_fields__))
