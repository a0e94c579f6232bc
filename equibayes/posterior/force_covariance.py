"""The covariance of the forces of one structure: how large errors are in each direction, and how those of different
atoms go together.

    prediction = posterior.predict(atoms, covariance=True)
    found = prediction.forces_covariance
    found.total                       # [n, 3, n, 3] (eV/Å)²
    found.atoms                       # [n, 3, 3], of single atoms
    found.sigma(stretching(positions, 0, 1))          # eV/Å, of the force that stretches a bond
    found.sigma(net_force(len(atoms), [0, 1, 2]))     # [3] eV/Å, of the net force on a fragment
    found.sigma(torque(positions, [0, 1, 2]))         # [3] eV, of the torque on it

The parts are those of σ: epistemic, of the k samples, and aleatoric, the mean of their noise.  Their diagonals are
`forces_epistemic`² and `forces_aleatoric`², up to what net force and torque change.

**Few samples.**  k samples span k − 1 directions of 3n, and chance correlates them.  They are drawn towards a
matrix without correlations but those that mechanics demands, by the weight λ that minimises the expected squared error
of the correlations (Schäfer and Strimmer 2005), estimated from the samples themselves:

    (1 − λ) r + λ t,      λ = Σ Var(r_ij) / Σ (r_ij − t_ij)²,      1/(k − 1) ≤ λ ≤ 1

**Net force and torque.**  The forces on an isolated molecule add up to zero and exert no torque, in every sample and in
every correct label.  A covariance that says otherwise is conditioned on it, with its trace kept (data/rigid.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from equibayes.data.rigid import LEAST_NOISE, rigid_directions_of
from equibayes.data.structures import FloatArray, Structure
from equibayes.errors import InputError
from equibayes.posterior.force_noise import MOST_ATOMS
from equibayes.posterior.sigma import Sigma

FEWEST_ATOMS = 3
"""Below, net force and torque leave no freedom for a diagonal of its own."""


@dataclass(frozen=True, eq=False)
class ForceCovariance:
    """epistemic, aleatoric: [n, 3, n, 3] (eV/Å)²."""

    epistemic: FloatArray
    aleatoric: FloatArray

    @property
    def total(self) -> FloatArray:
        return self.epistemic + self.aleatoric

    @property
    def atoms(self) -> FloatArray:
        """[n, 3, 3] of each atom by itself."""
        return np.einsum("iaib->iab", self.total).copy()

    def sigma(self, directions: FloatArray, part: str = "total") -> FloatArray:
        """Standard deviation of Σ_ia w_ia F_ia for weights [..., n, 3], in their unit times eV/Å.

        part: total, epistemic or aleatoric
        """
        matrix = getattr(self, part)
        variance = np.einsum("...ia,iajb,...jb->...", directions, matrix, directions, optimize=True)
        return np.sqrt(np.maximum(variance, 0.0))


def check_size(structures: Sequence[Structure]) -> None:
    """An `InputError` where the covariance would be too large."""
    for structure in structures:
        if len(structure) > MOST_ATOMS:
            raise InputError(
                f"{structure.source or 'structure'}: a covariance of the forces is computed for up to {MOST_ATOMS} atoms, "
                f"not {len(structure)}; ask for it in a smaller structure, or leave it out"
            )


def stretching(positions: FloatArray, first: int, second: int) -> FloatArray:
    """Weights [n, 3] of the force that pulls two atoms apart, ½ (F_second − F_first) · u."""
    away = positions[second] - positions[first]
    weights = np.zeros_like(positions, dtype=np.float64)
    weights[second] = 0.5 * away / np.linalg.norm(away)
    weights[first] = -weights[second]
    return weights


def net_force(count: int, atoms: Sequence[int]) -> FloatArray:
    """Weights [3, n, 3] of the three components of the force on a group of atoms in a structure of `count`."""
    weights = np.zeros((3, count, 3))
    for axis in range(3):
        weights[axis, list(atoms), axis] = 1.0
    return weights


def torque(positions: FloatArray, atoms: Sequence[int], about: FloatArray | None = None) -> FloatArray:
    """Weights [3, n, 3], Å, of the torque on a group of atoms about a point, by default the mean of their positions."""
    own = list(atoms)
    arms = positions[own] - (positions[own].mean(0) if about is None else about)
    weights = np.zeros((3, len(positions), 3))
    weights[:, own] = np.cross(np.eye(3)[:, None], arms)  # (r × F)_a = (e_a × r) · F
    return weights


def covariance_of(
    structure: Structure,
    members: FloatArray,
    noise: FloatArray,
    raw: Sigma,
    reported: Sigma,
    rigid_noise: float | None,
) -> ForceCovariance:
    """From the forces [k, n, 3] and noise covariances [k, 3n, 3n] of the samples.

    raw, reported  σ of the components [n, 3], as predicted and with calibration and the floor of novelty
    rigid_noise    of the labels along net force and torque, where it is known; of molecules it is none
    """
    directions, least = rigid_of(structure, rigid_noise)

    def known(matrix: FloatArray) -> FloatArray:
        return matrix if directions is None else conditioned(matrix, directions, least)

    spread = shrunk(members, known(np.diag(np.square(raw.epistemic).ravel())))
    factor = (
        np.divide(reported.aleatoric, raw.aleatoric, out=np.zeros_like(raw.aleatoric), where=raw.aleatoric > 0)
    ).ravel()
    shape = (len(structure), 3, len(structure), 3)
    aleatoric = known(noise.mean(0) * factor * factor[:, None])
    if trace := float(np.trace(aleatoric)):
        aleatoric = aleatoric * (float(np.square(reported.aleatoric).sum()) / trace)
    return ForceCovariance(
        _widened(spread, raw.epistemic, reported.epistemic, known).reshape(shape), aleatoric.reshape(shape)
    )


def _widened(
    spread: FloatArray, raw: FloatArray, wanted: FloatArray, known: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """A covariance of samples with σ of `wanted` in place of `raw`, [n, 3] both.

    One factor for all of it: with factors of single atoms, forces of a molecule would not add up to 0.  What is then
    missing, as where an atom is novel, is independent of the rest.
    """
    before, after = np.square(raw), np.square(wanted)
    moving = before.sum(1) > 0
    scale = float((after.sum(1)[moving] / before.sum(1)[moving]).min()) if moving.any() else 0.0
    return np.asarray(scale * spread + known(np.diag((after - scale * before).clip(min=0.0).ravel())))


def rigid_of(structure: Structure, rigid_noise: float | None) -> tuple[FloatArray | None, float]:
    """Directions [3n, c] in which forces have no error, and the noise of labels there; None: nothing is known."""
    if len(structure) < FEWEST_ATOMS or (rigid_noise is None and structure.pbc.any()):
        return None, 0.0
    found = rigid_directions_of(structure).reshape(3 * len(structure), -1)
    return found[:, np.any(found != 0, 0)], rigid_noise or LEAST_NOISE


def shrunk(members: FloatArray, target: FloatArray, weight: float | None = None) -> FloatArray:
    """Covariance [3n, 3n] of k samples [k, n, 3] (ddof 0), drawn towards another.

    weight: λ; None: as estimated
    """
    k = len(members)
    apart = members.reshape(k, -1) - members.reshape(k, -1).mean(0)
    if weight is None:
        weight = shrinkage(apart, target)
    return np.asarray((1 - weight) * apart.T @ apart / k + weight * target)


def shrinkage(apart: FloatArray, target: FloatArray) -> float:
    """λ from deviations [k, 3n], with Σ_ij Var(r_ij) = k/(k−1)³ Σ_ij Σ_s (z_si z_sj − r_ij)² of correlations r."""
    k, size = len(apart), np.sqrt(np.square(apart).mean(0))
    if k < 3 or not size.any():
        return 1.0
    moving = size > 0
    z, aim = apart[:, moving] / size[moving], target[np.ix_(moving, moving)] / np.outer(size[moving], size[moving])
    correlation = z.T @ z / k
    off = ~np.eye(len(aim), dtype=bool)
    # Σ_ij (z_si z_sj)² = (Σ_i z_si²)²
    products = float(np.square(np.square(z).sum(1)).sum() - (z**4).sum())
    variance = k / (k - 1) ** 3 * (products - k * float(np.square(correlation[off]).sum()))
    apart_from_aim = float(np.square((correlation - aim)[off]).sum())
    return float(np.clip(variance / apart_from_aim, 1 / (k - 1), 1.0)) if apart_from_aim else 1.0


def conditioned(matrix: FloatArray, rigid: FloatArray, noise: float) -> FloatArray:
    """A covariance that knows of no error but `noise` along the columns of `rigid` [3n, c], with the same trace."""
    trace = float(np.trace(matrix))
    if not trace:
        return matrix
    least = min(noise, 0.1 * float(np.sqrt(trace / len(matrix))))
    along = matrix @ rigid
    inner = rigid.T @ along + least**2 * np.eye(rigid.shape[1])
    found = matrix - along @ np.linalg.solve(inner, along.T)
    return np.asarray(0.5 * (found + found.T) * (trace / np.trace(found)))
