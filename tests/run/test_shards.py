"""A likelihood whose frames lie in several processes is the likelihood."""

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as processes

from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data import Dataset
from equibayes.run.cluster.shards import Shard, ShardedPotential, own_frames
from equibayes.run.prepare import prepare
from tests.runs import ethanol_frames, small_config

CHAINS = 3


def prepared() -> Any:
    weighted = [replace(frame, weight=0.5 + number % 3) for number, frame in enumerate(ethanol_frames())]
    return prepare(Dataset(weighted), small_config({"network": {"model_dtype": "float64"}}))


def case(ready: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights [K, P], and a minibatch [K, 5] of which one chain has nothing in the second process."""
    indices = torch.tensor([[0, 1, 2, 3, 15], [4, 5, 7, 9, 11], [0, 2, 4, 6, 8]])
    return ready.model.layout.start(CHAINS, 1, torch.float64), indices


def evaluate_shard(rank: int, address: str, folder: Path) -> None:
    torch.set_num_threads(1)
    ready, shard = prepared(), Shard(rank, 2, address)
    own = ready.resident(ready.train.subset(shard.frames(len(ready.train))), "cpu")
    position, indices = case(ready)
    with shard.joined():
        evaluation = ShardedPotential(ready.model, own, StandardNormal(), shard, len(ready.train))(position, indices)
    torch.save(vars(evaluation), folder / f"{rank}.pt")


def test_two_processes_are_one(tmp_path: Path) -> None:
    """Gradient, û and what is shown: the same to rounding as in one process, and the same bits in both."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    processes.spawn(evaluate_shard, args=(address, tmp_path), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    ready = prepared()
    position, indices = case(ready)
    whole = vars(Potential(ready.model, ready.resident(ready.train, "cpu"), StandardNormal())(position, indices))
    for name, value in whole.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value, rtol=1e-10, atol=1e-10, msg=name)
    assert whole["gradient"].abs().max() > 1


def test_every_frame_lies_in_one_process() -> None:
    indices = torch.tensor([[0, 1, 2, 3, 6], [1, 3, 5, 7, 9]])
    found: list[set[int]] = [set(), set()]
    for rank in range(3):
        shard = Shard(rank, 3)
        own, weight = own_frames(indices, shard)
        assert own.shape == weight.shape
        for chain in range(2):
            for frame, counts in zip(own[chain].tolist(), weight[chain].tolist()):
                whole = shard.frames(10)[frame]
                if counts:
                    assert whole not in found[chain]
                    found[chain].add(whole)
    assert found == [set(row) for row in indices.tolist()]
