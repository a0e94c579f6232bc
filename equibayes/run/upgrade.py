"""Settings and checkpoints of earlier format versions, brought to the present one: one function per version."""

from typing import Any

# settings that became constants, with the value that the constant has
CONSTANTS_SINCE_2 = {"safety": 0.5, "iterations": 10}


def settings_1_to_2(config: dict[str, Any]) -> None:
    """Settings of `equibayes sample` (nested, changed in place) as of version 2.

    `guard.safety` and `guard.iterations` became constants.  A value that differs from the constant stays, so that a run
    that used it is not continued with another one.  The first files of version 1 lack two settings; they had an
    exponential decay and no trainable energy shifts.
    """
    guard = config.get("guard", {})
    for name, value in CONSTANTS_SINCE_2.items():
        if guard.get(name) == value:
            del guard[name]
    # a posterior that was not sampled from settings has none of these sections
    config.get("burn_in", {}).setdefault("decay", "exponential")
    config.get("network", {}).setdefault("per_type_energy_shifts_trainable", False)


def settings_2_to_3(config: dict[str, Any]) -> None:
    """Until version 3 stress was never learned.  `sampler.refresh`, in some files, has no effect on a diagonal mass."""
    config.get("sampler", {}).pop("refresh", None)
    config.get("network", {}).setdefault("stress_head", False)


def checkpoint_1_to_2(header: dict[str, Any]) -> None:
    """The header of a checkpoint: the settings that identify its run."""
    settings_1_to_2(header["record"]["about"].get("config", {}))


def checkpoint_2_to_3(header: dict[str, Any]) -> None:
    """Likewise."""
    settings_2_to_3(header["record"]["about"].get("config", {}))
