"""Do two samplers predict the same?  Means and standard deviations of predictions in units of their Monte Carlo error.

Draws are arrays [K, n, Q]: K independent chains, n draws each, Q predicted numbers.  Draws of one chain are correlated
and chains are independent, so all errors are taken over chains; correlation times are not needed.
"""

from typing import Any, NamedTuple

import numpy as np


class Moments(NamedTuple):
    """Mean and standard deviation of each quantity with their standard errors, all [Q]; log_sd is ln(standard
    deviation)."""

    mean: np.ndarray
    mean_error: np.ndarray
    log_sd: np.ndarray
    log_sd_error: np.ndarray


def moments(first: np.ndarray, second: np.ndarray) -> Moments:
    """From each chain's mean and mean square, both [K, Q]."""
    chains = len(first)
    mean = first.mean(0)
    mean_error = first.std(0, ddof=1) / np.sqrt(chains)
    spread = second - 2 * mean * first + mean**2  # mean square distance of a chain's draws from the common mean
    variance = spread.mean(0) + mean_error**2  # corrects for the common mean being estimated
    return Moments(
        mean,
        mean_error,
        0.5 * np.log(variance),
        0.5 * spread.std(0, ddof=1) / np.sqrt(chains) / variance,
    )


def z_scores(a: Moments, b: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Differences of means and of ln(sd), b − a, each over its standard error."""
    mean = (b.mean - a.mean) / np.hypot(a.mean_error, b.mean_error)
    return mean, (b.log_sd - a.log_sd) / np.hypot(a.log_sd_error, b.log_sd_error)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def compare(reference: np.ndarray, subject: np.ndarray, *, permutations: int = 999, seed: int = 0) -> dict[str, Any]:
    """The subject [K', n', Q] against the reference [K, n, Q].

    rms_z_mean, rms_z_sd   about 1 where both sample the same distribution; but quantities are correlated
    p_mean, p_sd           fraction of random exchanges of chains between the samplers with at least this rms z
    sd_ratio               geometric mean of sd(subject)/sd(reference), with its jackknife error over chains
    shift_in_sd            rms difference of means in units of the posterior sd
    """
    centre = reference.mean((0, 1))  # against cancellation in mean squares
    first = [(x - centre).mean(1) for x in (reference, subject)]
    second = [np.square(x - centre).mean(1) for x in (reference, subject)]
    a, b = moments(first[0], second[0]), moments(first[1], second[1])
    z = z_scores(a, b)
    p = _permutation_p(first, second, [rms(part) for part in z], permutations, seed)
    ratio, ratio_error = _sd_ratio(first, second)
    return {
        "rms_z_mean": rms(z[0]),
        "rms_z_sd": rms(z[1]),
        "share_of_z_mean_above_2": float((np.abs(z[0]) > 2).mean()),
        "p_mean": p[0],
        "p_sd": p[1],
        "sd_ratio": ratio,
        "sd_ratio_error": ratio_error,
        "shift_in_sd": rms((b.mean - a.mean) / np.exp(a.log_sd)),
        "monte_carlo_error_in_sd": rms(np.hypot(a.mean_error, b.mean_error) / np.exp(a.log_sd)),
        "quantities": first[0].shape[1],
    }


def _permutation_p(
    first: list[np.ndarray], second: list[np.ndarray], seen: list[float], permutations: int, seed: int
) -> list[float]:
    """P-values of the two rms z: chains are exchanged at random between the samplers."""
    random = np.random.default_rng(seed)
    one, two, size = np.concatenate(first), np.concatenate(second), len(first[0])
    exceeded = np.zeros(2)
    for _ in range(permutations):
        order = random.permutation(len(one))
        left, right = order[:size], order[size:]
        z = z_scores(moments(one[left], two[left]), moments(one[right], two[right]))
        exceeded += [rms(part) >= value for part, value in zip(z, seen)]
    return [float((count + 1) / (permutations + 1)) for count in exceeded]


def _sd_ratio(first: list[np.ndarray], second: list[np.ndarray]) -> tuple[float, float]:
    """Geometric mean over quantities of the ratio of standard deviations, and its jackknife error over chains."""

    def level(s: int, keep: np.ndarray) -> float:
        return float(moments(first[s][keep], second[s][keep]).log_sd.mean())

    levels, variance = [], 0.0
    for s in range(2):
        chains = np.arange(len(first[s]))
        without = np.array([level(s, chains != k) for k in chains])
        levels.append(level(s, chains >= 0))
        variance += (len(chains) - 1) * without.var()
    ratio = float(np.exp(levels[1] - levels[0]))
    return ratio, ratio * float(np.sqrt(variance))
