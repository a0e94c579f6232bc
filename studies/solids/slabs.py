"""Bulk and slabs of copper in one set, and surface energies with σ.  A slab has no volume, so only the bulk has stress.

    python -m studies.solids.slabs --seed 1               OUTPUT/slabs-1.json
    python -m studies.solids.slabs --quick                some seconds: shows that it runs

100 frames: strained bulk cells (emt.py), and (100) and (111) slabs of 4 layers, 4 to 8 atoms, strained within the plane
and displaced.  Judged: 200 other slabs, and the surface energies of (100) and (111) slabs of 8 layers, ideal positions,
against EMT: [E(slab) − n E(bulk)] / 2 A.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk, fcc100, fcc111
from ase.calculators.emt import EMT

from equibayes.data import Dataset, Structure
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import predict
from equibayes.posterior.sample import sample_prepared
from equibayes.posterior.tangent import refine
from equibayes.run import Run
from equibayes.run.prepare import prepare
from equibayes.solids.quantity import Quantity
from studies.shared.options import add_commit, add_quick, parser_of, start
from studies.shared.results import provenance, save_json
from studies.solids import emt
from studies.solids.__main__ import DRAWS, config_of, errors
from studies.solids.cases import TEST_SEED

FACES = {"100": fcc100, "111": fcc111}
VACUUM = 8.0
"""Å on either side."""
LATTICE = 3.59
"""Å, of EMT's copper: surface energies are compared at one and the same lattice constant."""


def slab(face: str, size: tuple[int, int, int], lattice: float = LATTICE) -> Atoms:
    """Periodic within its plane alone."""
    return FACES[face]("Cu", size, a=lattice, vacuum=VACUUM)


def slabs(count: int, seed: int) -> Dataset:
    """Strained within the plane, displaced."""
    rng, found = np.random.default_rng([seed, 7]), []
    for number in range(count):
        atoms = slab(("100", "111")[number % 2], ((1, 1, 4), (2, 1, 4))[number // 2 % 2])
        strain = np.zeros((3, 3))
        strain[:2, :2] = rng.uniform(-emt.STRAIN, emt.STRAIN, (2, 2))
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + (strain + strain.T) / 2), scale_atoms=True)
        atoms.positions += rng.uniform(0, emt.SHAKE) * rng.normal(size=atoms.positions.shape)
        atoms.calc = EMT()
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        found.append(bare(atoms, f"slab {number}", energy=energy, forces=forces))
    return Dataset(found, "slabs")


def bare(atoms: Atoms, source: str, **labels: Any) -> Structure:
    return Structure(atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc, source=source, **labels)


def surface_energies(posterior: Posterior) -> dict[str, Any]:
    """meV/Å², by face: EMT, and what the members say."""
    crystal, found = bulk("Cu", a=LATTICE), {}
    for face in FACES:
        large = slab(face, (1, 1, 8))
        area = 2 * float(np.linalg.norm(np.cross(*large.cell.array[:2])))
        pair = [bare(large, face), bare(crystal, "bulk")]
        own = [each.members["energy"] for each in predict(posterior, pair, members=True, device="cpu") if each.members]
        members = 1e3 * (own[0] - len(large) * own[1]) / area
        large.calc = crystal.calc = EMT()
        truth = 1e3 * (large.get_potential_energy() - len(large) * crystal.get_potential_energy()) / area
        found[face] = {"engine": float(truth), **Quantity(np.asarray(members), "meV/Å²").to_dict()}
    return found


def run(seed: int, quick: bool) -> dict[str, Any]:
    config = config_of("Cu", seed, [], None, quick)
    learn = Dataset([*emt.frames("Cu", 50, seed), *slabs(50, seed)], "bulk and slabs")
    order = np.random.default_rng(seed).permutation(len(learn))
    prepared = prepare(learn.subset(order), config)
    began = time.process_time()
    sampled = sample_prepared(prepared, learn, Run(device="cpu"))
    refined = refine(sampled, prepared.train, prepared.validation, draws=DRAWS, seed=seed)
    test = slabs(20 if quick else 200, TEST_SEED + seed)
    views = {
        name: {"test": errors(view, test), "surface": surface_energies(view)}
        for name, view in (("sampled", sampled), ("refined", refined))
    }
    return {"seconds": time.process_time() - began, "views": views, "config": config.to_dict()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("results/solids/slabs"), help="(default: %(default)s)")
    add_quick(parser, "some seconds")
    add_commit(parser)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    found = run(given.seed, given.quick)
    about = {"seed": given.seed, **found, "provenance": provenance(given.commit)}
    save_json(given.output / f"slabs-{given.seed}.json", about, indent=None)
    for name, view in found["views"].items():
        surfaces = {
            face: f"{own['engine']:.2f} → {own['value']:.2f} ± {own['sigma']:.2f}"
            for face, own in view["surface"].items()
        }
        print(name, f"F {1e3 * view['test']['force_mae']:.2f} meV/Å", surfaces, flush=True)


if __name__ == "__main__":
    start(main)
