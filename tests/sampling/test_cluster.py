"""Chains on a real Ray cluster of several nodes in this host: whatever dies, the posterior is the undisturbed one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from equibayes.data import Dataset
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.sample import make_runner, prepare, sample
from equibayes.sampling.cluster_ray import ClusterOptions, packed
from equibayes.sampling.progress import Silent
from tests.clusters import Nodes, nodes
from tests.runs import Listener, ethanol_frames, small_config

ray = pytest.importorskip("ray")

# 600 steps of the tiny network: long enough to be hit in between, short enough for every test run
LONG: dict[str, Any] = {
    "chains": 3,
    "samples": 6,
    "burn_in": {"steps": 520},
    "cycles": {"length": 80},
    "guard": {"interval": 4},
    "output": {"checkpoint_seconds": 0.2, "validations": 50},
}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return ethanol_frames()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with nodes(1) as made:
        yield made


@pytest.fixture
def connection(cluster: Nodes) -> Iterator[Nodes]:
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()


def undisturbed(data: Dataset, config: Any, groups: list[list[int]]) -> dict[int, torch.Tensor]:
    """Samples [n, P] of every chain from bare runners in this process, group by group."""
    torch.set_num_threads(1)
    prepared, found = prepare(data, config), {}
    for group in groups:
        state = make_runner(prepared, data, torch.device("cpu"), Silent(), group).run()
        found |= {chain: torch.stack(state.samples)[:, place] for place, chain in enumerate(group)}
    return found


@pytest.fixture(scope="module")
def expected(data: Dataset) -> dict[int, torch.Tensor]:
    return undisturbed(data, small_config(LONG), [[0, 1], [2]])


def assert_same(posterior: Posterior, expected: dict[int, torch.Tensor]) -> None:
    """Bit for bit."""
    for chain, samples in expected.items():
        assert torch.equal(posterior.samples[posterior.chain == chain], samples), f"chain {chain} differs"
    assert len(posterior) == sum(len(samples) for samples in expected.values())


class Havoc(Listener):
    """A display that does harm when the run as a whole reaches given steps."""

    def __init__(self, harm: dict[int, Callable[[], None]]) -> None:
        super().__init__()
        self.harm = dict(harm)

    def advance(self, step: int) -> None:
        due = [at for at in self.harm if at <= step]
        for at in due:
            self.harm.pop(at)()


@pytest.mark.parametrize(
    ("chains", "devices", "at_most", "sizes"),
    [(64, 8, None, [8] * 8), (5, 2, None, [3, 2]), (2, 8, None, [1, 1]), (10, 2, 3, [3, 3, 2, 2]), (4, 4, 8, [1] * 4)],
)
def test_packing(chains: int, devices: int, at_most: int | None, sizes: list[int]) -> None:
    groups = packed(chains, devices, at_most)
    assert [len(group) for group in groups] == sizes
    assert [chain for group in groups for chain in group] == list(range(chains))


def test_workers_and_nodes_die(
    data: Dataset, expected: dict[int, torch.Tensor], connection: Nodes, tmp_path: Path
) -> None:
    """One worker is killed and later a whole node; a new node takes its place.  Nothing is lost, and everything is told."""

    def lose_a_node() -> None:
        connection.kill_node(0)
        connection.add()

    display = Havoc({150: connection.kill_worker, 350: lose_a_node})
    options = ClusterOptions(connection.address)
    posterior = sample(data, small_config(LONG), output=tmp_path / "a.posterior", display=display, cluster=options)
    assert not display.harm, "the run was over before the harm was done"
    assert sum("another worker goes on from step" in message for message in display.messages) >= 2
    assert_same(posterior, expected)
    steps = [json.loads(line)["step"] for line in (tmp_path / "a.run/metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    assert [record["step"] for record in posterior.history] == steps
    assert all(len(record["log_posterior"]) == 3 for record in posterior.history)
    assert posterior.verdict["r_hat_forces"] is not None
    assert "validation_force_mae_of_mean" in posterior.history[-1]
    assert any("r_hat" in record for record in display.records)
    assert torch.equal(load(tmp_path / "a.posterior").samples, posterior.samples)
