"""Simulation-based calibration: draw θ* from the prior, data from θ*, samples from the posterior; θ* must rank
uniformly.

Model: Bayesian linear regression with a learned variance head, four weights θ = (w0, w1, s0, s1):

    y ~ N(w0 + w1 x, σ²(x)),   ln σ(x) = s0 + s1 x,   θ ~ N(0, 0.5² I).

Each replication is one chain, so all of them run in one pass with the real step: burn-in with adapting mass, freeze,
samples.
"""

import numpy as np
import pytest
import torch
from scipy import stats

from equibayes.bayes.prior import CentredNormal
from equibayes.sampling import sghmc
from equibayes.sampling.minibatch import batch_indices
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule

REPLICATIONS, N, SAMPLES = 1000, 20, 15
PRIOR = CentredNormal(torch.zeros(4, dtype=torch.float64), torch.full((4,), 0.5, dtype=torch.float64))


def likelihood_gradient(theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """−∇ Σ ln p(y|x,θ), summed over the data given: θ [K, 4], x and y [K, n] → [K, 4]."""
    w0, w1, s0, s1 = (theta[:, i, None] for i in range(4))
    precision = torch.exp(-2 * (s0 + s1 * x))
    error = w0 + w1 * x - y
    by_mean, by_log_sigma = precision * error, 1 - precision * error.square()
    return torch.stack([by_mean.sum(1), (by_mean * x).sum(1), by_log_sigma.sum(1), (by_log_sigma * x).sum(1)], dim=1)


def ranks(batch: int, temperature: float = 1.0, mass: sghmc.Mass = "diagonal") -> np.ndarray:
    """Number of samples below θ*, [REPLICATIONS, 4], each 0 … SAMPLES."""
    generator = torch.Generator().manual_seed(1)
    truth = 0.5 * torch.randn(REPLICATIONS, 4, dtype=torch.float64, generator=generator)
    x = 2 * torch.rand(REPLICATIONS, N, dtype=torch.float64, generator=generator) - 1
    sigma = torch.exp(truth[:, 2:3] + truth[:, 3:4] * x)
    y = truth[:, 0:1] + truth[:, 1:2] * x + sigma * torch.randn(x.shape, dtype=torch.float64, generator=generator)

    plan = Schedule(
        BurnIn(steps=400, initial=0.3, final=0.03, freeze_mass_at=300, collect=False),
        Cycles("rise_and_fall", count=SAMPLES, length=60, peak=0.3),
        temperature=temperature,
        steps_per_epoch=(N // batch, N // batch),
    )
    key, config = NoiseKey(2, range(REPLICATIONS)), sghmc.SGHMCConfig(mass=mass)
    blocks = config.blocks([(2, 2)])
    state = sghmc.init(torch.zeros(REPLICATIONS, 4, dtype=torch.float64), key, blocks=blocks)
    below = torch.zeros(REPLICATIONS, 4)
    for step in range(plan.total_steps):
        p = plan.at(step)
        data = (x, y) if batch == N else tuple(v.gather(1, batch_indices(key, step, N, batch)) for v in (x, y))
        gradient = N / batch * likelihood_gradient(state.position, *data)
        gradient += PRIOR.gradient(state.position)
        options = {"learning_rate": p.learning_rate, "temperature": p.temperature, "adapt_mass": not p.mass_frozen}
        sghmc.step(state, gradient, key, data_size=N, config=config, blocks=blocks, **options, inplace=True)
        if p.collect:
            below += state.position < truth
    return below.numpy()


def uniformity(values: np.ndarray) -> list[float]:
    """p-value of χ² against equal counts of the ranks 0 … SAMPLES, for each weight."""
    return [
        float(stats.chisquare(np.bincount(column.astype(int), minlength=SAMPLES + 1)).pvalue) for column in values.T
    ]


@pytest.mark.parametrize("mass", ["diagonal", "matrix"])
def test_ranks_are_uniform(mass):
    """p > 1e-4 for each of four weights: a false alarm once in 2500 seeds.  The four weights are one matrix."""
    assert min(uniformity(ranks(batch=N, mass=mass))) > 1e-4


def test_a_tempered_posterior_is_found_out():
    """The test has power: a temperature of 0.6 is refused."""
    assert min(uniformity(ranks(batch=N, temperature=0.6))) < 1e-6


def test_ranks_are_uniform_with_reshuffled_minibatches():
    assert min(uniformity(ranks(batch=5))) > 1e-4
