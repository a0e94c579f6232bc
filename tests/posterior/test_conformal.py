"""Split-conformal intervals by configuration: known numbers, and the stated coverage by simulation."""

import numpy as np
import pytest

from equibayes.posterior.conformal import LEVELS, needed, quantile, quantiles


def test_one_component_a_configuration_is_ordinary_split_conformal() -> None:
    """The ⌈(n+1)·level⌉-th smallest score: for n = 9 and 90 % the largest, for 50 % the fifth."""
    score, frame = np.array([3.0, 1, 4, 1.5, 9, 2.6, 5, 3.5, 8]), np.arange(9)
    assert quantile(score, frame, 0.9) == 9
    assert quantile(score, frame, 0.8) == 8
    assert quantile(score, frame, 0.5) == 3.5
    assert quantile(score, frame, 0.95) == np.inf, "nine configurations cannot promise 95 %"


def test_a_large_configuration_weighs_no_more_than_a_small_one() -> None:
    """Three configurations, one with a thousand components: at 50 % the two others decide (weights 1/4 each)."""
    score = np.concatenate([np.full(1000, 7.0), [1.0, 2.0]])
    frame = np.concatenate([np.zeros(1000, dtype=int), [1, 2]])
    assert quantile(score, frame, 0.5) == 2
    assert quantile(score, frame, 0.51) == 7


def test_levels_that_the_frames_allow() -> None:
    assert [needed(level) for level in (0.5, 0.9, 0.95, 0.99)] == [1, 9, 19, 99]
    rng = np.random.default_rng(0)
    assert list(quantiles(rng.random(30), np.arange(30))) == [level for level in LEVELS if level <= 0.95]


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_coverage_is_as_stated(level: float) -> None:
    """Components of a configuration share a factor, sizes differ, tails are heavy; 4000 worlds of 19 configurations
    and a new one.

    The mean coverage must lie between `level` and the little that 19 configurations are careful by (1/20, plus what
    ties of whole configurations add).  Its standard error is below 0.008; 3 of them are allowed.
    """
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(4000):
        sizes = rng.integers(1, 12, 20)
        frame = np.repeat(np.arange(20), sizes)
        score = np.abs(rng.standard_t(3, len(frame))) * np.exp(0.7 * rng.normal(size=20))[frame]
        old = frame < 19
        covered.append((score[~old] <= quantile(score[old], frame[old], level)).mean())
    mean, error = np.mean(covered), np.std(covered) / np.sqrt(len(covered))
    assert error < 0.008
    assert level - 3 * error < mean < level + 0.05 + 3 * error
