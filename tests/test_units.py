"""Unit factors against ASE's tables, and the message for a unit that does not exist."""

import ase.units
import pytest

from equibayes import units
from equibayes.errors import InputError


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("energy", "eV", 1.0),
        ("energy", "meV", 1e-3),
        ("energy", "kcal/mol", ase.units.kcal / ase.units.mol),
        ("energy", "kJ/mol", ase.units.kJ / ase.units.mol),
        ("energy", "Hartree", ase.units.Hartree),
        ("energy", "Ry", ase.units.Rydberg),
        ("length", "Bohr", ase.units.Bohr),
        ("length", "nm", ase.units.nm),
        ("length", "Angstrom", 1.0),
        ("force", "Hartree/Bohr", ase.units.Hartree / ase.units.Bohr),
        ("force", "Ha/bohr", ase.units.Hartree / ase.units.Bohr),
        ("force", "kcal/mol/Ang", ase.units.kcal / ase.units.mol),
        ("force", "kJ/mol/nm", ase.units.kJ / ase.units.mol / 10),
    ],
)
def test_factor(kind: str, name: str, expected: float) -> None:
    # ASE has the constants of 2014, we those of 2018: they agree to a few parts in 1e8.
    assert units.factor(kind, name) == pytest.approx(expected, rel=3e-8)


def test_one_kcal_per_mol_is_exact() -> None:
    assert pytest.approx(0.0433641042418, rel=1e-11) == units.KCAL_PER_MOL


def test_force_unit_follows_from_energy_and_length() -> None:
    assert units.force_unit_of("Ha", "bohr") == "Hartree/Bohr"


@pytest.mark.parametrize(
    ("kind", "name", "near"),
    [
        ("energy", "kcal", "kcal/mol"),
        ("energy", "hartre", "Hartree"),
        ("energy", "MeV", "meV"),
        ("length", "angs", "Ang"),
        ("force", "Hartree/Bor", "Hartree/Bohr"),
    ],
)
def test_unknown_unit_names_the_nearest(kind: str, name: str, near: str) -> None:
    with pytest.raises(InputError, match=f"unknown {kind} unit '{name}': did you mean '{near}'"):
        units.factor(kind, name)
