"""Observables of every posterior sample from one trajectory, by reweighting its frames.

Frames drawn with the energy E (the mean over the samples, plus a bias if there was one) at temperature T represent
those of sample i with the weights

    w_i(t) ∝ exp(−(E_i(t) − E(t)) / k_B T),      effective number of frames (Σ w_i)² / Σ w_i²      (Kish 1965)

The spread of the results over the samples is the uncertainty of the observable, as with one simulation per sample, at a
small part of the cost.  Where few effective frames are left, the samples differ too much for it.
"""

from collections.abc import Sequence

import numpy as np
from ase import Atoms, units

from equibayes.errors import InputError
from equibayes.posterior.sigma import DDOF
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.observables import BLOCKS, Estimate, member_energies

FEWEST = 20
"""Effective frames of a sample below which its value is not to be trusted."""


def log_weights(calculator: Calculator, frames: Sequence[Atoms], temperature: float) -> np.ndarray:
    """ln w [k, frames], largest 0, of frames of a trajectory (their energy and, if any, bias are in the file).

    calculator   with members=True
    temperature  K
    """
    if not 0 < temperature < float("inf"):
        raise InputError(
            f"temperature {temperature:g} K: reweighting needs the temperature that the frames were drawn at"
        )
    drawn = np.array([frame.get_potential_energy() + frame.info.get("bias", 0.0) for frame in frames])
    away = np.array(member_energies(calculator, frames)) - drawn
    exponent = -away / (units.kB * temperature)
    return exponent - exponent.max(1, keepdims=True)


def effective(log_weight: np.ndarray) -> np.ndarray:
    """[k] effective numbers of frames of ln w [k, frames]."""
    weight = np.exp(log_weight - log_weight.max(-1, keepdims=True))
    return weight.sum(-1) ** 2 / np.square(weight).sum(-1)


def reweighted(values: np.ndarray, log_weight: np.ndarray, blocks: int = BLOCKS) -> Estimate:
    """The estimate of every sample from values [frames, …] and ln w [k, frames].

    The statistical error of the mean over samples is that of leaving out one of a few long blocks of frames at a time.
    """
    members = _means(values, log_weight)
    parts = np.array_split(np.arange(len(values)), blocks)
    sampling = np.full(members.shape[1:], np.nan)
    if len(values) >= 2 * blocks:
        kept = (np.setdiff1d(np.arange(len(values)), part) for part in parts)
        without = np.stack([_means(values[own], log_weight[:, own]).mean(0) for own in kept])
        sampling = np.sqrt((blocks - 1) * without.var(0))
    return Estimate(members.mean(0), members, members.std(0, ddof=DDOF), sampling)


def _means(values: np.ndarray, log_weight: np.ndarray) -> np.ndarray:
    """[k, …]"""
    weight = np.exp(log_weight - log_weight.max(1, keepdims=True))
    return np.tensordot(weight / weight.sum(1, keepdims=True), values, 1)
