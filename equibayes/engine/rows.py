"""How single labels change with the weights, by automatic differentiation: the reference, in any precision."""

import torch

from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.data.graph import Graph
from equibayes.data.resident import ResidentData
from equibayes.engine.interface import LabelRows

SIX = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))
"""Components of the stress; those off the diagonal count √2 times (see bayes/likelihood.py)."""
ROWS_AT_ONCE = 32


class ReferenceRows:
    """Rows of any frames at one weight set."""

    def __init__(
        self,
        model: StochasticModel,
        position: torch.Tensor,
        data: ResidentData,
        column: torch.Tensor,
        sign: torch.Tensor,
    ) -> None:
        """position [P]; column, sign: see `LabelRows`."""
        self.model, self.position, self.data = model, position, data
        self.column, self.sign = column.to(position.device), sign.to(position)

    def __call__(self, frames: list[int], chosen: torch.Tensor) -> LabelRows:
        parts, first = [], 0
        for number in frames:
            count = 3 * int(self.data.frames.num_atoms[number, 0]) + 1 + 6 * (self.data.stress is not None)
            own = chosen[first : first + count].nonzero()[:, 0].to(self.position.device)
            parts.append(self._frame(number, own))
            first += count
        return LabelRows(*(torch.cat([getattr(part, name) for part in parts]) for name in LabelRows.__annotations__))

    def _frame(self, number: int, labels: torch.Tensor) -> LabelRows:
        graph, _ = self.data.batch(torch.tensor([[number]], device=self.position.device))
        stress = self.data.stress is not None
        value, log_sigma = labels_of(self.model(self.position[None], graph), graph, stress)
        rows = []
        for own in labels.split(ROWS_AT_ONCE):
            # copies of the weights along the chain axis, of which each is differentiated for one label
            theta = self.position.expand(len(own), -1).clone().requires_grad_()
            values, _ = labels_of(self.model(theta, graph, differentiable=True), graph, stress)
            (gradient,) = torch.autograd.grad(values[torch.arange(len(own)), own].sum(), theta)
            rows.append(self._collected(gradient))
        return LabelRows(value[0, labels], log_sigma[0, labels], torch.cat(rows))

    def _collected(self, gradient: torch.Tensor) -> torch.Tensor:
        used = self.column >= 0
        out = gradient.new_zeros(len(gradient), int(self.column.max()) + 1)
        return out.index_add_(1, self.column[used], (gradient * self.sign)[:, used])


def labels_of(output: ModelOutput, graph: Graph, stress: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions [K, R] and ln σ [K, R], float64, of one frame, in the order of `LabelRows`."""
    real = graph.real[0]
    values = [output.forces[:, real].flatten(1), output.energy]
    sigmas = [output.log_sigma_forces[:, real].repeat_interleave(3, 1), output.log_sigma_energy]
    if stress:
        values += [output.stress[:, 0, i, j, None] * (1 if i == j else 2**0.5) for i, j in SIX]
        sigmas += [output.log_sigma_stress] * 6
    return torch.cat([each.double() for each in values], 1), torch.cat([each.double() for each in sigmas], 1)
