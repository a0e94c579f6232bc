"""Random masks on the features of an atom, for the dropout baseline (appendix A.4 of the paper)."""

from collections.abc import Sequence

import torch

from equibayes.sampling.noise import NoiseKey, random_words

# the paper drops on average one of 64 features
RATE = 1 / 64
STREAM_TRAIN, STREAM_PREDICT = 8, 9  # of the counter-based noise; chains have the smaller numbers


def dropout_mask(
    key: NoiseKey, step: int, shape: tuple[int, int], rate: float, like: torch.Tensor, stream: int = STREAM_TRAIN
) -> torch.Tensor:
    """[K, atoms, features]: 0 with probability `rate`, else 1/(1 − rate); a pure function of (seed, chain, step)."""
    words = random_words(key, step, shape[0] * shape[1], stream=stream, device=like.device)
    kept = (words >= int(rate * 2**32)).to(like.dtype)
    return (kept / (1 - rate)).reshape(len(key.chains), *shape)


def prediction_masks(
    rate: float, samples: torch.Tensor, sizes: Sequence[int], features: int, first: int = 0
) -> torch.Tensor:
    """[k, Σ sizes, features]: k fixed masks, which depend on the place of an atom in its structure alone.

    So predictions are reproducible, and energies are smooth functions of positions.  `first` is the number of the
    first of these samples.
    """
    key = NoiseKey(0, range(first, first + len(samples)))
    longest = dropout_mask(key, 0, (max(sizes), features), rate, samples, STREAM_PREDICT)
    return torch.cat([longest[:, :size] for size in sizes], 1)
