"""Units by name.  Everything inside equibayes is in eV and Å; all conversions are defined here.

A factor converts a value *or its standard deviation* by one multiplication: `value_in_eV = factor * value`.  A variance
converts by the square of the factor; no such factor is offered, so that σ is what is converted.
"""

import difflib

from equibayes.errors import InputError

# CODATA 2018; the first two are exact since the SI of 2019.
_ELEMENTARY_CHARGE = 1.602176634e-19  # C, so also J per eV
_AVOGADRO = 6.02214076e23  # 1/mol

KJ_PER_MOL = 1000.0 / (_AVOGADRO * _ELEMENTARY_CHARGE)
"""1 kJ/mol in eV."""
KCAL_PER_MOL = 4.184 * KJ_PER_MOL
"""1 kcal/mol in eV."""
HARTREE = 27.211386245988
"""1 Hartree in eV."""
BOHR = 0.529177210903
"""1 Bohr radius in Å."""
GPA = 1e-21 / _ELEMENTARY_CHARGE
"""1 GPa in eV/Å³."""

ENERGY_UNITS: dict[str, float] = {
    "eV": 1.0,
    "meV": 1e-3,
    "kcal/mol": KCAL_PER_MOL,
    "kJ/mol": KJ_PER_MOL,
    "Hartree": HARTREE,
    "Ry": HARTREE / 2,
}
"""Energy units in eV."""

LENGTH_UNITS: dict[str, float] = {"Ang": 1.0, "Bohr": BOHR, "nm": 10.0}
"""Length units in Å."""

FORCE_UNITS: dict[str, float] = {
    f"{energy}/{length}": e / l for energy, e in ENERGY_UNITS.items() for length, l in LENGTH_UNITS.items()
}
"""Force units in eV/Å: every energy over every length, such as `Hartree/Bohr` or `kcal/mol/Ang`."""

STRESS_UNITS: dict[str, float] = {
    **{f"{energy}/{length}^3": e / l**3 for energy, e in ENERGY_UNITS.items() for length, l in LENGTH_UNITS.items()},
    **{"GPa": GPA, "MPa": 1e-3 * GPA, "kbar": 0.1 * GPA, "bar": 1e-4 * GPA, "Pa": 1e-9 * GPA},
}
"""Stress units in eV/Å³: every energy over the cube of every length, such as `eV/Ang^3`, and those of pressure."""

# Other spellings met in files.  Names are otherwise case-sensitive on purpose: MeV is not meV.
_ALIASES = {"Angstrom": "Ang", "angstrom": "Ang", "Å": "Ang", "A": "Ang", "hartree": "Hartree", "Ha": "Hartree"}
_ALIASES |= {"bohr": "Bohr", "a0": "Bohr", "ev": "eV", "EV": "eV", "Rydberg": "Ry", "kcal mol-1": "kcal/mol"}

KINDS = {"energy": ENERGY_UNITS, "length": LENGTH_UNITS, "force": FORCE_UNITS, "stress": STRESS_UNITS}
_COMPOUND = {
    "force": "an energy over a length such as eV/Ang, kcal/mol/Ang, Hartree/Bohr",
    "stress": "GPa, MPa, kbar, bar, Pa, an energy over the cube of a length such as eV/Ang^3, Hartree/Bohr^3",
}


def canonical(kind: str, name: str) -> str:
    """The name under which a unit is listed here; an unknown one is an `InputError` with the nearest valid name.

    `kind` is "energy", "length", "force" or "stress".
    """
    known = KINDS[kind]
    if name in known:
        return name
    if kind in _COMPOUND and "/" in name:
        energy, _, length = name.rpartition("/")
        length, cube, _ = length.replace("**", "^").replace("³", "^3").partition("^3")
        renamed = f"{_ALIASES.get(energy, energy)}/{_ALIASES.get(length, length)}{cube}"
    else:
        renamed = _ALIASES.get(name, name)
    if renamed in known:
        return renamed
    lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.4)
    guess = f"did you mean '{lower[near[0]]}'? " if near else ""
    listed = _COMPOUND.get(kind) or ", ".join(known)
    raise InputError(f"unknown {kind} unit '{name}': {guess}valid: {listed}")


def factor(kind: str, name: str) -> float:
    """Factor that converts a value (or a standard deviation) from unit `name` to eV, Å, eV/Å or eV/Å³."""
    return KINDS[kind][canonical(kind, name)]


def force_unit_of(energy_unit: str, length_unit: str) -> str:
    """The force unit that follows from an energy and a length unit: Hartree and Bohr give Hartree/Bohr."""
    return f"{canonical('energy', energy_unit)}/{canonical('length', length_unit)}"


def stress_unit_of(energy_unit: str, length_unit: str) -> str:
    """The stress unit that follows likewise: Hartree and Bohr give Hartree/Bohr^3."""
    return f"{force_unit_of(energy_unit, length_unit)}^3"
