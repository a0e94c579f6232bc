"""Properties of a simulation with their uncertainty, propagated from the posterior.

Every posterior sample is a potential and gives its own value of a property.  The spread of these values is the
epistemic uncertainty of the property.  Both ways to compute it are plain means without reweighting:

    mean energy of given frames   energies of the same frames for every sample   member_energies
    structural properties         one simulation per sample (`observe.py`)        bond_length, radial_distribution

`estimate` gives mean, spread over samples, and the statistical error of finite simulations: a spread below that error
may be due to it alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import numpy as np
from ase import Atoms

from equibayes.data.elements import atomic_number
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.posterior.sigma import DDOF
from equibayes.simulate.calculator import Calculator

BLOCKS = 5
FRAMES_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class Estimate:
    """A property, one number or an array.

    mean      over frames and samples
    members   [k, …] mean over frames of each sample
    spread    standard deviation over samples: the epistemic uncertainty
    sampling  standard error of `mean` due to finite simulations, from block averages; NaN with too few frames
    """

    mean: np.ndarray
    members: np.ndarray
    spread: np.ndarray
    sampling: np.ndarray


def estimate(values: Sequence[np.ndarray], blocks: int = BLOCKS) -> Estimate:
    """From one array [frames, …] for each of k samples.

    Successive frames are correlated, so the statistical error is computed from the means of a few long blocks.
    """
    if not values or any(len(each) == 0 for each in values):
        raise InputError("an estimate needs at least one frame of every sample")
    members = np.stack([np.mean(each, axis=0) for each in values])
    errors = np.stack([_error_of_mean(np.asarray(each, dtype=np.float64), blocks) for each in values])
    # simulations of different samples are independent
    sampling = np.sqrt(np.square(errors).sum(0)) / len(values)
    return Estimate(members.mean(0), members, members.std(0, ddof=DDOF), sampling)


def _error_of_mean(values: np.ndarray, blocks: int) -> np.ndarray:
    """Standard error of the mean over the first axis."""
    if len(values) < 2 * blocks:
        return np.full(values.shape[1:], np.nan)
    means = np.stack([part.mean(0) for part in np.array_split(values, blocks)])
    return means.std(0, ddof=1) / np.sqrt(blocks)


def member_energies(calculator: Calculator, frames: Sequence[Atoms]) -> list[np.ndarray]:
    """[frames] eV for every sample, for `estimate`; the calculator must have `members=True`."""
    if not calculator.members:
        raise InputError("member_energies: make the calculator with members=True")
    parts = [
        result["energy_ensemble"]
        for first in range(0, len(frames), FRAMES_AT_ONCE)
        for result in calculator.evaluate_many(frames[first : first + FRAMES_AT_ONCE])
    ]
    return list(np.array(parts).reshape(len(frames), len(calculator.posterior)).T)


def bond_length(frames: Sequence[Atoms], i: int, j: int) -> np.ndarray:
    """[frames] Å between two atoms (counted from 0); minimum image in periodic cells."""
    return np.array([atoms.get_distance(i, j, mic=bool(atoms.pbc.any())) for atoms in frames])


def radial_distribution(
    frames: Sequence[Atoms], first: str, second: str, r_max: float, bins: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the bins [bins] in Å and g(r) [frames, bins] between two elements.

    In a periodic cell g tends to 1 at large r.  For a molecule, which has no density, it is the number of atoms
    `second` per Å of distance around an atom `first`.
    """
    from equibayes.data.neighbors import neighbor_list

    a, b = atomic_number(first), atomic_number(second)
    edges = np.linspace(0.0, r_max, bins + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    result = np.zeros((len(frames), bins))
    for row, atoms in zip(result, frames):
        centre_count, other_count = int((atoms.numbers == a).sum()), int((atoms.numbers == b).sum())
        if not centre_count or not other_count:
            raise InputError(f"radial distribution {first}-{second}: no such pair in {atoms.get_chemical_formula()}")
        pairs = neighbor_list(atoms.positions, atoms.cell.array, atoms.pbc, r_max)
        wanted = (atoms.numbers[pairs.receiver] == a) & (atoms.numbers[pairs.sender] == b)
        counts, _ = np.histogram(np.linalg.norm(pairs.vector[wanted], axis=1), edges)
        per_length = counts / centre_count / np.diff(edges)
        if atoms.pbc.all():
            per_length /= 4 * pi * centres**2 * other_count / atoms.get_volume()
        row[:] = per_length
    return centres, result


def single_sample(posterior: Posterior, index: int) -> Posterior:
    """One sample as a posterior."""
    return posterior.take([index])
