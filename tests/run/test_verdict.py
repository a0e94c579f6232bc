"""The verdict on a run: numbers from its history, and words where they are bad."""

from typing import Any

import numpy as np
import pytest
import torch

from equibayes.run.state import RunState
from equibayes.run.verdict import judge
from tests.runs import small_config

CHAINS, DRAWS = 4, 40


def history(
    *, offset: float = 0.0, drift: float = 0.0, kinetic: float = 1.0, rise: float = 0.01, draws: int = DRAWS
) -> list[dict[str, Any]]:
    """Records of a burn-in (bad in every way; it must not count) and of cycles: independent draws of 3 forces and of ln
    p.

    offset: how far the chains lie apart, drift: how far they move, both in standard deviations.
    """
    rng = np.random.default_rng(0)
    burn_in = [record("burn_in", rng.normal(size=(CHAINS, 3)) * 1e3, rng.normal(size=CHAINS) * 1e3, 50.0, 9.0)] * 20
    apart = offset * np.arange(CHAINS)[:, None]
    moves = drift * np.linspace(0, 1, draws)
    cycles = [
        record("cycle", rng.normal(size=(CHAINS, 3)) + apart + move, rng.normal(size=CHAINS), kinetic, rise)
        for move in moves
    ]
    return burn_in + cycles


def record(phase: str, probes: np.ndarray, posterior: np.ndarray, kinetic: float, rise: float) -> dict[str, Any]:
    return {
        "phase": phase,
        "probes": probes.tolist(),
        "log_posterior": posterior.tolist(),
        "kinetic_temperature": [kinetic] * CHAINS,
        "temperature_rise_bound": [rise] * CHAINS,
    }


def verdict(records: list[dict[str, Any]], failed: tuple[int, ...] = (), **sampler: Any) -> dict[str, Any]:
    state = RunState.start(torch.zeros(CHAINS, 5))
    state.history = records
    for chain in failed:
        state.failed[chain] = True
    return judge(state, small_config({"chains": CHAINS, "samples": 8, "sampler": sampler}))


def test_forces_that_were_not_learned() -> None:
    """One chain far out is named, when it was last seen; not one that was given up."""

    def looked(*errors: float | None) -> dict[str, Any]:
        return {
            **history()[-1],
            "validation_force_mae": list(errors),
            "validation_force_unlearned": [0.9] * CHAINS,
        }

    good, bad = looked(0.1, 0.2, 0.1, 0.4), looked(0.1, 330.0, 0.1, None)
    assert verdict([*history(), bad, good])["warnings"] == []
    found = verdict([*history(), good, bad])
    assert found["chains_without_forces"] == [1, 3]
    (warning,) = found["warnings"]
    assert warning.startswith("forces of chains [1, 3] are not learned")
    assert verdict([*history(), good, bad], failed=(1, 3))["chains_without_forces"] == []
    assert verdict(history())["chains_without_forces"] == []


def test_energies_that_were_not_learned() -> None:
    """A network that knows less of energies than the elements do; the last look counts, and a chain that was given up
    does not."""

    def looked(*errors: float) -> dict[str, Any]:
        return {
            **history()[-1],
            "validation_energy_mae": list(errors),
            "validation_energy_unlearned": [0.5] * CHAINS,
        }

    good, bad = looked(0.1, 0.2, 0.1, 0.4), looked(30.0, 40.0, 50.0, 0.1)
    assert verdict([*history(), bad, good])["warnings"] == []
    assert verdict([*history(), bad, good])["chains_without_energies"] == []
    found = verdict([*history(), good, bad], failed=(3,))
    assert (found["validation_energy_mae"], found["validation_energy_unlearned"]) == (40.0, 0.5)
    (warning,) = (word for word in found["warnings"] if "energies" in word)
    assert warning.startswith(
        "energies are not learned: their error on held-back frames is 40 eV, that of the energy reference"
    )
    assert warning.endswith("raise burn_in.steps, or set network.per_type_energy_shifts_trainable=true")
    assert verdict(history())["validation_energy_mae"] is None
    assert verdict(history())["chains_without_energies"] == []

    # one chain is enough to spoil the mean of all (as happened with one of eight on benzene)
    found = verdict([*history(), looked(0.1, 0.2, 4.7, 0.1)])
    assert found["chains_without_energies"] == [2]
    (warning,) = found["warnings"]
    assert warning.startswith("energies of chains [2] are not learned and spoil the mean over chains")
    assert verdict([*history(), looked(0.1, 0.2, 4.7, 0.1)], failed=(2,))["chains_without_energies"] == []


def test_lost_chains_are_not_called_diverged() -> None:
    """A worker that failed for good says nothing about its chains' learning rate."""
    state = RunState.start(torch.zeros(CHAINS, 5))
    state.history, state.lost = history(), {1: "its node is gone", 3: "its node is gone"}
    found = judge(state, small_config())
    assert found["failed_chains"] == []
    assert found["lost_chains"] == {"1": "its node is gone", "3": "its node is gone"}
    assert found["warnings"] == ["chains [1, 3] gave no samples: its node is gone"]


def test_good_chains_have_no_warnings() -> None:
    found = verdict(history())
    assert found["warnings"] == []
    assert 0.98 < found["r_hat_forces"] < 1.05
    assert 60 < found["ess_forces"] < 300, "160 independent draws; the smallest of three estimates"
    assert found["kinetic_temperature"] == 1.0
    assert found["temperature_rise_bound"] == 0.01
    assert found["convergence_undefined_because"] is None


@pytest.mark.parametrize("bad", [{"offset": 2.0}, {"drift": 6.0}])
def test_chains_that_stay_apart_or_drift(bad: dict[str, float]) -> None:
    found = verdict(history(**bad))
    assert found["r_hat_forces"] > 1.2
    assert found["r_hat_log_posterior"] < 1.05
    (words,) = found["warnings"]
    assert words.startswith(f"R-hat of predicted forces is {found['r_hat_forces']:.2f} (1 means agreement)")
    assert "Longer cycles bring them together" in words


def test_the_limit_of_r_hat_is_1_1() -> None:
    """As docs/diagnostics.md says; 40 draws per chain are enough to judge."""
    below, above = verdict(history(offset=0.275)), verdict(history(offset=0.285))
    assert 1.09 < below["r_hat_forces"] < 1.1 < above["r_hat_forces"] < 1.11
    assert below["warnings"] == []
    (words,) = above["warnings"]
    assert words.startswith("R-hat of predicted forces is 1.10")


def test_limits_of_temperatures_are_a_tenth() -> None:
    for good, bad in ((1.095, 1.105), (0.905, 0.895)):
        assert verdict(history(kinetic=good))["warnings"] == []
        assert len(verdict(history(kinetic=bad))["warnings"]) == 1
    assert verdict(history(rise=0.095))["warnings"] == []
    assert len(verdict(history(rise=0.105))["warnings"]) == 1


@pytest.mark.parametrize(("kinetic", "shown"), [(1.3, "1.30"), (0.8, "0.80")])
def test_wrong_temperature(kinetic: float, shown: str) -> None:
    (words,) = verdict(history(kinetic=kinetic))["warnings"]
    assert words == f"the kinetic temperature is {shown} instead of 1: lower cycles.peak or raise cycles.batch_size"
    assert verdict(history(kinetic=0.5), temperature=0.5)["warnings"] == []
    (cold,) = verdict(history(kinetic=0.0118), temperature=0.01)["warnings"]
    assert cold.startswith("the kinetic temperature is 0.012 instead of 0.01")
    assert verdict(history(kinetic=kinetic), temperature=0.0)["warnings"] == [], "an optimiser has no temperature"


def test_heating_by_minibatches() -> None:
    (words,) = verdict(history(rise=0.4))["warnings"]
    assert words.startswith("minibatch noise may heat the chains by up to 0.40 at the peak of a cycle")
    assert "raise cycles.batch_size" in words


def test_few_draws_leave_agreement_undefined() -> None:
    """A reason, and no warning: R-hat of 19 draws says nothing about the chains."""
    found = verdict(history(draws=19, offset=2.0))
    assert found["draws_per_chain"] == 19
    for name in ("r_hat_forces", "ess_forces", "r_hat_log_posterior", "ess_log_posterior"):
        assert found[name] is None
    reason = "19 draws per chain are too few for R-hat and ESS: at least 20 are needed"
    assert found["convergence_undefined_because"] == reason
    assert found["warnings"] == []


def test_a_drift_is_a_warning() -> None:
    ends = [
        {
            **entry,
            "fixed_potential": [1e4 - 100 * c] * CHAINS,
            "fixed_scatter": 20.0,
            "potential_scatter": 10.0,
            "weights_by_group": {},
            "weights_in_group": {},
        }
        for c, entry in enumerate(history(draws=3)[-3:])
    ]
    found = verdict(ends)
    assert found["stationarity"]["moving"] == ["potential"]
    (words,) = found["warnings"]
    assert words == (
        "u falls by 100 nats per cycle, 10 times its equilibrium scatter: the chains are still descending; "
        "raise burn_in.steps, or take more cycles (--samples)"
    )
    assert verdict(ends, temperature=0.0)["warnings"] == []


def test_without_cycles_or_validation() -> None:
    """One sample a chain, nothing held back: the last record gives the temperature."""
    records = history(draws=0)
    records[-1] = {
        name: value
        for name, value in record("burn_in", np.zeros((4, 3)), np.zeros(4), 1.01, 0.0).items()
        if name != "probes"
    }
    found = verdict(records)
    assert found["kinetic_temperature"] == 1.01
    assert found["temperature_rise_bound"] == 0.0
    assert found["convergence_undefined_because"].startswith("0 draws per chain are too few")
    assert found["warnings"] == []
    unwatched = [{name: value for name, value in entry.items() if name != "probes"} for entry in history()]
    assert verdict(unwatched)["convergence_undefined_because"] == "no held-back frames were evaluated in the cycles"


def test_failed_chains_do_not_count() -> None:
    records = history()
    for entry in records:
        entry["probes"] = [*entry["probes"][:3], [None] * 3]
        for name in ("log_posterior", "kinetic_temperature", "temperature_rise_bound"):
            entry[name] = [*entry[name][:3], None]
    found = verdict(records, failed=(3,))
    assert found["failed_chains"] == [3]
    assert found["r_hat_forces"] < 1.05
    assert found["warnings"] == ["chains [3] diverged and gave no samples; lower burn_in.initial or cycles.peak"]


def test_gaps_in_the_records_of_good_chains() -> None:
    """A rollback leaves a record without a potential (it was NaN): the others still count."""
    records = history()
    records[-5]["log_posterior"][1] = None
    records[-5]["kinetic_temperature"][1] = None
    records[-5]["temperature_rise_bound"][1] = None
    found = verdict(records)
    assert found["kinetic_temperature"] == 1.0
    assert found["r_hat_forces"] < 1.05
    assert found["r_hat_log_posterior"] is not None
