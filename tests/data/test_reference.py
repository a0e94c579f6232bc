"""Energy references: recovered shifts, undetermined ones, and honest answers about unseen molecules."""

import json

import numpy as np
import pytest
from ase.build import bulk, molecule

from equibayes.data import Dataset, Structure, bundled_ethanol
from equibayes.data.reference import EnergyReference, fit, suggest_kind
from equibayes.errors import InputError

SHIFTS = {1: -13.6, 6: -1029.5, 8: -2042.0}


def made(names: list[str], noise: float = 0.0, offset: dict[str, float] | None = None) -> Dataset:
    """Molecules by name, two frames each, with energies from `SHIFTS` (or from `offset`) and noise."""
    random = np.random.default_rng(0)
    frames = []
    for name in names:
        atoms = molecule(name)
        for _ in range(2):
            exact = offset[name] if offset else sum(SHIFTS[z] for z in atoms.numbers.tolist())
            frames.append(Structure(atoms.numbers, atoms.positions, energy=exact + noise * random.normal()))
    return Dataset(frames, "made")


def test_least_squares_recovers_the_shifts() -> None:
    reference = fit(made(["CH4", "H2O", "CO2", "C2H6"]), "lstsq")
    assert reference.shifts == pytest.approx(SHIFTS, rel=1e-9)
    ethanol = molecule("CH3CH2OH").numbers
    assert reference.total(ethanol) == pytest.approx(6 * -13.6 + 2 * -1029.5 - 2042.0)
    assert reference.knows(ethanol)


def test_least_squares_minimises_the_error_per_atom() -> None:
    """Against the plain normal equations with one row per frame."""
    data = made(["CH4", "H2O", "CO2", "C2H6", "C2H6"], noise=0.5)
    rows = np.array([[np.sum(s.numbers == z) for z in (1, 6, 8)] for s in data], dtype=float)
    per_atom = rows / rows.sum(1, keepdims=True)
    targets = np.array([s.energy / len(s) for s in data])
    expected = np.linalg.solve(per_atom.T @ per_atom, per_atom.T @ targets)
    assert list(fit(data).shifts.values()) == pytest.approx(expected, rel=1e-9)


def test_one_molecule_alone_gives_its_mean_and_the_least_norm() -> None:
    data = bundled_ethanol("train")
    reference = fit(data)
    mean = np.mean([s.energy for s in data])
    assert reference.total(data[0].numbers) == pytest.approx(mean, abs=1e-9)
    shifts = np.array([reference.shifts[z] for z in (1, 6, 8)])
    counts = np.array([6.0, 2.0, 1.0])
    np.testing.assert_allclose(shifts, counts * mean / (counts @ counts), rtol=1e-12)


def test_one_molecule_alone_does_not_know_others() -> None:
    """Ethanol fixes the sum of six H, two C and one O; what methanol's atoms add up to, no label said."""
    ethanol, methanol = molecule("CH3CH2OH").numbers, molecule("CH3OH").numbers
    reference = fit(made(["CH3CH2OH"]))
    assert len(reference.undetermined) == 2
    assert reference.knows(ethanol)
    assert reference.knows(np.tile(ethanol, 100))
    assert not reference.knows(methanol)
    alkanes = fit(made(["CH4", "C2H6"]))
    assert not alkanes.undetermined
    assert alkanes.knows(molecule("isobutane").numbers)
    alcohols = fit(
        made(["CH3CH2OH", "CH3OH"])
    )  # they differ by CH2, which tells propanol, but not oxygen from hydrogen
    assert alcohols.knows([6, 6, 6, 8, *[1] * 8])
    assert not alcohols.knows(molecule("H2").numbers)


def test_a_reference_from_before_the_undetermined_were_kept() -> None:
    content = {"kind": "lstsq", "shifts": {"H": -1.0}, "offsets": {}}
    assert EnergyReference.from_dict(content).knows([1, 1])


def test_isolated() -> None:
    data = made(["CH4", "H2O"])
    complete = Dataset(data, "made", isolated_atoms=SHIFTS)
    assert fit(complete, "isolated").shifts == SHIFTS
    assert suggest_kind(complete) == "isolated"
    partial = Dataset(data, "made", isolated_atoms={1: -13.6, 6: -1029.5})
    with pytest.raises(InputError, match="made: no isolated energy for O; add IsolatedAtom frames or values"):
        fit(partial, "isolated")
    assert fit(partial, "isolated", {"O": -2042.0}).shifts == SHIFTS


def test_given() -> None:
    data = made(["CH4"])
    reference = fit(data, "given", {"C": -1000.0, 1: -10.0})
    assert reference.total([6, 1, 1, 1, 1]) == -1040.0
    with pytest.raises(InputError, match="no given energy for C"):
        fit(data, "given", {"H": -10.0})
    with pytest.raises(InputError, match="'Cc' is not a chemical symbol"):
        fit(data, "given", {"Cc": -10.0})
    with pytest.raises(InputError, match="not finite"):
        fit(data, "given", {"H": -10.0, "C": float("nan")})
    with pytest.raises(InputError, match="no reference energy for O: known are H, C"):
        reference.total([8])


def test_per_structure_for_relative_energies() -> None:
    """Offsets that no sum over species can make: each seen molecule still gets its own."""
    offset = {"CH4": 0.3, "C2H6": 0.1, "C3H8": 0.9}
    data = made(list(offset), offset=offset)
    assert suggest_kind(data) == "per_structure"
    reference = fit(data, "per_structure")
    for name, expected in offset.items():
        numbers = molecule(name).numbers
        assert reference.total(numbers) == pytest.approx(expected)
        assert reference.knows(numbers)
    unseen = molecule("isobutane").numbers
    assert not reference.knows(unseen)
    shifts = fit(data, "lstsq").shifts
    assert reference.total(unseen) == pytest.approx(4 * shifts[6] + 10 * shifts[1])
    with pytest.raises(InputError, match="no reference energy for O"):
        reference.total([8, 1, 1])


def test_a_crystal_has_the_same_energy_per_atom_in_every_cell() -> None:
    """Energies close to 0, as from an empirical potential, in cells of four and of eight atoms."""
    cells = [bulk("Cu", cubic=True), bulk("Cu", cubic=True).repeat((2, 1, 1))]
    energies = (-0.007, 0.005)
    data = Dataset(
        [
            Structure(atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc, energy=each * len(atoms))
            for atoms, each in zip(cells, energies)
        ],
        "copper",
    )
    assert suggest_kind(data) == "lstsq"
    reference = fit(data, suggest_kind(data))
    per_atom = [reference.total([29] * n) / n for n in (4, 8, 32)]
    assert per_atom == pytest.approx([np.mean(energies)] * 3, abs=1e-6)


def test_suggestion_for_totals() -> None:
    assert suggest_kind(made(["CH4", "H2O"])) == "lstsq"
    assert suggest_kind(bundled_ethanol("0:5")) == "lstsq"


@pytest.mark.parametrize("kind", ["lstsq", "per_structure"])
def test_json_round_trip(kind: str) -> None:
    reference = fit(made(["CH4", "CH3OH"], noise=0.1), kind)
    assert EnergyReference.from_dict(json.loads(json.dumps(reference.to_dict()))) == reference


def test_mistakes() -> None:
    data = made(["CH4"])
    with pytest.raises(InputError, match="unknown energy reference 'lsq'; valid: lstsq"):
        fit(data, "lsq")
    with pytest.raises(InputError, match="takes no values"):
        fit(data, "lstsq", {"H": 1.0})
    bare = Dataset([Structure(np.array([1]), np.zeros((1, 3)))], "bare")
    with pytest.raises(InputError, match="bare: no energies to fit"):
        fit(bare)
