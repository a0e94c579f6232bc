"""The counter-based noise: the right generator, independent of batching, and normal by every test we care about."""

import math

import pytest
import torch
from scipy import stats

from equibayes.errors import InputError
from equibayes.sampling import noise
from equibayes.sampling.noise import STREAM_INITIAL_MOMENTUM, NoiseKey, philox, random_words, standard_normal


def words(*values):
    return tuple(torch.tensor([v], dtype=torch.int64) for v in values)


@pytest.mark.parametrize(
    ("counter", "seed", "expected"),
    [
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (1 << 64) - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, seed, expected):
    """The three vectors published with Random123."""
    assert tuple(int(w) for w in philox(words(*counter), seed)) == expected


def test_bits_do_not_depend_on_batching_order_or_size():
    together = standard_normal(NoiseKey(7, [0, 1, 2, 3, 4]), 11, 1003)
    for chain in (3, 0, 4):
        assert torch.equal(standard_normal(NoiseKey(7, [chain]), 11, 1003)[0], together[chain])
    assert torch.equal(standard_normal(NoiseKey(7, [4, 2]), 11, 1003), together[[4, 2]])
    assert torch.equal(standard_normal(NoiseKey(7, [2]), 11, 10), together[2:3, :10])
    large = standard_normal(NoiseKey(7, [2]), 11, 200_001)  # longer than one block
    assert torch.equal(large[:, :1003], together[2:3])


def test_every_coordinate_of_the_key_matters():
    base = standard_normal(NoiseKey(7, [1]), 5, 64)
    others = [
        standard_normal(NoiseKey(8, [1]), 5, 64),
        standard_normal(NoiseKey(7 + (1 << 32), [1]), 5, 64),
        standard_normal(NoiseKey(7, [2]), 5, 64),
        standard_normal(NoiseKey(7, [1]), 6, 64),
        standard_normal(NoiseKey(7, [1]), 5, 64, stream=STREAM_INITIAL_MOMENTUM),
    ]
    for other in others:
        assert not bool((other == base).any())


def test_single_and_double_precision_agree():
    key = NoiseKey(1, [0, 1])
    single, double = standard_normal(key, 3, 4000), standard_normal(key, 3, 4000, dtype=torch.float64)
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-5)


def test_moments_and_distribution():
    """Four million normals; each bound is 4.5 standard errors (false alarm 7e-6 each)."""
    z = standard_normal(NoiseKey(2024, range(4)), 0, 1_000_000, dtype=torch.float64)
    n = z.numel()
    assert abs(float(z.mean())) < 4.5 / math.sqrt(n)
    assert abs(float(z.square().mean()) - 1) < 4.5 * math.sqrt(2 / n)
    assert abs(float(z.pow(3).mean())) < 4.5 * math.sqrt(15 / n)
    assert abs(float(z.pow(4).mean()) - 3) < 4.5 * math.sqrt(96 / n)
    assert stats.kstest(z[0, :500_000].numpy(), "norm").pvalue > 1e-4
    tail = int((z.abs() > 4).sum())
    expected = n * 2 * stats.norm.sf(4)
    assert abs(tail - expected) < 4.5 * math.sqrt(expected)
    for lane in range(4):
        assert stats.kstest(z[1, lane::4].numpy(), "norm").pvalue > 1e-4


def test_correlations():
    """Between chains, steps, parameters and streams, of the values and of their squares."""
    steps = [standard_normal(NoiseKey(5, range(3)), s, 200_000, dtype=torch.float64) for s in (0, 1)]
    initial = standard_normal(NoiseKey(5, range(3)), 0, 200_000, stream=STREAM_INITIAL_MOMENTUM, dtype=torch.float64)
    x = steps[0]
    pairs = [(x[0], x[1]), (x[1], x[2]), (x[0], steps[1][0]), (x[0], initial[0])]
    pairs += [(x[0, :-lag], x[0, lag:]) for lag in (1, 2, 3, 4, 8)]
    for a, b in pairs:
        bound = 4.5 / math.sqrt(len(a))
        assert abs(float((a * b).mean())) < bound
        assert abs(float(((a.square() - 1) * (b.square() - 1)).mean()) / 2) < bound


@pytest.mark.parametrize(("word", "radius"), [(0, math.sqrt(64 * math.log(2))), (2**32 - 1, 0.0)])
def test_extreme_words_give_finite_normals(monkeypatch, word, radius):
    """The smallest word is the tail, 6.66; the largest is the centre: never ln 0, never √ of a negative number."""
    monkeypatch.setattr(noise, "philox", lambda counter, seed: (torch.full_like(counter[0], word),) * 4)
    z = standard_normal(NoiseKey(0, [0]), 0, 4, dtype=torch.float64)
    assert bool(z.isfinite().all())
    assert float((z[0, 0] ** 2 + z[0, 1] ** 2).sqrt()) == pytest.approx(radius, abs=1e-6)


def test_words_are_uniform():
    w = random_words(NoiseKey(3, [0]), 0, 400_000, stream=9)
    assert int(w.min()) >= 0
    assert int(w.max()) < 1 << 32
    assert stats.chisquare(torch.bincount((w[0] >> 24), minlength=256).numpy()).pvalue > 1e-4
    assert stats.chisquare(torch.bincount((w[0] & 255), minlength=256).numpy()).pvalue > 1e-4


def test_out_of_range_is_refused():
    with pytest.raises(InputError, match="step"):
        standard_normal(NoiseKey(0, [0]), 1 << 32, 4)
    with pytest.raises(InputError, match="seed"):
        standard_normal(NoiseKey(-1, [0]), 0, 4)
