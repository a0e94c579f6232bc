from types import SimpleNamespace

import torch

from equibayes.sampling.chain import sample
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule


def density(position, indices, step, plan):
    """û = |θ|²/2, a standard normal distribution: its gradient is θ."""
    return SimpleNamespace(gradient=position)


schedule = Schedule(BurnIn(steps=200, initial=0.1, final=0.1), Cycles("constant", count=50, length=20, peak=0.1))
draws = sample(density, torch.zeros(64, 3), schedule)  # [51, 64, 3]: draws, chains, parameters
print(draws.shape, draws.std())
