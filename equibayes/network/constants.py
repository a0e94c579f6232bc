"""Constant tensors, defined once and kept ready for every device and precision they are used with.

A copy from the host inside the step would cost time on a CPU and could not be captured into a CUDA graph.
"""

import torch


class Constant:
    """A tensor; `like(x)` is the same on the device and, unless it holds indices, in the precision of x."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values.double() if values.is_floating_point() else values.long()
        self._ready: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    def like(self, x: torch.Tensor) -> torch.Tensor:
        key = (x.device, x.dtype if self.values.is_floating_point() else self.values.dtype)
        if key not in self._ready:
            self._ready[key] = self.values.to(*key)
        return self._ready[key]
