"""Checks of the history of a run and of what was made of it, as read from a file."""

from typing import Any

from equibayes import expect
from equibayes.errors import InputError

PER_CHAIN = (
    "learning_rate",
    "log_posterior",
    "force_mae",
    "force_sigma",
    "kinetic_temperature",
    "temperature_rise_bound",
    "failed",
    "validation_force_mae",
    "validation_force_sigma",
    "validation_log_likelihood",
    "validation_force_unlearned",
    "validation_energy_mae",
    "validation_energy_unlearned",
    "validation_stress_mae",
    "validation_stress_unlearned",
    "fixed_potential",
)
"""Lists with one number, or none, per chain."""
NEEDED = ("log_posterior", "kinetic_temperature", "temperature_rise_bound")
"""What the verdict on a run is made of."""
NUMBERS = (
    "r_hat_forces",
    "ess_forces",
    "r_hat_log_posterior",
    "ess_log_posterior",
    "kinetic_temperature",
    "temperature_rise_bound",
    "validation_energy_mae",
    "validation_energy_unlearned",
    "validation_stress_mae",
    "validation_stress_unlearned",
)
"""Of the verdict: a number or none."""


def check_history(history: Any, chains: int | None = None) -> None:
    """An `InputError` for a history that no run leaves.

    chains  of a run that goes on: every list has one entry for each, and nothing is missing for the verdict
    """
    for n, record in enumerate(expect.items(history, "history")):
        name = f"history.{n}"
        expect.plain(record, name)
        expect.whole(expect.section(record, name).get("step"), f"{name}.step")
        expect.text(record.get("phase", ""), f"{name}.phase")
        for key in ("temperature", "validation_force_mae_of_mean"):
            _number_or_none(record.get(key), f"{name}.{key}")
        if "fixed_potential" in record:
            _check_end_of_cycle(record, name, chains)
        for key in PER_CHAIN:
            _check_list(record.get(key, []), f"{name}.{key}", chains if key in record or key in NEEDED else None)
        _check_probes(record.get("probes", []), f"{name}.probes", chains if "probes" in record else None)
        if chains is not None and "phase" not in record:
            raise InputError(f"{name}.phase is missing")


def check_verdict(verdict: Any) -> None:
    """An `InputError` for a verdict that no run leaves."""
    expect.plain(expect.section(verdict, "verdict"), "verdict")
    for key in NUMBERS:
        _number_or_none(verdict.get(key), f"verdict.{key}")
    for key in ("warnings", "events"):
        expect.texts(verdict.get(key, []), f"verdict.{key}")
    expect.whole(verdict.get("draws_per_chain", 0), "verdict.draws_per_chain")
    expect.items(verdict.get("failed_chains", []), "verdict.failed_chains")
    _check_stationarity(verdict.get("stationarity"), "verdict.stationarity")
    if verdict.get("r_hat_forces") is not None:
        expect.number(verdict.get("ess_forces"), "verdict.ess_forces")


def _check_end_of_cycle(record: dict[str, Any], name: str, chains: int | None) -> None:
    for key in ("fixed_scatter", "potential_scatter"):
        expect.number(record.get(key), f"{name}.{key}", 0.0)
    sizes = expect.section(record.get("weights_in_group"), f"{name}.weights_in_group")
    squares = expect.section(record.get("weights_by_group"), f"{name}.weights_by_group")
    for group, size in sizes.items():
        expect.whole(size, f"{name}.weights_in_group.{group}", 1)
        _check_list(squares.get(group), f"{name}.weights_by_group.{group}", chains)


def _check_stationarity(found: Any, name: str) -> None:
    """What the sentence about it is made of."""
    if found is None or expect.section(found, name).get("moving") is None:
        return
    expect.texts(found["moving"], f"{name}.moving")
    for key in ("potential_drift", "potential_drift_error"):
        expect.number(found.get(key), f"{name}.{key}")
    expect.number(found.get("potential_scatter"), f"{name}.potential_scatter", 1e-12)
    if not {*found["moving"]} <= {"potential", "weights", "forces"}:
        raise InputError(f"{name}.moving names what is not known")


def _check_list(value: Any, name: str, chains: int | None) -> None:
    if value is None and chains is None:
        return  # of a finished run: was not measured at this step
    for each in expect.items(value, name):
        if not isinstance(each, bool):
            _number_or_none(each, name)
    if chains is not None and len(value) != chains:
        raise InputError(f"{name} has {len(value)} entries for {chains} chains")


def _check_probes(value: Any, name: str, chains: int | None) -> None:
    if value is None and chains is None:
        return
    for row in expect.items(value, name):
        _check_list(expect.items(row, name), name, None)
    if chains is not None and len(value) != chains:
        raise InputError(f"{name} has {len(value)} entries for {chains} chains")
    if len({len(row) for row in value}) > 1:
        raise InputError(f"{name} has rows of different lengths")


def _number_or_none(value: Any, name: str) -> None:
    if value is not None:
        expect.number(value, name)
