"""The cluster options, shared by the verbs that can use one."""

import argparse

from equibayes.allocator import keep_freed_memory
from equibayes.cli.device import choose_engine
from equibayes.errors import InputError
from equibayes.run.cluster.connect import ClusterOptions


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "many devices", "chains are distributed over the devices of a Ray cluster; needs pip install equibayes[cluster]"
    )
    where = "auto: the cluster of this machine; local: all cores or GPUs of this machine; or host:port"
    group.add_argument("--cluster", metavar="auto|local|ADDRESS", help=where)
    most = "largest number of chains per device; further groups wait for a free one (default: all run at once)"
    group.add_argument("--chains-per-device", type=int, metavar="n", help=most)
    shards = "devices that share the data of one group of chains, if too large for one (default 1)"
    group.add_argument("--shards", type=int, metavar="n", help=shards)


def chosen_cluster(arguments: argparse.Namespace) -> ClusterOptions | None:
    """The requested cluster, None to compute in this process."""
    if arguments.cluster is None:
        for name in ("chains_per_device", "shards"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name.replace('_', '-')}: only used with --cluster; add it, or leave this out")
        return None
    threads = 1 if arguments.threads is None else arguments.threads
    if threads < 1:
        raise InputError(f"--threads {threads}: must be at least 1")
    keep_freed_memory()
    choose_engine(arguments)
    shards = 1 if arguments.shards is None else arguments.shards
    return ClusterOptions(arguments.cluster, arguments.device, threads, arguments.chains_per_device, shards)
