"""Puts chains on the device of a worker."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from equibayes.bayes.prior import Prior
from equibayes.data.dataset import Dataset
from equibayes.data.resident import ResidentData
from equibayes.run.chains import Chains, make_chains
from equibayes.run.cluster.shards import Shard, ShardedPotential
from equibayes.run.prepare import Prepared


class Maker:
    """Makes the chains with given identities on a device, cpu or cuda.  It is sent to the workers."""

    def __init__(self, prepared: Prepared, data: Dataset, start: torch.Tensor | None = None) -> None:
        self.prepared, self.data, self.start = prepared, data, start

    def __call__(self, identities: Sequence[int], device: str, shard: Shard) -> Chains:
        """shard: the part of the frames that this worker holds; the first of the workers of a group validates."""
        if shard.of == 1:
            return make_chains(self.prepared, self.data, device, identities=identities, start=self.start)
        total = len(self.prepared.train)
        own = replace(self.prepared, train=self.prepared.train.subset(shard.frames(total)))

        def sharded(prepared: Prepared, frames: ResidentData, prior: Prior) -> ShardedPotential:
            return ShardedPotential(prepared.model, frames, prior, shard, total)

        chains = make_chains(own, self.data, device, identities=identities, start=self.start, potential=sharded)
        return replace(chains, validation=None) if shard.rank else chains
