"""Constant tensors, defined once in float64 and kept ready for every device and precision they are used with.

A copy from the host inside the step would cost time on a CPU and could not be captured into a CUDA graph.
"""

import torch


class Constant:
    """A float64 tensor; `like(x)` is the same on the device and in the precision of x."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values.double()
        self._ready: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    def like(self, x: torch.Tensor) -> torch.Tensor:
        key = (x.device, x.dtype)
        if key not in self._ready:
            self._ready[key] = self.values.to(x)
        return self._ready[key]


class Index:
    """An int64 tensor; `on(device)` is the same there."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values.long()
        self._ready: dict[torch.device, torch.Tensor] = {}

    def on(self, device: torch.device) -> torch.Tensor:
        if device not in self._ready:
            self._ready[device] = self.values.to(device)
        return self._ready[device]
