"""Posterior files of earlier format versions, brought to the present one: one function per version."""

from typing import Any

from equibayes.run.upgrade import CONSTANTS_SINCE_2, settings_1_to_2


def posterior_1_to_2(header: dict[str, Any]) -> None:
    """Settings that no longer exist are removed; those that the first files lack are added.

    `precision: tf32` can no longer be chosen; `mixed` uses it where it is accurate enough.
    """
    config = header["config"]
    settings_1_to_2(config)
    for name in CONSTANTS_SINCE_2:
        config.get("guard", {}).pop(name, None)
    if config.get("precision") == "tf32":
        config["precision"] = "mixed"
    header["network"].setdefault("per_type_energy_shifts_trainable", False)
