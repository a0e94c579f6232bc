"""The options that say on which cluster to compute, shared by the verbs that can."""

import argparse

from equibayes.allocator import keep_freed_memory
from equibayes.errors import InputError
from equibayes.run.cluster.connect import ClusterOptions


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "many devices", "chains are spread over the devices of a Ray cluster; needs pip install equibayes[cluster]"
    )
    group.add_argument(
        "--cluster",
        metavar="auto|local|ADDRESS",
        help="auto: the cluster that this machine belongs to; local: all cores or GPUs of this machine; or host:port",
    )
    group.add_argument(
        "--chains-per-device",
        type=int,
        metavar="n",
        help="at most so many chains on one device; groups for which there is none wait (default: all have a place at once)",
    )
    group.add_argument(
        "--shards",
        type=int,
        metavar="n",
        help="devices that share the data of one group of chains, where it is too large for one (default 1)",
    )


def chosen_cluster(arguments: argparse.Namespace) -> ClusterOptions | None:
    """The cluster that was asked for, None for this process alone."""
    if arguments.cluster is None:
        for name in ("chains_per_device", "shards"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name.replace('_', '-')}: means something with --cluster only")
        return None
    threads = arguments.threads
    if threads is not None and threads < 1:
        raise InputError(f"--threads {threads}: must be at least 1")
    keep_freed_memory()
    shards = arguments.shards
    return ClusterOptions(
        arguments.cluster,
        arguments.device,
        1 if threads is None else threads,
        arguments.chains_per_device,
        1 if shards is None else shards,
    )
