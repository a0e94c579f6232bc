"""3BPA at one level of theory: frames of 300 K labelled again with GFN2-xTB, and frames from dynamics with it at 300,
600 and 1200 K.

    python -m studies.domain_shift.bpa_frames 3BPA --folder bpa-runs       about half an hour on one core

The public frames have labels of another level of theory and cannot be combined with hot frames from our engine.  Hence:

| file                  | frames | what                                                              |
|-----------------------|--------|-------------------------------------------------------------------|
| bpa_train.npz         | 500    | all of train_300K.xyz.gz, labelled with GFN2-xTB                  |
| bpa_300K.npz          | 500    | evenly spaced in test_300K.xyz.gz, labelled with GFN2-xTB            |
| bpa_md_300K.npz       | 250    | Langevin dynamics with GFN2-xTB: effect of the change of engine on the frames |
| bpa_md_600K.npz, 1200K | 250 each | the same, hotter                                                 |

Every trajectory starts from a different training frame, is equilibrated for 500 fs and then gives a frame every 20 fs.
A killed run continues.  Frames with broken bonds are kept and listed in provenance.json.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ase.data import covalent_radii

from equibayes.data import Dataset, Structure, read
from equibayes.files import write_atomically
from equibayes.labelling.blas import preload_environment
from equibayes.labelling.calculator import LabellerCalculator
from equibayes.labelling.labellers import Labeller, Refusal
from equibayes.learning.propose import bare
from equibayes.simulate.integrators import Conditions, Integrator
from studies.shared.options import add_quick, parser_of
from studies.shared.results import save_json

TEMPERATURES = (300, 600, 1200)
STARTS, FRAMES = 10, 25
"""Trajectories at each temperature, and frames of each."""
EQUILIBRATION, BETWEEN = 1000, 40
"""Steps of 0.5 fs."""
FRICTION_TIME_FS = 50.0
ENGINE, SETTINGS = "gfn2-xtb", {"accuracy": 1.0}
BROKEN = 1.6
"""A bond is broken beyond this multiple of the sum of covalent radii: 2.4 Å for two carbon atoms."""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("source", type=Path, help="folder with train_300K.xyz.gz and test_300K.xyz.gz")
    parser.add_argument(
        "--folder", type=Path, default=Path("bpa-runs"), help="folder for unfinished trajectories and labels"
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "data", help="folder for the npz files")
    parser.add_argument("--seed", type=int, default=0, help="seed of starts, velocities and thermostat")
    add_quick(parser, "a minute or less, 3 frames per set")
    given = parser.parse_args()
    for folder in (given.folder, given.output):
        folder.mkdir(parents=True, exist_ok=True)
    train, test = (read(given.source / name) for name in ("train_300K.xyz.gz", "test_300K.xyz.gz"))
    test = test.subset(np.linspace(0, len(test) - 1, 500).round().astype(int))
    starts, frames, wait, between = STARTS, FRAMES, EQUILIBRATION, BETWEEN
    if given.quick:
        train, test, starts, frames, wait, between = train[:3], test[:3], 1, 3, 2, 2
    began = time.monotonic()
    sets = {"bpa_train": list(train), "bpa_300K": list(test)}
    chosen = np.random.default_rng(given.seed).choice(len(train), starts, replace=False)
    with Labeller(ENGINE, SETTINGS, follow=True) as engine:
        for temperature in TEMPERATURES:
            name = f"bpa_md_{temperature}K"
            sets[name] = []
            for start in chosen.tolist():
                conditions = Conditions("langevin", temperature, tau=FRICTION_TIME_FS, seed=given.seed + start)
                file = given.folder / f"{name}_{start}.npz"
                sets[name] += trajectory(train[start], conditions, engine, file, frames, wait, between)
    # all frames are labelled again in the same way, at the positions as stored
    with Labeller(ENGINE, SETTINGS) as engine:
        kept = {name: labelled(name, found, engine, given.folder) for name, found in sets.items()}
        origin = provenance(engine, given, chosen.tolist(), kept, bonds(train))
    for name, found in kept.items():
        save(given.output / f"{name}.npz", found)
    save_json(given.output / "provenance.json", origin)
    print(f"{given.output}: {sum(map(len, kept.values()))} frames, {time.monotonic() - began:.0f} s")


def trajectory(
    start: Structure, conditions: Conditions, engine: Labeller, file: Path, frames: int, wait: int, between: int
) -> list[Structure]:
    """Frames of one run.  Its file holds the frames so far and the state for the next step."""
    atoms = bare(start).to_atoms()
    atoms.calc = LabellerCalculator(engine)
    mover = Integrator(atoms, conditions)
    found, began = [], time.monotonic()
    if file.exists():
        with np.load(file) as held:
            found = list(held["frames"])
            mover.remember({name: held[name] for name in mover.memory()})
    label = f"{conditions.temperature:g} K, {start.source}"
    while len(found) < frames:
        first = wait + (len(found) - 1) * between if found else 0
        for step in range(first, wait + len(found) * between):
            # one generator per step: the noise does not depend on where a run was interrupted
            mover.dynamics.rng = np.random.default_rng([conditions.seed, int(conditions.temperature), step])
            mover.step()
        found.append(atoms.positions.copy())
        write_npz(file, frames=np.array(found), **mover.memory())
        if len(found) % 5 == 0 or len(found) == frames:
            seconds = time.monotonic() - began
            print(
                f"{label}: {len(found)}/{frames} frames, now {mover.temperature():.0f} K, {seconds:.0f} s", flush=True
            )
    return [
        replace(bare(start), positions=positions, source=f"{label}, frame {number}")
        for number, positions in enumerate(found)
    ]


def labelled(name: str, structures: list[Structure], engine: Labeller, folder: Path) -> list[Structure]:
    """With the engine's labels, which `folder` keeps in parts; a structure that it refuses is left out and reported."""
    found = []
    for first in range(0, len(structures), 100):
        part, file = structures[first : first + 100], folder / f"labels_{name}_{first}.npz"
        if not file.exists():
            answers = [engine.label(stored(structure)) for structure in part]
            for structure, answer in zip(part, answers):
                if isinstance(answer, Refusal):
                    print(f"{name}: {structure.source}: {answer.reason}")
            energies = [np.nan if isinstance(answer, Refusal) else answer.energy for answer in answers]
            forces = [np.zeros((len(s), 3)) if isinstance(a, Refusal) else a.forces for s, a in zip(part, answers)]
            write_npz(file, energies=np.array(energies), forces=np.array(forces))
            print(f"{name}: {first + len(part)}/{len(structures)} labels", flush=True)
        with np.load(file) as held:
            found += [
                replace(stored(s), energy=float(energy), forces=forces)
                for s, energy, forces in zip(part, held["energies"], held["forces"])
                if np.isfinite(energy)
            ]
    return found


def stored(structure: Structure) -> Structure:
    """Centred and in single precision, as in the file: the label belongs to exactly these positions."""
    middle = structure.positions - structure.positions.mean(0)
    return replace(bare(structure), positions=middle.astype(np.float32).astype(np.float64))


def save(file: Path, structures: list[Structure]) -> None:
    """With the keys of sGDML files: eV, Å, eV/Å."""
    write_npz(
        file,
        z=structures[0].numbers.astype(np.uint8),
        R=np.array([s.positions for s in structures], dtype=np.float32),
        E=np.array([s.energy for s in structures]),
        F=np.array([s.forces for s in structures], dtype=np.float32),
        e_unit=np.array("eV"),
        r_unit=np.array("Ang"),
        theory=np.array("GFN2-xTB"),
    )


def write_npz(file: Path, **arrays: Any) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as opened:
            np.savez_compressed(opened, **arrays)

    write_atomically(file, write)


def bonds(train: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Pairs [b, 2] that are bonded in the first training frame, and the length in Å beyond which each is broken."""
    radii = covalent_radii[train[0].numbers]
    sums = radii[:, None] + radii[None, :]
    near = np.triu(distances(train[0]) < 1.25 * sums, 1)
    pairs = np.argwhere(near)
    return pairs, BROKEN * sums[near]


def distances(structure: Structure) -> np.ndarray:
    return np.linalg.norm(structure.positions[:, None] - structure.positions[None], axis=-1)


def with_broken_bonds(structures: list[Structure], known: tuple[np.ndarray, np.ndarray]) -> list[int]:
    pairs, longest = known
    return [i for i, s in enumerate(structures) if (distances(s)[pairs[:, 0], pairs[:, 1]] > longest).any()]


def provenance(
    engine: Labeller,
    given: argparse.Namespace,
    chosen: list[int],
    kept: dict[str, list[Structure]],
    known: tuple[np.ndarray, np.ndarray],
) -> dict[str, Any]:
    """Engine, versions and settings of the frames."""
    return {
        **engine.provenance,
        "linear_algebra": "MKL, sequential" if preload_environment() else "as in the wheel of tblite",
        "packages": {name: importlib.metadata.version(name) for name in ("ase", "numpy")},
        "origin": "geometries at 300 K: 3BPA of Kovács et al. 2021 (davkovacs/BOTNet-datasets, MIT)",
        "thermostat": "Langevin",
        "friction_time_fs": FRICTION_TIME_FS,
        "time_step_fs": 0.5,
        "equilibration_steps": EQUILIBRATION,
        "steps_between_frames": BETWEEN,
        "seed": given.seed,
        "start_frames_of_train_300K": chosen,
        "frames": {name: len(found) for name, found in kept.items()},
        "frames_with_broken_bonds": {name: with_broken_bonds(found, known) for name, found in kept.items()},
        "hardware": f"one core, {platform.machine()}",
    }


if __name__ == "__main__":
    main()
