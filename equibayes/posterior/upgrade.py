"""Posterior files of earlier format versions, brought to the present one: one function per version."""

from typing import Any

from equibayes.run.stationarity import EARLIER, undefined
from equibayes.run.upgrade import CONSTANTS_SINCE_2, settings_1_to_2, settings_2_to_3
from equibayes.sampling.diagnostics import MINIMUM_DRAWS, too_few_draws


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


def posterior_2_to_3(header: dict[str, Any]) -> None:
    """R-hat of fewer than 20 draws per chain is undefined, and no longer a warning; drifts were not recorded."""
    verdict = header["verdict"]
    if not verdict:
        return
    cycles = [record for record in header["history"] if record.get("phase") == "cycle"]
    draws = verdict.setdefault("draws_per_chain", sum("validation_force_mae" in record for record in cycles))
    _forget_agreement(verdict, "forces", draws)
    _forget_agreement(verdict, "log_posterior", len(cycles))
    if draws < MINIMUM_DRAWS:
        verdict["convergence_undefined_because"] = too_few_draws(draws)
        gone = ("R-hat of predicted forces is", "whether the chains agree cannot be told")
        verdict["warnings"] = [word for word in verdict.get("warnings", []) if not word.startswith(gone)]
    verdict.setdefault("stationarity", undefined(EARLIER))


def posterior_3_to_4(header: dict[str, Any]) -> None:
    """Until then stress was never learned."""
    settings_2_to_3(header["config"])
    header["network"].setdefault("stress_head", False)


def posterior_4_to_5(header: dict[str, Any]) -> None:
    """Until then novelty was not known; `equibayes calibrate` adds it."""
    header["novelty"] = None


def posterior_5_to_6(header: dict[str, Any]) -> None:
    """Until then σ had no floor, which needs the RMS force of the training frames: the network's scale, if it is one
    number.  How often a matrix mass is refreshed was a setting before any version with it was released."""
    header["config"].get("sampler", {}).pop("refresh", None)
    if header["novelty"] is not None:
        scale = header["network"].get("per_type_energy_scales")
        header["novelty"]["force_scale"] = scale if isinstance(scale, (int, float)) else 0.0


def posterior_6_to_7(header: dict[str, Any]) -> None:
    """Until then networks learned whole labels."""
    header["baseline"] = None


def _forget_agreement(verdict: dict[str, Any], what: str, draws: int) -> None:
    if draws < MINIMUM_DRAWS:
        verdict[f"r_hat_{what}"] = verdict[f"ess_{what}"] = None
