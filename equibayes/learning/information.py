"""The information that a label would give, from the k posterior samples: pure functions of arrays.

Under sample s the force components of a structure are f_s + noise, with the predicted noise σ_a.  Deviations of the
samples from their mean, divided by the noise, are the rows of

    Z [k, 3n],    Z_sc = (f_sc − mean_s f_sc) / σ_a,c

For one component, the Gaussian fitted to the mixture has the variance σ_a²(1 + mean_s Z_s²), so that a label gives

    ½ ln(total variance / aleatoric variance)        nats.

Several components share the same k samples; their joint information (BALD for a structure, or for a batch) is

    ½ ln det(1 + Z Zᵀ/k),        1 and Z Zᵀ being k × k,

in which correlated forces are not counted twice.  A batch is chosen greedily: a structure is worth what it adds to

    S = 1 + Σ_chosen Z Zᵀ/k,

and the epistemic variance of a component that remains after labelling the batch is σ_a² · zᵀ S⁻¹ z / k.
"""

from collections.abc import Callable, Sequence

import numpy as np

from equibayes.simulate.trust import Deviation


def whitened(forces: np.ndarray, aleatoric: np.ndarray) -> np.ndarray:
    """Z [k, 3n] from the forces [k, n, 3] of the samples and the aleatoric σ [n, 3], both eV/Å."""
    return ((forces - forces.mean(0)) / aleatoric).reshape(len(forces), -1)


def information(z: np.ndarray) -> float:
    """Information of the label of one structure, in nats; 0 if all samples agree."""
    return _half_log_det(np.eye(len(z)) + z @ z.T / len(z))


def greedy_information(structures: Sequence[np.ndarray], count: int) -> tuple[list[int], list[float]]:
    """Indices of a batch in the order of choice, and the information that each added, in nats.

    structures: Z [k, 3n] of each candidate.
    """
    grams = [z @ z.T / len(z) for z in structures]

    def added(known: np.ndarray) -> list[float]:
        before = _half_log_det(known)
        return [_half_log_det(known + gram) - before for gram in grams]

    return _greedy(structures, count, added)


def greedy_sigma(
    structures: Sequence[np.ndarray], aleatoric: Sequence[np.ndarray], count: int
) -> tuple[list[int], list[float]]:
    """Indices of a batch, each with the largest atomic σ (eV/Å) that remains after labelling those before it.

    structures: Z [k, 3n] of each candidate; aleatoric: its σ_a [n, 3], eV/Å.
    """

    def left(known: np.ndarray) -> list[float]:
        inverse = np.linalg.inv(known)
        return [_largest_left(z, sigma, inverse) for z, sigma in zip(structures, aleatoric, strict=True)]

    return _greedy(structures, count, left)


def greedy_stress(
    forces: Sequence[np.ndarray], stress: Sequence[np.ndarray], noise: Sequence[float], count: int
) -> tuple[list[int], list[float]]:
    """Indices of a batch, each with the largest σ of the stress that remains after labelling those before it: the root
    mean square over its six components, eV/Å³.

    forces, stress: Z [k, 3n] and [k, 9] of each candidate, whose label has both; noise: aleatoric σ of the stress.
    """

    def left(known: np.ndarray) -> list[float]:
        inverse = np.linalg.inv(known)
        shares = (np.einsum("sc,st,tc->", z, inverse, z) / (6 * len(z)) for z in stress)
        return [sigma * float(np.sqrt(1 + share)) for sigma, share in zip(noise, shares, strict=True)]

    return _greedy([np.hstack(both) for both in zip(forces, stress, strict=True)], count, left)


def _greedy(
    structures: Sequence[np.ndarray], count: int, worth: Callable[[np.ndarray], list[float]]
) -> tuple[list[int], list[float]]:
    """Indices and values of a batch; worth: of each structure, given S [k, k] of those chosen before."""
    chosen: list[int] = []
    values: list[float] = []
    known = np.eye(len(structures[0])) if structures else np.eye(1)
    while len(chosen) < min(count, len(structures)):
        now = np.array(worth(known))
        now[chosen] = -np.inf
        best = int(np.argmax(now))
        chosen.append(best)
        values.append(float(now[best]))
        known = known + structures[best] @ structures[best].T / len(known)
    return chosen, values


def _largest_left(z: np.ndarray, aleatoric: np.ndarray, inverse: np.ndarray) -> float:
    epistemic = np.einsum("sc,st,tc->c", z, inverse, z).reshape(aleatoric.shape) / len(z)
    return Deviation.of(aleatoric * np.sqrt(1 + epistemic)).largest


def _half_log_det(matrix: np.ndarray) -> float:
    return 0.5 * float(np.linalg.slogdet(matrix)[1])
