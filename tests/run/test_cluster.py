"""Chains on a real Ray cluster of several nodes in this host: whatever dies, the posterior is the undisturbed one."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from equibayes.config import merge, template
from equibayes.data import Dataset
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.sample import sample, sample_prepared
from equibayes.run import Run
from equibayes.run.chains import Chains, make_chains
from equibayes.run.cluster.connect import ClusterOptions, connected, packed
from equibayes.run.cluster.maker import Maker
from equibayes.run.cluster.shards import Shard
from equibayes.run.loop import run
from equibayes.run.prepare import prepare
from tests.clusters import Nodes, nodes
from tests.runs import Listener, ethanol_frames, small_config

ray = pytest.importorskip("ray")

# 340 steps of the tiny network: long enough to be hit in between, short enough for every test run
LONG: dict[str, Any] = {
    "chains": 3,
    "samples": 6,
    "burn_in": {"steps": 300},
    "cycles": {"length": 40},
    "guard": {"interval": 4},
    "output": {"checkpoint_seconds": 0.2, "validations": 50},
}


LONGER = merge(LONG, {"burn_in": {"steps": 900}})


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
        state = run(make_chains(prepared, data, "cpu", identities=group))
        found |= {chain: torch.stack(state.samples)[:, place] for place, chain in enumerate(group)}
    return found


def expected(data: Dataset, folder: Path, settings: dict[str, Any] = LONG) -> dict[int, torch.Tensor]:
    """With the groups of the run: they follow from the devices that the cluster had when it began, and the last bits of
    a chain depend on the chains beside it."""
    groups = json.loads((folder / "a.run/plan.json").read_text())["groups"]
    return undisturbed(data, small_config(settings), groups)


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


def test_workers_and_nodes_die(data: Dataset, connection: Nodes, tmp_path: Path) -> None:
    """One worker is killed and later a whole node; a new node takes its place.  Nothing is lost, and everything is
    told."""

    def lose_a_node() -> None:
        connection.kill_node(0)
        connection.add()

    display = Havoc({60: connection.kill_worker, 160: lose_a_node})
    options = ClusterOptions(connection.address)
    posterior = sample(data, small_config(LONG), output=tmp_path / "a.posterior", display=display, cluster=options)
    assert not display.harm, "the run was over before the harm was done"
    # the node may have had no work left
    assert sum("another worker continues from step" in message for message in display.messages) >= 1
    assert_same(posterior, expected(data, tmp_path))
    steps = [json.loads(line)["step"] for line in (tmp_path / "a.run/metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    assert [record["step"] for record in posterior.history] == steps
    assert all(len(record["log_posterior"]) == 3 for record in posterior.history)
    assert posterior.verdict["draws_per_chain"] >= 5, "pooled over the groups"
    assert posterior.verdict["stationarity"]["draws_per_chain"] == 2
    assert "validation_force_mae_of_mean" in posterior.history[-1]
    assert any("r_hat" in record for record in display.records)
    assert torch.equal(load(tmp_path / "a.posterior").samples, posterior.samples)


def test_chains_that_fail_for_good_are_left_out(data: Dataset, connection: Nodes, tmp_path: Path) -> None:
    """One group begins with weights that nothing can come of; the other two, which share the two cores with it, are
    kept."""
    config = small_config({"chains": 3, "samples": 6, "guard": {"retries": 0, "interval": 2}})
    prepared = prepare(data, config)
    start = prepared.model.layout.start(3, 0, torch.float32)
    start[1] = torch.inf
    display = Listener()
    posterior = sample_prepared(
        prepared,
        data,
        Run(tmp_path / "a.posterior", display=display, cluster=ClusterOptions(connection.address, chains_per_device=1)),
        start=start,
    )
    assert any("3 groups of 1" in message for message in display.messages), "one had to wait for its turn"
    assert any("chain 1 is left out" in message and "diverged" in message for message in display.messages)
    assert posterior.chain.tolist() == [0, 2, 0, 2]
    assert posterior.samples.isfinite().all()
    assert posterior.verdict["failed_chains"] == [], "the worker's error is the reason, whatever it says"
    assert list(posterior.verdict["lost_chains"]) == ["1"]
    assert any(
        word.startswith("chains [1] gave no samples: every chain diverged") for word in posterior.verdict["warnings"]
    )
    assert posterior.history[-1]["log_posterior"][1] is None
    torch.set_num_threads(1)
    for chain in (0, 2):
        bare = run(make_chains(prepared, data, "cpu", identities=[chain], start=start))
        assert torch.equal(posterior.samples[posterior.chain == chain], torch.stack(bare.samples)[:, 0])


class SmallDevice(Maker):
    """Stands in for a GPU that holds one chain and no more."""

    def __call__(self, identities: Sequence[int], device_name: str, shard: Shard) -> Chains:
        if len(identities) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().__call__(identities, device_name, shard)


@pytest.mark.slow
def test_chains_that_do_not_fit_take_turns(
    data: Dataset, connection: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two devices, three chains, room for one on each: the group of two is halved, and the plan says so."""
    monkeypatch.setattr("equibayes.posterior.sample.Maker", SmallDevice)
    config = small_config({"chains": 3, "samples": 6})
    display = Listener()
    options = ClusterOptions(connection.address)
    posterior = sample(data, config, output=tmp_path / "a.posterior", display=display, cluster=options)
    assert sum("too many for the memory" in message for message in display.messages) == 1
    assert json.loads((tmp_path / "a.run/plan.json").read_text())["groups"] == [[0], [2], [1]]
    assert posterior.chain.tolist() == [0, 1, 2] * 2
    assert_same(posterior, undisturbed(data, config, [[0], [1], [2]]))


def driver(folder: Path, address: str, *more: str, settings: dict[str, Any] = LONG) -> subprocess.Popen[str]:
    """`equibayes sample` in a process of its own."""
    (folder / "long.yaml").write_text(template(small_config(settings)))
    program = "import sys; from equibayes.cli.main import main; sys.exit(main())"
    words = ["sample", "bundled:ethanol@0:20", "long.yaml", "-o", "a.posterior", "--threads", "1", "--cluster", address]
    return subprocess.Popen(
        [sys.executable, "-c", program, *words, *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def saved_steps(folder: Path) -> list[int]:
    """Steps of all checkpoints that there are."""
    return [int(path.stem.removeprefix("checkpoint-")) for path in folder.glob("a.run/workers/*/checkpoint-*")]


def wait_until_saved(folder: Path, process: subprocess.Popen[str], after: int) -> None:
    """A checkpoint later than a step; fails where the process ends before."""
    while max(saved_steps(folder), default=-1) <= after:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def test_the_driver_is_killed(cluster: Nodes, data: Dataset, tmp_path: Path) -> None:
    """kill -9 while chains run; --resume ends in the same posterior.  A plain resume is refused, and says why."""
    process = driver(tmp_path, cluster.address)
    wait_until_saved(tmp_path, process, 0)
    process.kill()
    process.communicate()
    step = max(saved_steps(tmp_path))
    assert step < 340, "the run must still be going: make it longer"
    with pytest.raises(InputError, match=r"began with --cluster; to resume it add --cluster"):
        Run(tmp_path / "a.posterior", resume=True).check()
    again = driver(tmp_path, cluster.address, "--resume")
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0, output
    assert_same(load(tmp_path / "a.posterior"), expected(data, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_everything_dies_at_random(seed: int, cluster: Nodes, data: Dataset, tmp_path: Path) -> None:
    """The driver, nodes and workers, whichever is next and whenever; nothing is lost, and the posterior is the
    undisturbed one."""
    rng = random.Random(seed)
    harm = {"driver": 0, "node": 0, "worker": 0}
    process = driver(tmp_path, cluster.address, settings=LONGER)
    for _ in range(8):
        try:
            wait_until_saved(tmp_path, process, max(saved_steps(tmp_path), default=-1))
        except AssertionError:
            break
        time.sleep(rng.uniform(0.0, 0.3))
        kind = rng.choice(list(harm))
        if process.poll() is not None:
            break
        harm[kind] += 1
        if kind == "driver":
            number = rng.choice([signal.SIGKILL, signal.SIGTERM])
            process.send_signal(number)
            output, _ = process.communicate(timeout=120)
            if process.returncode == 0:  # it was done before
                break
            assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), output
            process = driver(tmp_path, cluster.address, "--resume", settings=LONGER)
        elif kind == "node":
            cluster.kill_node(0)
            cluster.add()
        elif cluster.workers():
            cluster.kill_worker(rng.randrange(2))
    if process.returncode is None:
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert sum(harm.values()) >= 3, harm
    assert_same(load(tmp_path / "a.posterior"), expected(data, tmp_path))


@pytest.mark.slow
def test_shards_on_the_cluster(data: Dataset, connection: Nodes) -> None:
    """Two workers that each hold half of the frames sample what one with all of them does, to rounding; a killed one is
    replaced."""
    config = small_config(LONG, {"chains": 2, "samples": 4, "network": {"model_dtype": "float64"}})
    display = Havoc({100: connection.kill_worker})
    posterior = sample(data, config, display=display, cluster=ClusterOptions(connection.address, shards=2))
    assert not display.harm
    for chain, samples in undisturbed(data, config, [[0, 1]]).items():
        torch.testing.assert_close(posterior.samples[posterior.chain == chain], samples, rtol=0, atol=1e-6)


def test_a_user_who_asks_for_what_there_is_not() -> None:
    with pytest.raises(InputError, match="cannot stream results"):
        ClusterOptions("ray://head:10001")
    with pytest.raises(InputError, match="--shards 0: must be at least 1"):
        ClusterOptions(shards=0)
    with pytest.raises(InputError, match="no Ray cluster answers there"), connected("127.0.0.1:1"):
        pass
