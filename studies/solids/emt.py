"""Strained cells of metals and alloys with the labels of ASE's EMT: energy, forces and stress.

    python -m studies.solids.emt Cu Cu-Ni-Au-Pd --count 100 --seed 0 -o FOLDER      writes FOLDER/Cu.xyz, …

A system is named after its elements.  Frames are conventional fcc cells of 4 atoms and pairs of them, of 8, in turn;
in an alloy every other frame is one of its elements, and each site of the rest is drawn at random.  The volume is that
of Vegard's rule.  Each of the six strains is uniform within ±5 %, positions are displaced by up to 0.1 Å (RMS of a
coordinate).
"""

from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT

from equibayes.data import Dataset, Structure
from equibayes.data.extxyz import write_exact
from equibayes.files import make_folder
from studies.shared.options import parser_of, start

LATTICE = {"Cu": 3.61, "Ni": 3.52, "Au": 4.08, "Pd": 3.89}
"""Å, experimental: the generator knows nothing about the potential."""
STRAIN, SHAKE = 0.05, 0.1


def frames(system: str, count: int, seed: int = 0) -> Dataset:
    """`count` frames of a system such as Cu or Cu-Au; others for every seed."""
    elements = system.split("-")
    rng = np.random.default_rng([seed, *(ord(letter) for letter in system)])
    return Dataset([labelled(cell(elements, number, rng), f"{system} {number}") for number in range(count)], system)


def cell(elements: list[str], number: int, rng: np.random.Generator) -> Atoms:
    """One strained, displaced cell."""
    atoms = bulk("Cu", "fcc", a=1.0, cubic=True) * ((2, 1, 1) if number % 2 else (1, 1, 1))
    if len(elements) == 1 or number % 4 < 2:
        symbols = [elements[number // 4 % len(elements)]] * len(atoms)
    else:
        symbols = [str(name) for name in rng.choice(elements, len(atoms))]
    atoms.symbols = symbols
    atoms.set_cell(np.mean([LATTICE[name] for name in symbols]) * atoms.cell.array, scale_atoms=True)
    return deformed(atoms, rng)


def deformed(atoms: Atoms, rng: np.random.Generator) -> Atoms:
    """The same cell, strained, with displaced atoms."""
    strain = rng.uniform(-STRAIN, STRAIN, (3, 3))
    atoms.set_cell(atoms.cell.array @ (np.eye(3) + (strain + strain.T) / 2), scale_atoms=True)
    atoms.positions += rng.uniform(0, SHAKE) * rng.normal(size=atoms.positions.shape)
    return atoms


def labelled(atoms: Atoms, source: str, calculator: Any = None) -> Structure:
    """With energy, forces and stress of an ASE calculator (default: EMT)."""
    atoms.calc = calculator or EMT()
    return Structure(
        atoms.numbers,
        atoms.positions,
        atoms.cell.array,
        atoms.pbc,
        energy=atoms.get_potential_energy(),
        forces=atoms.get_forces(),
        stress=atoms.get_stress(voigt=False),
        source=source,
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="elements joined by hyphens, such as Cu-Au")
    parser.add_argument("--count", type=int, default=100, help="frames of each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other frames (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="folder (default: this one)")
    options = parser.parse_args()
    for system in options.systems:
        path = make_folder(options.output) / f"{system}.xyz"
        write_exact(path, frames(system, options.count, options.seed))
        print(path)


if __name__ == "__main__":
    start(main)
