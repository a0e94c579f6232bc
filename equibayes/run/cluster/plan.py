"""Which chains run together, and on what: written at the start of a run on a cluster and kept when it is resumed.

The last bits of a chain depend on the chains beside it, so a resumed run keeps its groups, however many devices there
are.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from equibayes.errors import InputError
from equibayes.files import write_text
from equibayes.plural import counted
from equibayes.run.cluster.connect import ClusterOptions, devices, packed
from equibayes.run.store import CLUSTER_PLAN


@dataclass(frozen=True)
class Plan:
    """
    groups   chain numbers of each group
    device   cpu or cuda
    threads  CPU threads of a worker
    shards   workers that share the data of one group
    """

    groups: list[list[int]]
    device: str
    threads: int
    shards: int

    @classmethod
    def new(cls, ray: Any, chains: int, options: ClusterOptions) -> "Plan":
        """Chains packed for the devices that the cluster has now."""
        kind, count = devices(ray, options)
        return cls(packed(chains, count, options.chains_per_device), kind, options.threads, options.shards)

    @classmethod
    def read(cls, folder: Path) -> "Plan":
        path = folder / CLUSTER_PLAN
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise InputError(f"{path}: missing or damaged; start over with --overwrite") from None

    def write(self, folder: Path) -> None:
        write_text(folder / CLUSTER_PLAN, json.dumps(asdict(self)) + "\n")

    def regrouped(self, groups: list[list[int]]) -> "Plan":
        return replace(self, groups=groups)

    def __str__(self) -> str:
        sizes = [len(group) for group in self.groups]
        each = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} or {max(sizes)}"
        kind = "GPU" if self.device == "cuda" else counted(self.threads, "CPU core")
        shared = f", {self.shards} of which share the data of a group" if self.shards > 1 else ""
        return f"{counted(sum(sizes), 'chain')} in {counted(len(sizes), 'group')} of {each}, each on a worker with {kind}{shared}"
