"""Random directions of the weights: δ = Sᵀ u with fewer unknowns u than weights.

Every weight belongs to one direction and has a random sign there; all directions have the same number of weights, up to
one.  With u ~ N(0, s² I) every weight has the prior variance s², and the prior covariance of two predictions is that of
independent weights up to random errors of relative size 1/√directions.  With as many directions as weights it is exact.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch

from equibayes.bayes.model import StochasticModel


@dataclass(frozen=True, eq=False)
class Subspace:
    """
    column  [P] int64: the direction of each weight; −1: the weight does not move
    sign    [P] ±1, times how far each weight is expected to move, relative to the others
    size    number of directions
    """

    column: torch.Tensor
    sign: torch.Tensor
    size: int

    @classmethod
    def of(
        cls,
        model: StochasticModel,
        directions: int,
        seed: int,
        groups: Collection[str] | None = None,
        width: torch.Tensor | None = None,
    ) -> "Subspace":
        """
        groups  of weights that move, such as readout (default: all that the mean depends on)
        width   [P] how far each is expected to move, relative to the others (default: all equally far)
        """
        moving = moving_weights(model, groups)
        column = torch.full((model.layout.size,), -1)
        sign = torch.ones(model.layout.size, dtype=torch.float64) if width is None else width.double().clone()
        if directions >= len(moving):
            column[moving] = torch.arange(len(moving))
            return cls(column, sign, len(moving))
        generator = torch.Generator().manual_seed(seed % 2**63)
        column[moving] = torch.randperm(len(moving), generator=generator) % directions
        sign[moving] *= 2.0 * torch.randint(0, 2, (len(moving),), generator=generator).double() - 1
        return cls(column, sign, directions)

    def expand(self, moves: torch.Tensor) -> torch.Tensor:
        """u [n, directions] → δ [n, P]."""
        return torch.where(self.column >= 0, moves[:, self.column.clamp_min(0)] * self.sign.to(moves), 0.0)


def moving_weights(model: StochasticModel, groups: Collection[str] | None = None) -> torch.Tensor:
    """Numbers of the weights that the mean depends on, of some groups or all."""
    chosen = [
        torch.arange(part.start, part.stop)
        for name, part in model.layout.groups.items()
        if name not in model.noise_networks and (groups is None or name in groups)
    ]
    return torch.cat(chosen)
