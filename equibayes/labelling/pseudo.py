"""Pseudo-labels: what a cheap engine says about geometries far from the training frames, with a noise of its own.

    τ = ρ max(F, F'),     ρ² = Σ |F_engine − F_label|² / Σ |F_label|²  over the training frames

is the noise of a frame (eV/Å, see `data/structures.py`): the engine is as wrong, relative to the forces, as it is where
both are known.  F and F' are the RMS forces of the training frames and of the frame itself.  ρ can also be given.

| one frame in four is |                                                                                   |
|----------------------|-----------------------------------------------------------------------------------|
| compressed           | all distances times a factor between 0.7 and 1                                    |
| stretched            | all distances times a factor between 1 and 1.6                                    |
| displaced            | every coordinate by a normal number of 0.05 to 0.4 Å                              |
| torn                 | of a molecule, one atom moved outwards by up to 5 Å; of a crystal, one atom taken out |
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.data.elements import symbol
from equibayes.data.geometry import nearest_distances
from equibayes.data.reference import fit
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.labelling.baseline import Baseline

CLOSEST = 0.35
"""Of the smallest covalent radius times 2: closer atoms are not asked about."""
MOST_TRIES = 4
"""Frames that are made for one that the engine labels."""
STREAM = 7
"""Of the random numbers, beside the seed."""
FREE, FRAMES_PER_ATOM = 1e-3, 100
"""Noise of a free atom, so that it does not count as one of the training frames, and frames for each of its copies."""
SEEN = 200
"""Training frames that the engine is compared on."""


def with_pseudo_labels(
    train: Dataset, engine: Baseline, count: int, *, noise: float | None = None, seed: int = 0
) -> Dataset:
    """The training frames and `count` frames with pseudo-labels.

    noise  ρ; None: as in the table above
    """
    known = train.right
    scale = _rms([s.forces for s in known if s.forces is not None])
    differences = engine.taken_off(Dataset(known.structures[:: -(-len(known) // SEEN)], known.name))
    if noise is None:
        noise = _rms([s.forces for s in differences if s.forces is not None]) / scale
    # the engine has another zero of energy
    has_energies = any(structure.energy is not None for structure in differences)
    zero = fit(differences).total if has_energies else None
    rng, made = np.random.default_rng([STREAM, seed]), list[Structure]()
    for number in range(MOST_TRIES * count):
        frame = KINDS[number % len(KINDS)](known[int(rng.integers(len(known)))], rng)
        if len(made) < count and _possible(frame):
            try:
                label = engine.label(frame)
            except InputError:
                continue  # what the engine cannot compute teaches nothing
            own = noise * max(scale, _rms([label.forces]))
            energy = None if zero is None else label.energy + zero(frame.numbers)
            made.append(replace(label.attach(frame), energy=energy, noise=own))
    if not made:
        raise InputError(f"prior.pseudo_labels={engine}: it labels none of the frames made from {train.name}")
    return Dataset([*train, *made], train.name, train.isolated_atoms, train.report, train.specs)


def with_free_atoms(train: Dataset) -> Dataset:
    """The training frames and free atoms with the energies that the data give, one of each element per 100 frames."""
    missing = [symbol(z) for z in train.species if z not in train.isolated_atoms]
    if missing:
        remedy = "add frames with config_type=IsolatedAtom"
        raise InputError(f"prior.free_atoms: no energy of a free {', '.join(missing)}; {remedy}")
    nothing = np.zeros((1, 3))
    atoms = [
        Structure(
            np.array([z]), nothing, energy=train.isolated_atoms[z], forces=nothing, source="free atom", noise=FREE
        )
        for z in train.species
    ]
    copies = max(1, len(train) // FRAMES_PER_ATOM)
    return Dataset([*train, *copies * atoms], train.name, train.isolated_atoms, train.report, train.specs)


def _compressed(structure: Structure, rng: np.random.Generator) -> Structure:
    return _scaled(structure, rng.uniform(0.7, 1.0))


def _stretched(structure: Structure, rng: np.random.Generator) -> Structure:
    return _scaled(structure, rng.uniform(1.0, 1.6))


def _scaled(structure: Structure, factor: float) -> Structure:
    return _bare(structure, factor * structure.positions, cell=factor * structure.cell, what=f"scaled by {factor:.3f}")


def _displaced(structure: Structure, rng: np.random.Generator) -> Structure:
    size = rng.uniform(0.05, 0.4)
    return _bare(structure, structure.positions + rng.normal(scale=size, size=(len(structure), 3)), what="displaced")


def _torn(structure: Structure, rng: np.random.Generator) -> Structure:
    atom = int(rng.integers(len(structure)))
    if structure.pbc.any():
        kept = np.arange(len(structure)) != atom
        return _bare(structure, structure.positions[kept], numbers=structure.numbers[kept], what="without an atom")
    outwards = structure.positions[atom] - structure.positions.mean(0) + 1e-3 * rng.normal(size=3)
    positions = structure.positions.copy()
    positions[atom] += rng.uniform(0.3, 5.0) * outwards / np.linalg.norm(outwards)
    return _bare(structure, positions, what=f"atom {atom} torn off")


KINDS: tuple[Callable[[Structure, np.random.Generator], Structure], ...] = (_compressed, _stretched, _displaced, _torn)


def _bare(structure: Structure, positions: np.ndarray, *, what: str, **changes: np.ndarray) -> Structure:
    """Without labels."""
    own = {"numbers": structure.numbers, "cell": structure.cell} | changes
    return Structure(positions=positions, pbc=structure.pbc, source=f"pseudo-label, {structure.source} {what}", **own)


def _possible(structure: Structure) -> bool:
    """Whether there are several atoms, none of them inside another."""
    from ase.data import covalent_radii  # runs without pseudo-labels need no ASE

    if len(structure) < 2:
        return False
    least = 2 * CLOSEST * float(covalent_radii[structure.numbers].min())
    return bool(nearest_distances(structure, np.arange(len(structure))).min() > least)


def _rms(forces: list[np.ndarray]) -> float:
    return float(np.sqrt(np.mean(np.square(np.concatenate(forces)))))
