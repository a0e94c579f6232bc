"""What a checkpoint of `nequip-train` holds: the settings of its model and the weights that nequip evaluates with.

Nothing in the file is executed: torch's restricted unpickler reads tensors and plain containers only, which is all
that nequip writes (checked with version 0.19).

Which weights are the model?  With `EMALightningModule` the file holds two sets: those of the last training step under
their names, and their exponential moving average as a list `ema.ema_weight_0, 1, …` in the order of
`model.parameters()`.  nequip evaluates, compiles and packages the average, so the average is what we read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from equibayes.errors import InputError

# parameters that nequip trains only when the setting says so; otherwise they are constants and not part of the average
TRAINABLE_IF = {
    "bessel_encode.bessel_weights": "bessel_trainable",
    "per_type_energy_scale_shift.scales": "per_type_energy_scales_trainable",
    "per_type_energy_scale_shift.shifts": "per_type_energy_shifts_trainable",
}


def read_checkpoint(path: str | Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Settings of the model and its state dict, moving averages in the place of the last weights."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as cause:  # torch raises nearly any exception for damaged files
        reason = (str(cause) or type(cause).__name__).splitlines()[0]
        raise InputError(
            f"{path}: not a readable NequIP checkpoint ({reason}); load it with nequip and use convert_official"
        ) from cause
    try:
        settings = dict(checkpoint["hyper_parameters"]["model"])
        state = {str(key): value for key, value in checkpoint["state_dict"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise InputError(f"{path}: not a NequIP checkpoint (no model settings or no state_dict in it)") from None
    if "schedulefree_optimizer_state_dict" in checkpoint:
        raise InputError(
            f"{path}: trained by a schedule-free optimizer, whose evaluation weights only nequip can restore; load it "
            "with nequip.model.ModelFromCheckpoint and use convert_official"
        )
    return settings, with_averages(settings, state, str(path))


def with_averages(settings: Mapping[str, Any], state: dict[str, Any], source: str) -> dict[str, torch.Tensor]:
    """The model's entries of a state dict; where a moving average was kept, it replaces the weights."""
    model = {key: value for key, value in state.items() if key.startswith("model.") and torch.is_tensor(value)}
    averages = [state[f"ema.ema_weight_{i}"] for i in range(sum(key.startswith("ema.ema_weight_") for key in state))]
    if not averages:
        return model
    if not state.get("ema._extra_state", {}).get("is_holding_ema_weights", True):
        raise InputError(f"{source}: saved while weights and moving averages were exchanged; use another checkpoint")
    names = [key for key, value in model.items() if value.numel() and _is_trained(key, settings)]
    if [model[name].shape for name in names] != [average.shape for average in averages]:
        remedy = "load it with nequip and use convert_official"
        raise InputError(f"{source}: moving averages do not fit the weights; {remedy}")
    return {**model, **dict(zip(names, averages))}


def _is_trained(key: str, settings: Mapping[str, Any]) -> bool:
    for ending, setting in TRAINABLE_IF.items():
        if key.endswith(ending):
            return bool(settings.get(setting, False))
    return key.endswith(".weight")
