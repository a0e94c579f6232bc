"""The lattice that every member relaxes the crystal to, with the symmetry kept."""

import numpy as np
from ase import Atoms
from ase.geometry import cell_to_cellpar
from ase.units import _amu

from equibayes.errors import InputError
from equibayes.solids.measurement import Bench
from equibayes.solids.quantity import Quantity

NAMES = ("a", "b", "c", "alpha", "beta", "gamma")
FREE = {
    "cubic": ("a",),
    "hexagonal": ("a", "c"),
    "trigonal": ("a", "c"),
    "tetragonal": ("a", "c"),
    "orthorhombic": ("a", "b", "c"),
    "monoclinic": ("a", "b", "c", "beta"),
    "triclinic": NAMES,
}
"""The parameters of the conventional cell that its symmetry leaves free."""


def relax_crystal(bench: Bench) -> None:
    """Fill `bench.relaxed`; an `InputError` if no member relaxes the crystal."""
    jobs = [(member, bench.crystal.primitive) for member in range(len(bench.members.names))]
    found = bench.relax("lattice", jobs, "free", symmetric=True)
    for each in found:
        if each.failure:
            bench.leave_out("lattice", each.member, each.failure)
    bench.relaxed = {each.member: each for each in found if not each.failure}
    if not bench.relaxed:
        raise InputError(
            f"{bench.crystal.source}: no member relaxes this crystal; {bench.members.names[0]}: {found[0].failure}; "
            "start closer to equilibrium, or sample on data that contain crystals like this one"
        )


def measure(bench: Bench) -> dict[str, Quantity]:
    """Parameters of the conventional cell, volume and energy per atom, density."""
    parameters = {
        member: cell_to_cellpar(bench.crystal.conventional @ own.atoms.cell.array)
        for member, own in bench.relaxed.items()
    }
    found = {}
    for name in FREE[bench.crystal.system]:
        place = NAMES.index(name)
        unit = "Å" if place < 3 else "°"
        found[name] = bench.quantity({member: values[place] for member, values in parameters.items()}, unit)
    atoms = {member: own.atoms for member, own in bench.relaxed.items()}
    found["volume_per_atom"] = bench.quantity({m: a.get_volume() / len(a) for m, a in atoms.items()}, "Å³")
    found["density"] = bench.quantity({member: _density(each) for member, each in atoms.items()}, "g/cm³")
    energies = {member: own.state.energy / len(own.atoms) for member, own in bench.relaxed.items()}
    found["energy_per_atom"] = bench.quantity(energies, "eV")
    return found


def _density(atoms: Atoms) -> float:
    return float(np.sum(atoms.get_masses()) * _amu * 1e3 / (atoms.get_volume() * 1e-24))
