"""How good covariances of forces are: pure functions of errors and covariances of single structures.

`error` is prediction minus truth [m], `covariance` [m, m] its predicted covariance, in squared units of it.
"""

from math import log, pi

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.stats import chi2

from equibayes.data.structures import FloatArray

DRAWS = 64
"""Of the energy score."""


def log_likelihood(error: FloatArray, covariance: FloatArray) -> float:
    """ln N(error; 0, covariance).  Higher is better; of a structure with n atoms, divide by n for that per vector."""
    root = cholesky(covariance, lower=True)
    z = solve_triangular(root, error, lower=True)
    return float(-0.5 * z @ z - np.log(np.diagonal(root)).sum() - 0.5 * len(error) * log(2 * pi))


def squared_distance(error: FloatArray, covariance: FloatArray) -> float:
    """Squared Mahalanobis distance errorᵀ covariance⁻¹ error; its mean is m where the covariance is right."""
    z = solve_triangular(cholesky(covariance, lower=True), error, lower=True)
    return float(z @ z)


def ellipsoid_coverage(error: FloatArray, covariance: FloatArray, level: float) -> float:
    """Share of the force vectors [n, 3] within the ellipsoid of [n, 3, 3] that should hold `level` of them."""
    inverse = np.linalg.inv(covariance)
    squared = np.einsum("ia,iab,ib->i", error, inverse, error)
    return float((squared <= chi2.ppf(level, 3)).mean())


def energy_score(error: FloatArray, covariance: FloatArray, seed: int = 0) -> float:
    """E|X − error| − ½ E|X − X′| for draws X, X′ of the Gaussian, in the unit of the error.  Lower is better.

    The continuous ranked probability score of a vector; from `DRAWS` draws.
    """
    normal = np.random.default_rng(seed).normal(size=(DRAWS, len(error)))
    draws = normal @ cholesky(covariance, lower=True).T
    to_truth = np.linalg.norm(draws - error, axis=1).mean()
    between = np.linalg.norm(draws[:, None] - draws, axis=2).sum() / (DRAWS * (DRAWS - 1))
    return float(to_truth - 0.5 * between)


def without(directions: FloatArray, error: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both in the space orthogonal to columns [m, c], such as net force and torque."""
    rest = np.linalg.svd(directions)[0][:, directions.shape[1] :]
    return rest.T @ error, rest.T @ covariance @ rest
