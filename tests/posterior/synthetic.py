"""Errors with a known relation to σ, made without a network: what calibration is tested on."""

import numpy as np

from equibayes.posterior.rescale import Residuals
from equibayes.posterior.sigma import Sigma

ETHANOL = np.array([6, 6, 8, 1, 1, 1, 1, 1, 1])


def force_errors(
    rng: np.random.Generator,
    frames: int,
    *,
    factor: float | dict[int, float] = 1.0,
    spread: float = 1.0,
    power: float = 1.0,
    heavy_tails: bool = False,
    differing_frames: float = 0.0,
    k: int = 8,
) -> Residuals:
    """Force components of `frames` ethanol molecules whose true deviation is factor · √(aleatoric² + spread² ·
    epistemic²)^power.

    factor            one number, or one for each atomic number
    heavy_tails       Student's t with 4 degrees of freedom (same variance) instead of Gaussian errors
    differing_frames  spread of ln σ between configurations, which σ does not know
    """
    number = np.repeat(np.tile(ETHANOL, frames), 3)
    frame = np.repeat(np.arange(frames), 3 * len(ETHANOL))
    return _errors(rng, number, frame, factor, spread, power, heavy_tails, differing_frames, k)


def energy_errors(
    rng: np.random.Generator, frames: int, *, factor: float = 1.0, heavy_tails: bool = False, k: int = 8
) -> Residuals:
    """One error a frame."""
    return _errors(rng, np.zeros(frames, dtype=int), np.arange(frames), factor, 1.0, 1.0, heavy_tails, 0.0, k)


def _errors(
    rng: np.random.Generator,
    number: np.ndarray,
    frame: np.ndarray,
    factor: float | dict[int, float],
    spread: float,
    power: float,
    heavy_tails: bool,
    differing_frames: float,
    k: int,
) -> Residuals:
    count = len(number)
    aleatoric, epistemic = np.exp(rng.normal(0, 0.5, count)), np.exp(rng.normal(-0.5, 0.7, count))
    true = np.hypot(aleatoric, spread * epistemic) ** power
    true *= np.array([factor[z] for z in number.tolist()]) if isinstance(factor, dict) else factor
    true *= np.exp(differing_frames * rng.normal(size=frame.max() + 1))[frame]
    shape = rng.standard_t(4, count) / np.sqrt(2) if heavy_tails else rng.normal(size=count)
    return Residuals(true * shape, Sigma(epistemic, aleatoric), number, frame, k)
