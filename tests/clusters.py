"""A real Ray cluster of several nodes in this host, whose nodes and workers can be killed."""

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# workers would give way to the other tests
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
# a secret of this test run, for all processes that it starts; else Ray makes one and keeps it in the home folder
os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex(32)

STORE = 80 * 2**20  # bytes, the least that Ray takes


class Nodes:
    """A head and `count` nodes beside it, with one core each; all but the head can be killed."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
        self.cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.nodes: list[Any] = []
        for _ in range(count):
            self.add()
        self.cluster.wait_for_nodes()

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self) -> None:
        self.nodes.append(self.cluster.add_node(num_cpus=1, object_store_memory=STORE))

    def kill_node(self, number: int) -> None:
        """As if the plug were pulled."""
        self.cluster.remove_node(self.nodes.pop(number), allow_graceful=False)

    def workers(self) -> list[psutil.Process]:
        """Processes that run chains, on all nodes."""
        found = []
        for node in [self.cluster.head_node, *self.nodes]:
            for raylet in node.all_processes["raylet"]:
                children = psutil.Process(raylet.process.pid).children(recursive=True)
                found += [child for child in children if child.name().startswith("ray::Worker")]
        return found

    def kill_worker(self, number: int = 0) -> None:
        workers = self.workers()
        assert workers, "nobody is at work"
        os.kill(workers[number % len(workers)].pid, signal.SIGKILL)


@contextmanager
def nodes(count: int) -> Iterator[Nodes]:
    made = Nodes(count)
    try:
        yield made
    finally:
        made.cluster.shutdown()
