"""Whether the C++ engine can be used here, for this network."""

import torch

from equibayes.engine.native.compile import why_no_compiler
from equibayes.network.config import NetworkConfig


def why_not(config: NetworkConfig, device: torch.device | str, dtype: torch.dtype) -> str | None:
    """The reason why the reference must be used, or None."""
    if torch.device(device).type != "cpu":
        return "it is for CPUs"
    if dtype != torch.float32 or config.model_dtype != "float32":
        return "it works in float32 only"
    return why_no_compiler()
