"""Chains in equilibrium are left in peace, drifting chains are found, and what is recorded can be computed again."""

from typing import Any

import numpy as np
import pytest
import torch

from equibayes.run.cluster.shards import Shard, ShardedPotential
from equibayes.run.stationarity import EARLIER, at_the_end, fixed_scatter, samples_are, sentence, stationarity
from tests.runs import ethanol_frames, runner_of, small_config

CHAINS, P = 4, 43_800


def history(drift: float = 0.0, swelling: float = 0.0, growing: float = 0.0, ends: int = 4) -> list[dict[str, Any]]:
    """Ends of cycles of independent draws in equilibrium, plus a drift of u (in its scatter), of |θ|²/d and of the
    change of forces."""
    rng, scatter = np.random.default_rng(0), fixed_scatter(P, 400, 400, 1.0)
    assert scatter == pytest.approx(148, abs=0.1)
    return [
        {
            "phase": "cycle",
            "fixed_potential": (1e5 + scatter * (drift * c + rng.normal(size=CHAINS))).tolist(),
            "fixed_scatter": scatter,
            "potential_scatter": scatter,
            "weights_by_group": {"layer0": (1 + swelling * c + np.sqrt(2e-4) * rng.normal(size=CHAINS)).tolist()},
            "weights_in_group": {"layer0": 10_000},
            "probes": (np.exp(growing * c) * rng.normal(size=(CHAINS, 16))).tolist(),
        }
        for c in range(ends)
    ]


def test_equilibrium_and_each_way_to_miss_it() -> None:
    good = list(range(CHAINS))
    calm = stationarity(history(), good)
    assert (calm["moving"], calm["draws_per_chain"], calm["undefined_because"]) == ([], 4, None)
    assert calm["weights_by_group"]["layer0"]["last"] == pytest.approx(1, abs=0.03)
    assert sentence(calm).endswith("in equilibrium): no drift seen")
    assert samples_are(calm) == "samples: draws around the solution of each chain"
    falling = stationarity(history(drift=-630 / 148), good)
    assert falling["moving"] == ["potential"]
    assert falling["potential_drift"] == pytest.approx(-630, abs=3 * falling["potential_drift_error"])
    assert "times its equilibrium scatter: the chains are still descending" in sentence(falling)
    assert "on their way to the posterior" in samples_are(falling)
    assert "the chains are still heating up" in sentence(stationarity(history(drift=4), good))
    assert stationarity(history(swelling=0.2), good)["moving"] == ["weights"]
    assert stationarity(history(growing=3.0, ends=8), good)["moving"] == ["forces"]
    assert "the change of predicted forces" in sentence(stationarity(history(growing=3.0, ends=8), good))


def test_four_chains_that_still_descend() -> None:
    """u of four chains of the network `small` on ethanol, after a burn-in of 5082 steps with a diagonal mass."""
    ends = [
        [18921.21, 17164.89, 19712.14, 18264.06],
        [17926.73, 15979.53, 18562.25, 17290.9],
        [16987.87, 15166.2, 17774.64, 16560.34],
        [16352.7, 14667.23, 17077.97, 15910.22],
    ]
    common = {"phase": "cycle", "fixed_scatter": fixed_scatter(44_042, 970, 256, 1.0)}
    common |= {
        "potential_scatter": fixed_scatter(44_042, 970, 970, 1.0),
        "weights_by_group": {},
        "weights_in_group": {},
    }
    found = stationarity([{**common, "fixed_potential": u} for u in ends], list(range(CHAINS)))
    assert found["moving"] == ["potential"]
    assert sentence(found) == (
        "u falls by 836 nats per cycle, 5.6 times its equilibrium scatter: the chains are still descending"
    )
    assert -found["potential_drift"] > 9 * found["potential_drift_error"]


def test_what_cannot_be_told() -> None:
    good = list(range(CHAINS))
    for records, temperature, why in (
        (history(ends=2), 1.0, "2 of at least 3 draws per chain; raise samples"),
        (history(), 0.0, "at temperature 0 there is no equilibrium"),
        ([{"phase": "cycle", "probes": []}], 1.0, EARLIER),
        ([], 1.0, "0 of at least 3 draws per chain; raise samples"),
    ):
        found = stationarity(records, good, temperature)
        assert found["undefined_because"] == why
        assert found["moving"] is None
        assert found["potential_drift"] is None
        assert sentence(found).endswith(f"cannot be told: {why}")
        assert "not shown to be draws from the posterior" in samples_are(found)
    assert stationarity(history(), [])["undefined_because"] == "no chain is left"


def test_a_gap_is_left_out() -> None:
    records = history(ends=5)
    records[1]["fixed_potential"][2] = None
    assert stationarity(records, [0, 1, 2, 3])["draws_per_chain"] == 4
    assert stationarity(records, [0, 1, 3])["draws_per_chain"] == 5


def test_what_is_recorded() -> None:
    """û of all training frames where they are few; the squares of the weights by group."""
    trial = runner_of(ethanol_frames(), small_config())
    position = trial.chains.start
    found = at_the_end(trial.potential, position, trial.chains.fixed_frames, 1.0)
    whole = trial.potential(position, torch.arange(16)[None])
    assert found["fixed_potential"] == pytest.approx(whole.potential.tolist(), rel=1e-5)
    cold = at_the_end(trial.potential, position, trial.chains.fixed_frames, 0.1)
    without = whole.potential - 0.9 * trial.potential.prior.neg_log_density(position).double()
    assert cold["fixed_potential"] == pytest.approx(without.tolist(), rel=1e-5), "the prior is tempered with T"
    assert found["fixed_scatter"] == pytest.approx(np.sqrt(position.shape[1] / 2), rel=1e-4)
    groups = trial.potential.model.layout.groups
    assert found["weights_in_group"] == {name: part.stop - part.start for name, part in groups.items()}
    layer = position[:, groups["layer1"]].square().mean(1)
    assert found["weights_by_group"]["layer1"] == pytest.approx(layer.tolist(), rel=1e-5)


def test_a_subset_estimates_the_sum_and_its_own_scatter() -> None:
    """Of 16 of 64 independent frames: T²(P/2 + 3P)."""
    assert fixed_scatter(1000, 64, 16, 2.0) == pytest.approx(2 * np.sqrt(3500))
    trial = runner_of(ethanol_frames(), small_config())
    halves = [at_the_end(trial.potential, trial.chains.start, torch.arange(i, 16, 2), 1.0) for i in (0, 1)]
    whole = at_the_end(trial.potential, trial.chains.start, torch.arange(16), 1.0)
    mean = np.mean([half["fixed_potential"] for half in halves], axis=0)
    np.testing.assert_allclose(mean, whole["fixed_potential"], rtol=1e-5)
    assert halves[0]["potential_scatter"] == whole["fixed_scatter"] < halves[0]["fixed_scatter"]


def test_frames_of_several_processes_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = runner_of(ethanol_frames(), small_config())
    inner, frames = trial.potential, torch.tensor([0, 3, 4, 9])
    sums: list[torch.Tensor] = []
    monkeypatch.setattr(torch.distributed, "all_reduce", sums.append)
    parts = [ShardedPotential(inner.model, inner.data, inner.prior, Shard(rank, 2), 16) for rank in (0, 1)]
    assert [part.own(frames).tolist() for part in parts] == [[0, 2], [1, 4]]
    at_the_end(parts[0], trial.chains.start, frames, 1.0)
    assert sums[0].shape == (2,)
    assert at_the_end(parts[1], trial.chains.start, frames[:1], 1.0)["fixed_potential"][0] is not None, "no own frames"


def test_a_short_run_is_still_descending() -> None:
    """Ninety steps from random weights, with 60 frames."""
    changes = {"samples": 6, "burn_in": {"steps": 30, "noise_free": 0.0}, "cycles": {"length": 30, "peak": 1e-2}}
    trial = runner_of(ethanol_frames(64), small_config(changes))
    state = trial.run()
    ends = [record for record in state.history if "fixed_potential" in record]
    assert [record["step"] - 1 for record in ends] == trial.schedule.sample_steps
    found = stationarity(state.history, [0, 1])
    assert found["draws_per_chain"] == 3
    assert "potential" in found["moving"]
    assert found["potential_drift"] < 0
    assert "still descending" in sentence(found)
