"""Which configurations each chain sees in a step: reshuffled epochs, a pure function of the step.

Every epoch e of chain k runs through a permutation of the N configurations that depends on (seed, k, e) alone, so
nothing needs to be saved to resume, and chains are independent of each other.

Reshuffling instead of independent draws is free and closer to exact: within an epoch every configuration enters once,
so minibatch errors cancel over the epoch instead of adding up like √steps.  At epoch ends (where samples are taken) a
mode that relaxes more slowly than an epoch lasts keeps about a fifth of the temperature rise NγB/(2M) of
independent draws. A stiff mode, which relaxes within an epoch, has no time to see the cancellation and gains nothing.

Incomplete batches.  An epoch has ⌊N/batch⌋ steps; the N mod batch configurations at the end of the permutation are
left out of this epoch.  Every epoch has another permutation, so each configuration is left out equally often; the
factor N/|batch| stays constant and the gradient unbiased.  A batch larger than N is the whole set.
"""

import functools

import torch

from equibayes.errors import InputError
from equibayes.sampling.noise import STREAM_MINIBATCH, NoiseKey, random_words


def steps_per_epoch(data_size: int, batch_size: int) -> int:
    """⌊N/batch⌋, at least 1."""
    if data_size < 1 or batch_size < 1:
        raise InputError(f"data size {data_size} and batch size {batch_size} must both be at least 1")
    return max(1, data_size // batch_size)


def permutations(key: NoiseKey, epoch: int, data_size: int, stream: int = STREAM_MINIBATCH) -> torch.Tensor:
    """The order of epoch ``epoch`` for each chain: int64 [K, N] on the CPU."""
    words = random_words(key, epoch, 2 * data_size, stream=stream).reshape(-1, data_size, 2)
    keys = (words[..., 0] << 31) ^ words[..., 1]  # 63 bits: ties, which would favour the old order, do not occur
    return keys.argsort(dim=1, stable=True)


def batch_indices(
    key: NoiseKey, step: int, data_size: int, batch_size: int, *, stream: int = STREAM_MINIBATCH
) -> torch.Tensor:
    """The configurations of step ``step`` (0-based): int64 [K, min(batch_size, N)].

    ``step`` counts from the start of a phase in which N and the batch size are constant; give each phase its own
    ``stream`` (2, 3, …), or its first epochs repeat the orders of the phase before.
    The permutations of recent epochs are remembered, which changes the speed and nothing else.
    """
    epoch, position = divmod(step, steps_per_epoch(data_size, batch_size))
    order = _remembered(key.seed, tuple(key.chains), epoch, data_size, stream)
    return order[:, position * batch_size : (position + 1) * batch_size].clone()


@functools.lru_cache(maxsize=8)
def _remembered(seed: int, chains: tuple[int, ...], epoch: int, data_size: int, stream: int) -> torch.Tensor:
    return permutations(NoiseKey(seed, chains), epoch, data_size, stream)
