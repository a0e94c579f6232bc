"""Whether the Triton kernels can be used here, for this network."""

import importlib.util

import torch

from equibayes.network.config import NetworkConfig

# radial networks wider than this do not fit the registers of a program
WIDEST_RADIAL = 128


def why_not(config: NetworkConfig, device: torch.device | str, dtype: torch.dtype) -> str | None:
    """The reason why the reference must be used, or None."""
    if torch.device(device).type != "cuda":
        return "there is no GPU"
    if importlib.util.find_spec("triton") is None:
        return "the triton package is missing (pip install equibayes[gpu])"
    if dtype != torch.float32:
        return "they work in float32 only"
    sizes = [*config.channels, config.embedding_channels, config.radial_mlp_width]
    if any(size % 16 for size in sizes):
        return "numbers of features and radial_mlp_width must be multiples of 16"
    if config.radial_mlp_width > WIDEST_RADIAL:
        return f"radial_mlp_width is larger than {WIDEST_RADIAL}"
    return None
