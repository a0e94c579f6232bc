"""The energy to form a vacancy: one atom taken out of a supercell, its neighbours relaxed at constant volume.

E_f = E(N − 1 atoms) − E(N atoms) + μ, where μ is the energy of the atom where it goes: for an element that of the
perfect crystal, per atom; for a compound the chemical potential that the user gives.
"""

from collections.abc import Mapping

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers

from equibayes.errors import InputError
from equibayes.solids.measurement import Bench
from equibayes.solids.quantity import Quantity

WHAT = "vacancy"
DISPLACEMENT = 0.05
"""Å, standard deviation; the same for all members."""
FMAX = 5e-3
"""Largest force left, eV/Å: the energy alone matters, and its error is of second order."""


def why_not(bench: Bench, potentials: Mapping[str, float], length: float) -> str | None:
    """The reason why vacancies cannot be computed, or None."""
    crystal = bench.crystal.primitive
    species = sorted(set(crystal.get_chemical_symbols()))
    missing = [symbol for symbol in species if symbol not in potentials]
    if len(species) > 1 and missing:
        return f"a compound needs chemical potentials: add --mu {missing[0]}=…, in eV on the energy scale of the data"
    whole = crystal.repeat(bench.crystal.supercell(length))
    defects = [np.delete(whole.numbers, [site]) for site in bench.crystal.sites]
    if not bench.members.comparable(crystal.numbers, *defects, absolute=bool(potentials)):
        return (
            "the training data do not give energies of these compositions on one scale; if they have one, sample with "
            "data.energy_reference=lstsq"
        )
    return None


def check_potentials(potentials: Mapping[str, float], crystal: Atoms) -> None:
    """An `InputError` for a species that is not there."""
    species = set(crystal.get_chemical_symbols())
    for symbol, value in potentials.items():
        if symbol not in atomic_numbers or symbol not in species:
            raise InputError(f"--mu {symbol}={value:g}: the crystal holds {', '.join(sorted(species))} only")


def measure(bench: Bench, potentials: Mapping[str, float], length: float) -> dict[str, Quantity]:
    """One energy for each set of equivalent atoms."""
    counts = bench.crystal.supercell(length)
    sites = bench.crystal.sites

    def change(atoms: Atoms) -> list[Atoms]:
        return [_without(atoms.repeat(counts), site) for site in sites]

    found = bench.relax_each(WHAT, change, "fixed", fmax=FMAX)
    symbols = [bench.crystal.primitive[site].symbol for site in sites]
    numbers = {}
    for place, symbol in enumerate(symbols):
        energies = {}
        for member, own in found.items():
            perfect = bench.relaxed[member]
            per_atom = perfect.state.energy / len(perfect.atoms)
            whole = per_atom * (len(own[place].atoms) + 1)
            energies[member] = own[place].state.energy - whole + potentials.get(symbol, per_atom)
        name = symbol if symbols.count(symbol) == 1 else f"{symbol}_site_{sites[place]}"
        numbers[f"formation_energy_{name}"] = bench.quantity(energies, "eV")
    return numbers


def _without(atoms: Atoms, site: int) -> Atoms:
    """Without one atom; its nearest neighbours are displaced a little, since forces alone never break a symmetry."""
    distances = atoms.get_distances(site, range(len(atoms)), mic=True)
    distances[site] = np.inf
    near = np.flatnonzero(distances < 1.2 * distances.min())
    noise = np.random.default_rng(0).normal(scale=DISPLACEMENT, size=(len(near), 3))
    atoms.positions[near] += noise
    del atoms[site]
    return atoms
