"""The likelihood of a data set too large for one device: each of R processes holds every R-th frame.

    ∇û(θ) = −∇ln p(θ) − N/|batch| · Σ_r Σ_{frames of r in the batch} ∇ln p(y | x, θ)

One all_reduce adds the sums over frames of all processes; the prior is added once, afterwards.  All processes then hold
the same bits and run the same chains in step, so any one of them can report.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Evaluation, Potential, weighted
from equibayes.bayes.prior import Prior
from equibayes.data.resident import ResidentData

# seconds that a process waits for another
PATIENCE = 300


@dataclass(frozen=True)
class Shard:
    """The part of the data that one process holds: frames rank, rank + R, rank + 2R, …

    rank, of  which of R processes this is
    address   where they meet, such as tcp://10.0.0.1:29500
    """

    rank: int = 0
    of: int = 1
    address: str = ""

    def frames(self, count: int) -> range:
        return range(self.rank, count, self.of)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Connects the processes of a group."""
        if self.of == 1:
            yield
            return
        distributed.init_process_group(
            "gloo",
            init_method=self.address,
            rank=self.rank,
            world_size=self.of,
            timeout=timedelta(seconds=PATIENCE),
        )
        try:
            yield
        finally:
            distributed.destroy_process_group()


class ShardedPotential(Potential):
    """û of frames distributed over several processes; each gives the same `Evaluation`."""

    def __init__(self, model: StochasticModel, own: ResidentData, prior: Prior, shard: Shard, total: int) -> None:
        """own: the frames of this process, those of `shard.frames(total)`; total: N, all of them."""
        super().__init__(model, own, prior)
        self.shard, self.total = shard, total

    @property
    def fusable(self) -> bool:
        return False

    @property
    def data_size(self) -> int:
        return self.total

    def own(self, frames: torch.Tensor) -> torch.Tensor:
        return frames[frames % self.shard.of == self.shard.rank] // self.shard.of

    def summed(self, sums: torch.Tensor) -> torch.Tensor:
        """Every process must call it."""
        sums = sums.clone()
        distributed.all_reduce(sums)
        return sums

    def __call__(
        self,
        position: torch.Tensor,
        indices: torch.Tensor,
        feature_mask: torch.Tensor | None = None,
        balance: float = 0.0,
    ) -> Evaluation:
        """Evaluate at θ [K, P] with the configurations [K, B], numbered as in the whole set."""
        if feature_mask is not None:
            raise NotImplementedError("features are masked in one process only")
        own, weight = own_frames(indices, self.shard)
        graph, labels = self.data.batch(own)
        theta = position.detach().requires_grad_()
        output = self.model(theta, graph, differentiable=True)
        per_structure = self.log_likelihood(output, graph, labels, balance)
        likelihood = (weighted(per_structure, labels) * weight).sum(1)
        unweighted = (per_structure * weight).sum(1)
        (gradient,) = torch.autograd.grad(likelihood.sum(), theta)
        # sums over components, divided after the reduction
        real = graph.real.to(output.forces)
        size = own.shape[1]
        counted = torch.cat([weight, weight.new_zeros(len(weight), 1)], 1)  # the last place: padding atoms
        atoms = counted.gather(1, graph.structure.expand(len(weight), -1).clamp(max=size)).to(real) * real
        with torch.no_grad():
            error = (output.forces - labels.forces).abs().mean(-1)
            sums = [likelihood, unweighted, atoms.sum(1), (error * atoms).sum(1), (output.sigma_forces * atoms).sum(1)]
            numbers = torch.stack([each.double() for each in sums])
        distributed.all_reduce(gradient)
        distributed.all_reduce(numbers)
        likelihood, unweighted, count, error, sigma = numbers
        batch = indices.shape[1]
        scale = self.total / batch
        return Evaluation(
            gradient=-scale * gradient + self.prior.gradient(position),
            potential=self.prior.neg_log_density(position).double() - scale * likelihood,
            log_likelihood=unweighted / batch,
            force_mae=(error / count).to(position.dtype),
            force_sigma=(sigma / count).to(position.dtype),
        )


def own_frames(indices: torch.Tensor, shard: Shard) -> tuple[torch.Tensor, torch.Tensor]:
    """Of configurations [K, B] numbered as in the whole set, those of this process: their numbers here and weights 1,
    both [K, b].

    Chains have different numbers of them, so that shorter rows are filled with frame 0, weight 0.
    """
    mine = indices % shard.of == shard.rank
    width = max(1, int(mine.sum(1).max()))
    first = (~mine).to(torch.int8).argsort(dim=1, stable=True)[:, :width]
    weight = mine.gather(1, first)
    return torch.where(weight, indices.gather(1, first) // shard.of, 0), weight.double()
