"""What a SevenNet checkpoint holds: settings and weights.

Nothing in the file is executed: torch's restricted unpickler reads tensors, plain containers and numpy arrays of
numbers, which is all that SevenNet writes (checked with versions 0.9 to 0.13).
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.errors import InputError

State = dict[str, torch.Tensor]
RENAMED = {
    "EdgeEmbedding": "edge_embedding",
    "reducing nn input to hidden": "reduce_input_to_hidden",
    "reducing nn hidden to energy": "reduce_hidden_to_energy",
    "rescale atomic energy": "rescale_atomic_energy",
    "denumerator": "denominator",
}
"""Parts of names in files older than 0.10."""


def read_sevennet(path: str | Path) -> tuple[dict[str, Any], State]:
    """Settings and state dict of a checkpoint; nothing in the file is executed."""
    reconstruct, scalar = np.zeros(0).__reduce__()[0], np.float64(0).__reduce__()[0]  # private functions of numpy
    allowed: list[Any] = [np.ndarray, np.dtype, *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8"))]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        allowed += [(reconstruct, f"{module}._reconstruct"), (scalar, f"{module}.scalar")]
    try:
        with torch.serialization.safe_globals(allowed):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as cause:  # torch raises nearly any exception for damaged files
        reason = (str(cause) or type(cause).__name__).splitlines()[0]
        raise InputError(f"{path}: not a readable SevenNet checkpoint ({reason})") from cause
    try:
        settings = dict(checkpoint["config"])
        state = {_renamed(str(key)): value.double() for key, value in checkpoint["model_state_dict"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise InputError(f"{path}: not a SevenNet checkpoint (no config or no model_state_dict in it)") from None
    return settings, state


def _renamed(key: str) -> str:
    for old, new in RENAMED.items():
        key = key.replace(old, new)
    return re.sub(r"^(\d+) (\w+) (\w+) ?(\w*)", lambda m: "_".join(part for part in m.groups() if part), key)
