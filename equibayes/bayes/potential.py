"""The stochastic potential that the sampler descends, for K chains with a minibatch each:

    û(θ) = −ln p(θ) − N/|batch| · Σ_batch w ln p(y | x, θ)

N counts training configurations; the prior enters once.  w is the weight of a configuration, usually 1.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch

from equibayes.bayes.balance import balanced
from equibayes.bayes.label_noise import widened
from equibayes.bayes.likelihood import log_likelihood, squared_errors
from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.bayes.prior import Prior
from equibayes.data.graph import Graph
from equibayes.data.resident import Labels, ResidentData

Objective = Literal["gaussian", "squares"]
"""What is summed over configurations: the Gaussian log-likelihood, or squared errors as NequIP is trained."""
OBJECTIVES = {"gaussian": log_likelihood, "squares": squared_errors}


@dataclass(frozen=True)
class Evaluation:
    """û and what can be read off its minibatch, one number per chain.

    gradient       [K, P]  ∇û
    potential      [K]     û, float64
    log_likelihood [K]     mean ln p of a configuration
    force_mae      [K]     eV/Å
    force_sigma    [K]     mean predicted deviation of a force component, eV/Å
    """

    gradient: torch.Tensor
    potential: torch.Tensor
    log_likelihood: torch.Tensor
    force_mae: torch.Tensor
    force_sigma: torch.Tensor


@dataclass(frozen=True)
class Dropout:
    """Random masks on the features: the dropout rate, with seed and stream of the counter-based noise."""

    rate: float
    seed: int
    stream: int


class Potential:
    """û of a model, a resident data set and a prior."""

    def __init__(
        self,
        model: StochasticModel,
        data: ResidentData,
        prior: Prior,
        *,
        objective: Objective = "gaussian",
        dropout: Dropout | None = None,
    ) -> None:
        """dropout: how the sampler draws the masks that it passes as `feature_mask`."""
        self.model, self.data, self.prior = model, data, prior
        self.objective, self.dropout = objective, dropout

    @property
    def fusable(self) -> bool:
        """Whether an engine may evaluate û itself, from `model`, `data`, `prior`, `objective` and `dropout`."""
        return True

    def unfused_because(self, engine: str) -> str | None:
        """Why the steps are made by the reference instead of this engine; None where the engine may make them."""
        if not self.fusable:
            return "the data are distributed over several processes"
        if engine != "triton":
            return None
        if not self.model.isotropic:
            return f"likelihood.covariance={self.model.config.covariance}"
        kinds = {"weights": self.data.weight, "a noise of their own": self.data.noise}
        return next((f"frames have {name}" for name, there in kinds.items() if there is not None), None)

    @property
    def data_size(self) -> int:
        return len(self.data)

    def with_prior_weight(self, evaluation: Evaluation, position: torch.Tensor, weight: float) -> Evaluation:
        """The same evaluation with the prior's share of the gradient multiplied by a weight."""
        if weight == 1:
            return evaluation
        return replace(evaluation, gradient=evaluation.gradient - (1 - weight) * self.prior.gradient(position))

    def log_likelihood(self, output: ModelOutput, graph: Graph, labels: Labels, balance: float = 0.0) -> torch.Tensor:
        """ln p of every structure, [K, B]."""
        if self.objective == "gaussian":
            output = balanced(widened(output, graph, labels), graph, balance)
        return OBJECTIVES[self.objective](output, graph, labels)

    def own(self, frames: torch.Tensor) -> torch.Tensor:
        """Of frames [n], numbered as in the whole set, those in `data`, numbered as there."""
        return frames

    def summed(self, sums: torch.Tensor) -> torch.Tensor:
        """Sums over the own frames of this process, added up over all processes."""
        return sums

    def __call__(
        self,
        position: torch.Tensor,
        indices: torch.Tensor,
        feature_mask: torch.Tensor | None = None,
        balance: float = 0.0,
    ) -> Evaluation:
        """Evaluate at θ [K, P] with the configurations [K, B] (or [1, B], the same for all chains).

        balance: of energies and stress against forces, in the gradient alone
        """
        graph, labels = self.data.batch(indices)
        theta = position.detach().requires_grad_()
        output = self.model(theta, graph, differentiable=True, feature_mask=feature_mask)
        per_structure = self.log_likelihood(output, graph, labels, balance)
        scaled = weighted(per_structure, labels).sum(1) * (self.data_size / per_structure.shape[1])
        (gradient,) = torch.autograd.grad(-scaled.sum(), theta)
        mae, sigma = force_summary(output, graph, labels)
        return Evaluation(
            gradient=gradient + self.prior.gradient(position),
            potential=self.prior.neg_log_density(position).double() - scaled.detach(),
            log_likelihood=per_structure.detach().mean(1),
            force_mae=mae,
            force_sigma=sigma,
        )


def weighted(per_structure: torch.Tensor, labels: Labels) -> torch.Tensor:
    """Terms of the likelihood [K, B], each times the weight of its structure."""
    return per_structure if labels.weight is None else per_structure * labels.weight


@torch.no_grad()
def force_summary(output: ModelOutput, graph: Graph, labels: Labels) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean absolute error and mean predicted deviation of the force components of each chain, both [K] in eV/Å."""
    real = graph.real.to(output.forces)
    count = real.sum(1)
    error = (output.forces - labels.forces).abs().mean(-1)
    return (error * real).sum(1) / count, (output.sigma_forces * real).sum(1) / count
