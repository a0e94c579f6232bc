"""An independent oracle on a small Bayesian neural network: the `posteriors` library, with its own code and its own
step size.

Network 1-8-1 with tanh, θ ~ N(0, I) (25 weights), y ~ N(f(x), 0.3²), 12 data.  Both samplers run many chains; the
predictive mean and deviation on a grid must agree within the Monte Carlo error, which the independence of chains
provides.
"""

import numpy as np
import pytest
import torch

from equibayes.bayes.prior import StandardNormal
from equibayes.sampling import sghmc
from equibayes.sampling.noise import NoiseKey

HIDDEN, SIGMA = 8, 0.3
X = torch.linspace(-2, 2, 12, dtype=torch.float64)
Y = torch.sin(2 * X) + SIGMA * torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
GRID = torch.linspace(-3, 3, 13, dtype=torch.float64)


def network(theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """θ [K, 25], x [n] → [K, n]."""
    w1, b1, w2, b2 = theta.split([HIDDEN, HIDDEN, HIDDEN, 1], dim=1)
    return (torch.tanh(x[:, None] * w1[:, None] + b1[:, None]) * w2[:, None]).sum(-1) + b2


def potential(theta: torch.Tensor) -> torch.Tensor:
    """u(θ), [K]."""
    return StandardNormal().neg_log_density(theta) + 0.5 * ((network(theta, X) - Y) / SIGMA).square().sum(1)


def ours(chains: int, burn_in: int, records: int, thin: int) -> torch.Tensor:
    """Predictions [records, chains, grid]."""
    key, config = NoiseKey(8, range(chains)), sghmc.SGHMCConfig()
    state = sghmc.init(torch.zeros(chains, 25, dtype=torch.float64), key)
    state.position.copy_(0.5 * state.momentum)
    gradient = torch.func.grad(lambda theta: potential(theta).sum())
    out = []
    for t in range(burn_in + records * thin):
        sghmc.step(
            state,
            gradient(state.position),
            key,
            learning_rate=0.04,
            data_size=12,
            config=config,
            adapt_mass=t < burn_in // 2,
            inplace=True,
        )
        if t >= burn_in and (t - burn_in) % thin == thin - 1:
            out.append(network(state.position, GRID))
    return torch.stack(out)


def theirs(chains: int, burn_in: int, records: int, thin: int) -> torch.Tensor:
    """The same with posteriors' BAOA: unit mass, its own friction, step and generator."""
    baoa = pytest.importorskip("posteriors.sgmcmc.baoa")
    torch.manual_seed(9)
    transform = baoa.build(lambda theta, _: (-potential(theta).sum(), torch.tensor([])), lr=0.02, alpha=1.0)
    state = transform.init(0.5 * torch.randn(chains, 25, dtype=torch.float64))
    out = []
    for t in range(burn_in + records * thin):
        state, _ = transform.update(state, None)
        if t >= burn_in and (t - burn_in) % thin == thin - 1:
            out.append(network(state.params, GRID))
    return torch.stack(out)


def summary(predictions: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean and deviation on the grid, each with its standard error from jackknifing independent chains."""
    by_chain = torch.stack([predictions.mean(0), predictions.square().mean(0)])  # [2, chains, grid]
    total, K = by_chain.sum(1, keepdim=True), by_chain.shape[1]

    def statistics(moments):
        return torch.stack([moments[0], (moments[1] - moments[0].square()).sqrt()])

    left_out = statistics((total - by_chain) / (K - 1))
    error = ((K - 1) * left_out.var(1, unbiased=False)).sqrt().numpy()
    (mean, deviation) = statistics(total[:, 0] / K).numpy()
    return mean, deviation, error[0], error[1]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # raised by posteriors on import
def test_predictive_mean_and_deviation_agree_with_posteriors():
    """26 numbers, each within 4.5 standard errors (false alarm 2e-4 in all); the errors themselves are small."""
    a, b = summary(ours(250, 1200, 15, 75)), summary(theirs(250, 1200, 15, 75))
    for i in (0, 1):
        error = np.hypot(a[i + 2], b[i + 2])
        assert error.max() < 0.1 * a[1].max()
        assert (np.abs(a[i] - b[i]) / error).max() < 4.5
    assert a[1].max() > 2 * a[1].min()  # the posterior is wider away from the data: there is something to agree on
