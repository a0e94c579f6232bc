"""How good covariances of forces are.

`error` is prediction minus truth [m], `covariance` [m, m] its predicted covariance, in squared units of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi

import numpy as np

from equibayes.data.structures import FloatArray, Structure
from equibayes.posterior.prediction import Prediction

LEAST = 1e-6
"""eV/Å, added to every direction: labels are no better known."""
DRAWS = 64
"""Of the energy score."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """Of F frames with A atoms; NaN without labels.

    atoms           [A, 3, 3] covariance of the force on each atom, (eV/Å)²
    distance        [A] squared Mahalanobis distance of its error in it
    log_likelihood  [F] of all forces together, per vector
    independent     [F] the same with independent components
    energy_score    [F] eV/Å
    """

    atoms: FloatArray
    distance: FloatArray
    log_likelihood: FloatArray
    independent: FloatArray
    energy_score: FloatArray

    def coverage(self, level: float) -> float:
        """Share of the force vectors within the ellipsoids that should hold `level` of them."""
        from scipy.stats import chi2  # only here: studies on a bare machine have no SciPy

        return float((self.distance[np.isfinite(self.distance)] <= chi2.ppf(level, 3)).mean())


def vectors_of(structures: Sequence[Structure], predictions: Sequence[Prediction]) -> Vectors | None:
    """None where the predictions have no covariances."""
    if any(prediction.forces_covariance is None for prediction in predictions):
        return None
    columns = zip(*(_of_one(*each) for each in zip(structures, predictions)))
    return Vectors(*(np.concatenate(column) for column in columns))


def _of_one(structure: Structure, prediction: Prediction) -> tuple[FloatArray, ...]:
    assert prediction.forces_covariance is not None
    count, atoms = len(structure), prediction.forces_covariance.atoms
    if structure.forces is None:
        return atoms, np.full(count, np.nan), *(np.full(1, np.nan) for _ in range(3))
    error = prediction.forces - structure.forces
    whole = prediction.forces_covariance.total.reshape(3 * count, 3 * count) + LEAST**2 * np.eye(3 * count)
    distance = np.einsum("ia,iab,ib->i", error, np.linalg.inv(atoms + LEAST**2 * np.eye(3)), error)
    independent = np.diag(np.square(prediction.forces_std).ravel() + LEAST**2)
    together, apart = (log_likelihood(error.ravel(), each) / count for each in (whole, independent))
    return atoms, distance, *(np.array([each]) for each in (together, apart, energy_score(error.ravel(), whole)))


def log_likelihood(error: FloatArray, covariance: FloatArray) -> float:
    """ln N(error; 0, covariance).  Higher is better; of a structure with n atoms, divide by n for that per vector."""
    root = np.linalg.cholesky(covariance)
    z = np.linalg.solve(root, error)
    return float(-0.5 * z @ z - np.log(np.diagonal(root)).sum() - 0.5 * len(error) * log(2 * pi))


def energy_score(error: FloatArray, covariance: FloatArray, seed: int = 0) -> float:
    """E|X − error| − ½ E|X − X′| for draws X, X′ of the Gaussian, in the unit of the error.  Lower is better.

    The continuous ranked probability score of a vector; from `DRAWS` draws.
    """
    normal = np.random.default_rng(seed).normal(size=(DRAWS, len(error)))
    draws = normal @ np.linalg.cholesky(covariance).T
    to_truth = np.linalg.norm(draws - error, axis=1).mean()
    between = np.linalg.norm(draws[:, None] - draws, axis=2).sum() / (DRAWS * (DRAWS - 1))
    return float(to_truth - 0.5 * between)


def without(directions: FloatArray, error: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both in the space orthogonal to columns [m, c], such as net force and torque."""
    rest = np.linalg.svd(directions)[0][:, directions.shape[1] :]
    return rest.T @ error, rest.T @ covariance @ rest
