"""Observed and predicted densities of errors, and the paper's calibration errors (its appendix A.5).

Errors are sorted into bins [iδ, (i + 1)δ).  f_i is the share of observed errors in bin i, e_i the predicted
probability of that bin: the mean over all components of the mass that the Gaussian N(0, σ²) of each has in it.  Then

    ECE = Σ_i f_i |f_i − e_i|        NECE = ECE / δ

over all bins that the data reach (others have f_i = 0 and add nothing).  ECE has no unit but depends on δ; NECE
estimates the mean distance of the two densities and has the unit 1/error.  Lower is better; neither is 0 for finite
data, even if σ is perfect.

δ is the paper's 0.01 kcal/(mol Å), for energies 0.01 kcal/mol; here in eV(/Å), whatever unit the result is given in.
For the stress, of which the paper has none, it is the same number in eV/Å³, 0.07 GPa.
"""

from dataclasses import dataclass

import numpy as np

from equibayes.evaluation import normal
from equibayes.evaluation.metrics import Undefined, densities
from equibayes.units import KCAL_PER_MOL

BIN_WIDTH = 0.01 * KCAL_PER_MOL
"""δ in eV or eV/Å."""
# σ that differ by less than this relative step are taken together; e_i changes by less than 1e-6 of itself
_SAME_SIGMA = 1e-3
_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class ErrorDensity:
    """left: lower edges of bins in the unit of the error; observed f, predicted e: shares of the bins; all [m]."""

    left: np.ndarray
    width: float
    observed: np.ndarray
    predicted: np.ndarray


def expected_calibration_error(error: np.ndarray, sigma: np.ndarray, width: float = BIN_WIDTH) -> float:
    """The paper's ECE, without unit."""
    error, sigma = densities(error, sigma)
    number, count = np.unique(bin_number(error, width), return_counts=True)
    observed = count / error.size
    return float((observed * np.abs(observed - predicted_mass(number * width, sigma, width))).sum())


def normalized_calibration_error(error: np.ndarray, sigma: np.ndarray, width: float = BIN_WIDTH) -> float:
    """The paper's NECE, in 1/(unit of the error)."""
    return expected_calibration_error(error, sigma, width) / width


def error_density(
    error: np.ndarray, sigma: np.ndarray, width: float = BIN_WIDTH, reach: float | None = None
) -> ErrorDensity:
    """Both densities on contiguous bins that cover all errors, or −reach … reach.  Divide by `width` for a density."""
    error, sigma = densities(error, sigma)
    number = bin_number(error, width)
    if reach is None:
        first, last = int(number.min()), int(number.max())
    else:
        last = max(1, int(np.ceil(reach / width))) - 1
        first = -last - 1
    if last - first > 10_000_000:
        raise Undefined("the errors reach too far for bins of this width")
    observed = np.bincount(number[(number >= first) & (number <= last)] - first, minlength=last - first + 1)
    left = np.arange(first, last + 1) * width
    return ErrorDensity(left, width, observed / error.size, predicted_mass(left, sigma, width))


def bin_number(error: np.ndarray, width: float) -> np.ndarray:
    """i of the bin [iδ, (i + 1)δ) that holds each error."""
    return np.floor(np.asarray(error) / width).astype(np.int64)


def predicted_mass(left: np.ndarray, sigma: np.ndarray, width: float) -> np.ndarray:
    """Mean over all σ of Φ((left + δ)/σ) − Φ(left/σ), for every bin [m]."""
    step = np.round(np.log(sigma) / _SAME_SIGMA).astype(np.int64)
    _, group, count = np.unique(step, return_inverse=True, return_counts=True)
    typical = np.exp(np.bincount(group, np.log(sigma)) / count)  # [g] mean of ln σ in each group
    weight = count / sigma.size
    result = np.empty(len(left))
    size = max(1, _AT_ONCE // len(typical))
    for start in range(0, len(left), size):
        part = left[start : start + size, None]
        # far right both Φ are near 1 and their difference is lost; the mirrored bin far left is exact
        low = np.where(part > 0, -(part + width), part)
        mass = normal.cdf((low + width) / typical) - normal.cdf(low / typical)
        result[start : start + size] = mass @ weight
    return result
