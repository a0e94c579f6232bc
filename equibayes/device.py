"""The device that work is done on: one rule for every command and every call from Python."""

import torch

from equibayes.errors import InputError


def choose_device(wanted: torch.device | str | None = None) -> torch.device:
    """The device that is named, else a GPU if there is one; an `InputError` where the named one is not there."""
    if wanted is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise InputError(f"device {wanted}: there is no such device; use cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {wanted}: no GPU is visible to PyTorch here; use --device cpu (device='cpu')")
    return device
