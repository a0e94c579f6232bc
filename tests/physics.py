"""What any interatomic potential must obey, as checks on a callable; nothing here knows how the numbers are computed.

    evaluate(structure) -> Evaluation        in float64

Each check raises AssertionError and says which law is broken.  Errors are relative to the size of the quantity.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from equibayes.data import Structure

EXACT = 1e-10
"""Relative agreement of two float64 evaluations that differ by rounding alone."""


@dataclass(frozen=True)
class Evaluation:
    """What a model says about one structure.

    energy       eV, of interaction: without the energy reference
    forces       [n, 3] eV/Å
    stress       [3, 3] eV/Å³, ASE's sign; None where the structure is not periodic in three directions
    sigma_energy eV
    sigma_forces [n] eV/Å
    features     [n, C] invariant features, or None where the engine does not give them
    sigma_stress eV/Å³; None where there is no stress, or the model does not learn it
    """

    energy: float
    forces: np.ndarray
    stress: np.ndarray | None
    sigma_energy: float
    sigma_forces: np.ndarray
    features: np.ndarray | None = None
    sigma_stress: float | None = None


Evaluate = Callable[[Structure], Evaluation]
FIELDS = ("energy", "forces", "stress", "sigma_energy", "sigma_forces", "features", "sigma_stress")


def assert_close(actual: object, expected: object, law: str, tolerance: float = EXACT) -> None:
    """Largest difference ≤ tolerance × largest expected value."""
    a, b = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    assert a.shape == b.shape, f"{law}: shapes {a.shape} and {b.shape}"
    assert np.isfinite(a).all(), f"{law}: not finite"
    assert np.isfinite(b).all(), f"{law}: expected value not finite"
    worst, size = np.abs(a - b).max(initial=0.0), np.abs(b).max(initial=0.0)
    assert worst <= tolerance * max(size, 1e-3), f"{law}: differs by {worst:.3g} where values are {size:.3g}"


def assert_same(actual: Evaluation, expected: Evaluation, law: str, tolerance: float = EXACT) -> None:
    """Every field of two evaluations agrees."""
    for name in FIELDS:
        a, b = getattr(actual, name), getattr(expected, name)
        assert (a is None) == (b is None), f"{law}: {name} is there only once"
        if a is not None:
            assert_close(a, b, f"{law}, {name}", tolerance)


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    """[3, 3] proper rotation, uniformly distributed."""
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q * np.linalg.det(q)


def check_equivariance(
    evaluate: Evaluate, structure: Structure, seed: int = 0, count: int = 2, *, inversion: bool = True
) -> None:
    """Rotations, the inversion and both together: scalars stay, forces and stress turn with the atoms."""
    rng, before = np.random.default_rng(seed), evaluate(structure)
    rotations = [random_rotation(rng) for _ in range(count)]
    for matrix in [*rotations, *([-np.eye(3), -rotations[0]] if inversion else [])]:
        law = f"E(3) equivariance (det {np.linalg.det(matrix):+.0f})"
        turned = replace(structure, positions=structure.positions @ matrix.T, cell=structure.cell @ matrix.T)
        stress = None if before.stress is None else matrix @ before.stress @ matrix.T
        expected = replace(before, forces=before.forces @ matrix.T, stress=stress)
        assert_same(evaluate(turned), expected, law)


def check_translation(evaluate: Evaluate, structure: Structure) -> None:
    """Nothing changes when everything moves; so the forces add up to 0."""
    before = evaluate(structure)
    moved = replace(structure, positions=structure.positions + np.array([1.7, -23.4, 0.77]))
    assert_same(evaluate(moved), before, "translation")
    assert_close(before.forces.sum(0) / np.abs(before.forces).max(), np.zeros(3), "sum of forces", 1e-9)


def check_permutation(evaluate: Evaluate, structure: Structure, seed: int = 0) -> None:
    """The order of the atoms means nothing."""
    before, order = evaluate(structure), np.random.default_rng(seed).permutation(len(structure))
    shuffled = replace(structure, numbers=structure.numbers[order], positions=structure.positions[order])
    features = None if before.features is None else before.features[order]
    expected = replace(before, forces=before.forces[order], sigma_forces=before.sigma_forces[order], features=features)
    assert_same(evaluate(shuffled), expected, "permutation")


def check_identical_atoms(evaluate: Evaluate, structure: Structure) -> None:
    """Two atoms of one species that exchange places leave the same structure behind."""
    numbers = structure.numbers.tolist()
    first = next(i for i, z in enumerate(numbers) if z in numbers[i + 1 :])
    second = numbers.index(numbers[first], first + 1)
    positions = structure.positions.copy()
    positions[[first, second]] = positions[[second, first]]
    before, after = evaluate(structure), evaluate(replace(structure, positions=positions))
    assert_close(after.energy, before.energy, "identical atoms swapped, energy")
    assert_close(after.forces[[second, first]], before.forces[[first, second]], "identical atoms swapped, forces")


def check_numeric_forces(evaluate: Evaluate, structure: Structure, seed: int = 0, directions: int = 0) -> None:
    """Forces are minus the gradient of the energy (central differences).

    All 3n coordinates one by one, or `directions` random directions of all atoms together for expensive models.
    """
    n, step = len(structure), 1e-4
    moves = np.eye(3 * n).reshape(-1, n, 3)
    if directions:
        moves = np.random.default_rng(seed).normal(size=(directions, n, 3))
    forces = evaluate(structure).forces
    numeric = [
        -(
            evaluate(replace(structure, positions=structure.positions + step * move)).energy
            - evaluate(replace(structure, positions=structure.positions - step * move)).energy
        )
        / (2 * step)
        for move in moves
    ]
    assert_close([(forces * move).sum() for move in moves], numeric, "forces = -dE/dr", 1e-5)


def check_numeric_stress(evaluate: Evaluate, structure: Structure) -> None:
    """Stress is the derivative of the energy by strain over the volume (central differences), and symmetric."""
    step, stress = 1e-4, evaluate(structure).stress
    assert stress is not None, "stress is missing"
    assert_close(stress, stress.T, "symmetric stress")

    def energy(strain: np.ndarray) -> float:
        deform = np.eye(3) + strain
        cell, positions = structure.cell @ deform.T, structure.positions @ deform.T
        return evaluate(replace(structure, cell=cell, positions=positions)).energy

    numeric = np.zeros((3, 3))
    for i in range(3):
        for j in range(i + 1):
            strain = np.zeros((3, 3))
            strain[i, j] += step / 2
            strain[j, i] += step / 2
            numeric[i, j] = numeric[j, i] = (energy(strain) - energy(-strain)) / (2 * step) / structure.volume
    assert_close(stress, numeric, "stress = dE/dstrain / V", 1e-5)


def check_cutoff(evaluate: Evaluate, structure: Structure, r_max: float, number: int) -> None:
    """An atom that crosses r_max appears smoothly: energy as the third, force as the second power of the depth; nothing
    beyond.

    structure: a molecule smaller than r_max; the atom `number` approaches its outermost atom from outside.
    """
    positions = structure.positions - structure.positions.mean(0)
    outermost = int(np.argmax(np.linalg.norm(positions, axis=1)))
    outward = positions[outermost] / np.linalg.norm(positions[outermost])

    def at(distance: float) -> Evaluation:
        probe = positions[outermost] + distance * outward
        return evaluate(
            replace(structure, numbers=[*structure.numbers, number], positions=np.vstack([positions, probe]))
        )

    alone = evaluate(replace(structure, positions=positions))
    for distance in (r_max + 1e-6, 2 * r_max):
        beyond = at(distance)
        assert abs(beyond.energy - alone.energy) <= 1e-13 * max(abs(alone.energy), 1e-3), "cutoff: energy beyond r_max"
        assert_close(beyond.forces[:-1], alone.forces, "cutoff: forces beyond r_max", 1e-12)
        assert np.all(beyond.forces[-1] == 0), "cutoff: force on an atom beyond r_max"
    energy, force = [], []
    for depth in (0.5, 0.002, 0.001):
        inside = at(r_max - depth)
        energy.append(abs(inside.energy - alone.energy))
        force.append(np.abs(inside.forces[-1]).max())
    assert energy[0] > 1e-8, "cutoff: the approaching atom is never felt"
    # close to the cutoff, halving the depth divides the energy by 8 and the force by 4; 1e-14 eV is rounding
    assert energy[2] < energy[1] / 6.5 + 1e-14, f"cutoff: energy is not smooth: {energy}"
    assert force[1] / force[2] > 3.3, f"cutoff: force is not smooth: {force}"


def check_batch(
    evaluate: Evaluate, evaluate_batch: Callable[[Sequence[Structure]], list[Evaluation]], structures: list[Structure]
) -> None:
    """Structures evaluated together give what they give alone."""
    for structure, together in zip(structures, evaluate_batch(structures), strict=True):
        assert_same(together, evaluate(structure), f"batch = single ({structure.source})")


def check_isolated_atoms(evaluate: Evaluate, numbers: Sequence[int], r_max: float) -> None:
    """Atoms without neighbours, alone or several far apart: exactly no energy of interaction and no force."""
    apart = np.arange(len(numbers))[:, None] * np.array([[1.5 * r_max, 0.0, 0.0]])
    box = 10 * r_max * len(numbers) * np.eye(3)
    cases = [Structure(numbers=[z], positions=np.zeros((1, 3))) for z in numbers]
    cases.append(Structure(numbers=list(numbers), positions=apart))
    cases.append(Structure(numbers=list(numbers), positions=apart, cell=box, pbc=[True] * 3))
    for case in cases:
        result = evaluate(case)
        assert result.energy == 0.0, f"isolated atoms: energy {result.energy}"
        assert np.all(result.forces == 0.0), "isolated atoms: force"
        assert result.stress is None or np.all(result.stress == 0.0), "isolated atoms: stress"
        assert np.isfinite(result.sigma_energy), "isolated atoms: sigma_energy"
        assert result.sigma_stress is None or np.isfinite(result.sigma_stress), "isolated atoms: sigma_stress"
        assert np.isfinite(result.sigma_forces).all(), "isolated atoms: sigma_forces"
    assert evaluate(cases[-1]).stress is not None, "isolated atoms: a periodic box has a stress"
