"""Reshuffled epochs: disjoint, complete, independent between chains, a pure function of the step, and cooler than
draws."""

import pytest
import torch
from scipy import stats

from equibayes.errors import InputError
from equibayes.sampling import sghmc
from equibayes.sampling.minibatch import batch_indices, permutations, steps_per_epoch
from equibayes.sampling.noise import NoiseKey, random_words


def epoch_of(key, epoch, N, batch):
    n = steps_per_epoch(N, batch)
    return torch.cat([batch_indices(key, epoch * n + s, N, batch) for s in range(n)], dim=1)


@pytest.mark.parametrize(("N", "batch"), [(12, 4), (13, 4), (970, 32), (5, 5)])
def test_batches_of_an_epoch_are_disjoint_and_cover_it(N, batch):
    seen = epoch_of(NoiseKey(0, [0, 1, 2]), 3, N, batch)
    assert seen.shape == (3, N // batch * batch)
    for chain in seen:
        assert len(chain.unique()) == len(chain)
        assert int(chain.min()) >= 0
        assert int(chain.max()) < N


def test_a_batch_larger_than_the_set_is_the_set():
    assert steps_per_epoch(3, 32) == 1
    indices = batch_indices(NoiseKey(0, [0]), 17, 3, 32)
    assert sorted(indices[0].tolist()) == [0, 1, 2]


def test_left_out_configurations_change_from_epoch_to_epoch():
    """13 = 3·4 + 1: one is left out an epoch, each equally often (χ² over 2600 epochs)."""
    left_out = [permutations(NoiseKey(0, range(13)), e, 13)[:, 12] for e in range(200)]
    assert stats.chisquare(torch.cat(left_out).bincount(minlength=13).numpy()).pvalue > 1e-4


def test_pure_in_the_step_and_independent_of_the_other_chains():
    key = NoiseKey(5, [0, 1, 2, 3])
    later = batch_indices(key, 1000, 50, 8)
    for step in (3, 999, 1000):
        batch_indices(key, step, 50, 8)
    assert torch.equal(batch_indices(key, 1000, 50, 8), later)
    assert torch.equal(batch_indices(NoiseKey(5, [2]), 1000, 50, 8), later[2:3])
    assert not torch.equal(batch_indices(NoiseKey(6, [2]), 1000, 50, 8), later[2:3])
    assert not torch.equal(batch_indices(key, 1000, 50, 8, stream=3), later)
    later.zero_()  # what a caller does to the result does not reach the memory
    assert int(batch_indices(key, 1000, 50, 8).sum()) > 0


def test_order_is_that_of_63_bit_keys():
    """What a resumed run and a kernel must repeat: sorted by the first word, 31 bits up, ^ the second."""
    key = NoiseKey(5, [3])
    words = random_words(key, 4, 40, stream=2)[0].tolist()
    keys = [(first << 31) ^ second for first, second in zip(words[::2], words[1::2])]
    assert permutations(key, 4, 20)[0].tolist() == sorted(range(20), key=keys.__getitem__)


def test_orders_are_uniform_and_independent():
    """All 24 orders of 4 equally likely; pairs of chains and of epochs too (χ², p > 1e-4)."""
    chains = NoiseKey(1, range(3000))
    code = torch.tensor([64, 16, 4, 1])
    first, second = ((permutations(chains, e, 4) * code).sum(1) for e in (0, 1))
    _, counts = first.unique(return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4
    for a, b in [(first[0::2], first[1::2]), (first, second)]:
        table = torch.zeros(24, 24)
        rank = {int(v): i for i, v in enumerate(first.unique())}
        for x, y in zip(a.tolist(), b.tolist()):
            table[rank[x], rank[y]] += 1
        assert stats.chi2_contingency(table.numpy()).pvalue > 1e-4


def heat(reshuffled: bool, N=64, batch=4, gamma=8.0, chains=1500, epochs=60) -> tuple[float, float]:
    """λ Var(θ) − 1 at epoch ends for u = Σ_i ½(θ − y_i)²·s, with y_i of unit variance, and what independent draws
    predict."""
    key, config, sharpness = NoiseKey(11, range(chains)), sghmc.SGHMCConfig(), 0.05
    y = torch.linspace(-1, 1, N, dtype=torch.float64) * 3**0.5
    state = sghmc.init(torch.zeros(chains, 1, dtype=torch.float64), key)
    generator = torch.Generator().manual_seed(0)
    values = []
    per_epoch = N // batch
    for step in range(epochs * per_epoch):
        if reshuffled:
            index = batch_indices(key, step, N, batch)
        else:
            index = torch.randint(0, N, (chains, batch), generator=generator)
        gradient = N * sharpness * (state.position - y[index].mean(1, keepdim=True))
        sghmc.step(
            state, gradient, key, learning_rate=gamma, data_size=N, config=config, adapt_mass=False, inplace=True
        )
        if step % per_epoch == per_epoch - 1 and step > epochs * per_epoch // 2:
            values.append(float(state.position.square().mean()) * N * sharpness)
    variance = sharpness**2 / batch  # B, of ∇û/N; T_eff − 1 = (1 − α/2) NγB/(2M)
    rise = (1 - config.friction / 2) * N * gamma * variance / 2
    return sum(values) / len(values) - 1, rise


def test_reshuffling_takes_away_the_heat_of_minibatches():
    """κ = 0.4 and 16 steps an epoch: 15 % of heat by independent draws, 3 % by reshuffling; statistical error about 1
    %."""
    drawn, predicted = heat(reshuffled=False)
    shuffled, _ = heat(reshuffled=True)
    assert drawn == pytest.approx(predicted, rel=0.25)
    assert abs(shuffled) < 0.25 * drawn


def test_senseless_sizes_are_refused():
    with pytest.raises(InputError, match="batch size"):
        steps_per_epoch(10, 0)
