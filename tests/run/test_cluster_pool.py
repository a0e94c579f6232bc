"""Groups of chains that run apart, put together as one run."""

from typing import Any

import pytest
import torch

from equibayes.cli.cluster import add_cluster_options, chosen_cluster
from equibayes.cli.device import add_device_options
from equibayes.cli.parser import Parser
from equibayes.errors import InputError
from equibayes.run.cluster.pool import Group, Pool


def record(step: int, values: list[float], phase: str = "cycle") -> dict[str, Any]:
    return {
        "step": step,
        "phase": phase,
        "cycle": 0,
        "log_posterior": values,
        "kinetic_by_group": {"readout": values},
        "probes": [[value, 2 * value] for value in values],
        "failed": [False] * len(values),
        "validation_force_mae_of_mean": 0.5,
    }


def pool() -> Pool:
    first, second = Group([0, 1]), Group([2])
    for step in (10, 20):
        first.records[step] = record(step, [1.0 + step, 2.0 + step])
    second.records[10] = record(10, [3.0])
    return Pool([first, second])


def test_records_stand_side_by_side() -> None:
    found = pool().record(10)
    assert found["log_posterior"] == [11.0, 12.0, 3.0]
    assert found["kinetic_by_group"] == {"readout": [11.0, 12.0, 3.0]}
    assert found["probes"][2] == [3.0, 6.0]
    assert "validation_force_mae_of_mean" not in found, "of one group only"


def test_what_only_some_have_reached() -> None:
    """Shown is the newest step of all groups on their way; history holds what all of them have; gaps are None."""
    both = pool()
    assert both.latest() == both.record(10)
    assert [entry["step"] for entry in both.history()] == [10]
    gap = both.record(20)
    assert gap["log_posterior"] == [21.0, 22.0, None]
    assert gap["probes"][2] == [None, None]
    assert gap["failed"] == [False, False, False]
    both.groups[1].lost = "its device burned"
    assert [entry["step"] for entry in both.history()] == [10, 20]
    assert both.record(20)["failed"] == [False, False, True]


def test_progress_counts_chains() -> None:
    both = pool()
    both.groups[0].step, both.groups[1].step = 30, 0
    assert both.mean_step() == 20
    both.groups[1].lost = "gone"
    assert both.mean_step() == 30


def test_lost_groups_have_no_samples() -> None:
    both = pool()
    both.groups[0].samples[0] = torch.ones(2, 5), torch.tensor([True, True])
    both.groups[1].lost = "its device burned"
    state = both.state()
    assert state.failed.tolist() == [False, False, False]
    assert state.lost == {2: "its device burned"}
    assert state.samples[0].shape == (3, 5)
    assert state.kept[0].tolist() == [True, True, False]
    assert state.events == ["chain 2 left out: its device burned"]


def test_chains_that_disagree_are_seen_over_groups() -> None:
    """Each group agrees with itself; only the pool sees that they are apart."""
    rng = torch.Generator().manual_seed(0)
    groups = [Group([0, 1]), Group([2, 3])]
    for step in range(40):
        for group, middle in zip(groups, (0.0, 10.0)):
            values = (middle + torch.randn(2, generator=rng, dtype=torch.float64)).tolist()
            group.records[step] = record(step, values)
    assert Pool(groups[:1]).agreement()["r_hat_log_posterior"] < 1.3
    assert Pool(groups).agreement()["r_hat_log_posterior"] > 1.5


def test_options() -> None:
    parser = Parser("equibayes")
    add_device_options(parser)
    add_cluster_options(parser)
    assert chosen_cluster(parser.parse_args([])) is None
    with pytest.raises(InputError, match="--shards: only used with --cluster"):
        chosen_cluster(parser.parse_args(["--shards", "2"]))
    found = chosen_cluster(parser.parse_args(["--cluster", "auto", "--chains-per-device", "8", "--threads", "2"]))
    assert found is not None
    assert (found.address, found.chains_per_device, found.threads, found.shards) == ("auto", 8, 2, 1)
