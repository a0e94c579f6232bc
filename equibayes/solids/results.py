"""Properties as a dictionary for JSON, and as lines of text."""

from typing import Any

from equibayes.plural import counted
from equibayes.solids.properties import SIGMA, Properties

TITLES = {
    "lattice": "Lattice",
    "eos": "Equation of state",
    "elastic": "Elastic constants",
    "phonons": "Phonons",
    "vacancy": "Vacancy",
}


def as_dict(found: Properties) -> dict[str, Any]:
    """Values, σ, units and the value of every member; null stands for members that were left out."""
    numbers = {
        name: {key: each.to_dict() for key, each in quantities.items()} for name, quantities in found.numbers.items()
    }
    crystal = found.crystal
    return {
        "structure": {
            "source": crystal.source,
            "formula": crystal.primitive.get_chemical_formula(empirical=True),
            "atoms": crystal.given,
            "primitive_atoms": len(crystal.primitive),
            "space_group": crystal.space_group,
            "space_group_number": crystal.number,
            "crystal_system": crystal.system,
        },
        "members": found.names,
        "sigma": SIGMA,
        "properties": numbers,
        **_arrays(found),
        "left_out": [
            {"property": each.property, "member": found.names[each.member], "reason": each.reason}
            for each in found.left_out
        ],
        "skipped": found.skipped,
    }


def _arrays(found: Properties) -> dict[str, Any]:
    """Curves, matrix and bands."""
    arrays: dict[str, Any] = {}
    if found.curves:
        curves = found.curves
        arrays["curves"] = {"volume_per_atom": curves.volumes.to_dict(), "energy_per_atom": curves.energies.to_dict()}
    if found.elastic:
        arrays["stiffness_matrix"] = {**found.elastic.matrix.to_dict(), "stable_share": found.elastic.stable}
    if found.bands:
        bands = found.bands
        arrays["phonon_bands"] = {
            **bands.frequencies.to_dict(),
            "q_points": bands.q_points.tolist(),
            "distance": bands.distance.tolist(),
            "special_points": [{"distance": place, "name": name} for place, name in bands.ticks],
            "supercell": list(bands.supercell),
            "stable_share": bands.stable,
        }
    return arrays


def describe(found: Properties) -> str:
    """One line: the crystal and its symmetry."""
    crystal = found.crystal
    formula = crystal.primitive.get_chemical_formula(empirical=True)
    size = f"{counted(len(crystal.primitive), 'atom')} in the primitive cell"
    return f"{formula}, {crystal.system}, {crystal.space_group} ({crystal.number}), {size}"


def lines(found: Properties) -> list[str]:
    """What the program prints."""
    told = [describe(found)]
    width = max((len(label(key)) for own in found.numbers.values() for key in own), default=0)
    for name, own in found.numbers.items():
        told += ["", TITLES[name]] + [f"  {label(key):<{width}}  {each}" for key, each in own.items()]
    return told + ([""] if notes(found) else []) + [f"note: {note}" for note in notes(found)]


def notes(found: Properties) -> list[str]:
    """Sentences on members and properties that were left out, and on crystals that are not stable."""
    told = [f"{TITLES[name].lower()} left out: {reason}" for name, reason in found.skipped.items()]
    told += [f"{each.property}: {found.names[each.member]} left out: {each.reason}" for each in found.left_out]
    if len(found.names) == 1:
        told.append("a single member has no spread: there is no σ")
    if found.elastic and found.elastic.stable < 1:
        told.append(f"elastic constants: {_share(1 - found.elastic.stable)} of the members are mechanically unstable")
    if found.bands and found.bands.stable < 1:
        told.append(f"phonons: {_share(1 - found.bands.stable)} of the members have imaginary frequencies")
    return told


def label(key: str) -> str:
    """The name of a quantity as people write it."""
    return _GREEK.get(key, key.replace("_", " "))


_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ"}


def _share(part: float) -> str:
    return f"{100 * part:.0f} %"
