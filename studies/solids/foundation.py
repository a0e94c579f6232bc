"""Strained cells of crystals with the labels of a foundation potential: SevenNet-0 through its own ASE calculator.

    python -m studies.solids.foundation Al Si MgO      writes LABELS/Al.xyz, Al-tune.xyz, Al-test.xyz, Al.json, …
    python -m studies.solids.foundation Al Si MgO --strains    C11 of the engine by the size of the strain

100 frames to learn from, 60 others to choose settings on and 60 to judge by, of 8 atoms (4 of Al); strains and
displacements as in emt.py.  The JSON file holds lattice, equation of state and elastic constants of the engine by
`equibayes.properties`.  Needs `sevenn`, whose wheel contains the weights (MIT licence); nothing of them is here, only
labels.
"""

from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk

from equibayes.data import Dataset
from equibayes.data.extxyz import write_exact
from equibayes.solids.properties import properties
from equibayes.units import GPA
from studies.shared.options import parser_of, start
from studies.shared.results import read_json, save_json
from studies.solids.emt import deformed, labelled

LABELS = Path(__file__).parent / "labels"
CRYSTALS: dict[str, dict[str, Any]] = {
    "Al": {"name": "Al", "crystalstructure": "fcc", "a": 4.05},
    "Si": {"name": "Si", "crystalstructure": "diamond", "a": 5.43},
    "MgO": {"name": "MgO", "crystalstructure": "rocksalt", "a": 4.21},
}
"""Experimental lattice constants, Å: the generator knows nothing about the potential."""
LEARN, OTHERS = 100, 60
PARTS = {"": (LEARN, 0), "-tune": (OTHERS, 1), "-test": (OTHERS, 2)}
"""End of the file name → number of frames, seed."""
STRAINS = (0.001, 0.005, 0.01, 0.02, 0.04)


def crystal(name: str, *, cubic: bool = False) -> Atoms:
    """The primitive or the conventional cell."""
    return bulk(**CRYSTALS[name], cubic=cubic)


def frames(name: str, count: int, seed: int, calculator: Any) -> Dataset:
    rng = np.random.default_rng([seed, *(ord(letter) for letter in name)])
    cells = [deformed(crystal(name, cubic=True), rng) for _ in range(count)]
    return Dataset([labelled(atoms, f"{name} {i}", calculator) for i, atoms in enumerate(cells)], name)


def values(name: str, calculator: Any) -> dict[str, Any]:
    """Property → quantity → number."""
    found = properties(calculator, crystal(name), only=("lattice", "eos", "elastic"))
    return {
        group: {key: {"value": float(each.mean), "unit": each.unit} for key, each in own.items()}
        for group, own in found.numbers.items()
    }


def stiffness(name: str, calculator: Any) -> dict[str, dict[str, float]]:
    """C11 and C12, GPa, from the stress at ± a strain xx with atoms held, at the engine's lattice constant."""
    side = (read_json(LABELS / f"{name}.json") or {})["properties"]["lattice"]["a"]["value"]
    found = {}
    for size in STRAINS:
        stress = []
        for sign in (1, -1):
            atoms = bulk(**CRYSTALS[name] | {"a": side})
            atoms.set_cell(atoms.cell.array * (1 + sign * size * np.eye(3)[0]), scale_atoms=True)
            atoms.calc = calculator
            stress.append(atoms.get_stress() / GPA)
        slope = (stress[0] - stress[1]) / (2 * size)
        found[f"{100 * size:g} %"] = {"C11": float(slope[0]), "C12": float((slope[1] + slope[2]) / 2)}
    return found


def main() -> None:
    from sevenn.calculator import SevenNetCalculator

    parser = parser_of(__doc__)
    parser.add_argument("crystals", nargs="+", choices=list(CRYSTALS))
    parser.add_argument("--model", default="7net-0", help="name that sevenn knows (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=LABELS, help="folder (default: %(default)s)")
    parser.add_argument("--strains", action="store_true", help="only how C11 and C12 depend on the size of the strain")
    options = parser.parse_args()
    calculator = SevenNetCalculator(options.model, device="cpu")
    options.output.mkdir(parents=True, exist_ok=True)
    if options.strains:
        found = {name: stiffness(name, calculator) for name in options.crystals}
        save_json(options.output / "strains.json", {"engine": options.model, "stiffness": found})
        print(found)
        return
    for name in options.crystals:
        for end, (count, seed) in PARTS.items():
            write_exact(options.output / f"{name}{end}.xyz", frames(name, count, seed, calculator))
        save_json(options.output / f"{name}.json", {"engine": options.model, "properties": values(name, calculator)})
        print(options.output / f"{name}.xyz", flush=True)


if __name__ == "__main__":
    start(main)
