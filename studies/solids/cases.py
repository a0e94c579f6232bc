"""What is learned and judged: alloys of EMT, crystals of a foundation potential, and elements of the mlearn set.

A case has frames to learn from, some of which the run holds back; frames to judge by; and crystals whose properties are
asked for, with those of the engine that labelled the frames: the engine itself, or its numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT

from equibayes.data import Dataset, read
from equibayes.errors import InputError
from studies.shared.results import read_json
from studies.solids import emt, foundation

SYSTEMS = ("Cu", "Ni", "Au", "Pd", "Cu-Au", "Cu-Ni-Au-Pd")
ELEMENTS = ("Si", "Li", "Mo")
FOUNDATION = {f"7net-{name}": name for name in foundation.CRYSTALS}
TEST_SEED = 1000
"""Of frames to judge by; settings are chosen on frames of TUNE_SEED."""
TUNE_SEED = 5000
HELD_BACK, MLEARN_HELD_BACK = 30, 20


@dataclass(frozen=True, eq=False)
class Case:
    """
    crystals  by name
    engine    that labelled the frames, None where it is not at hand
    known     what it says about the crystals, where its numbers are at hand: crystal → property → quantity
    """

    name: str
    learn: Dataset
    test: Dataset
    held_back: int
    crystals: dict[str, Atoms] = field(default_factory=dict)
    engine: Any = None
    known: dict[str, Any] = field(default_factory=dict)


def case(name: str, seed: int, folder: Path, *, count: int = 100, tune: bool = False, quick: bool = False) -> Case:
    """
    seed    other frames for every seed (EMT), or others held back
    folder  of the mlearn files
    count   frames of EMT to learn from
    tune    judge by frames that settings may be chosen on
    """
    if name in ELEMENTS:
        return _of_mlearn(name, folder, tune)
    if name in FOUNDATION:
        return _of_foundation(FOUNDATION[name], tune)
    elements = name.split("-")
    if not set(elements) <= set(emt.LATTICE):
        raise InputError(
            f"system '{name}': {', '.join(emt.LATTICE)} joined by hyphens, {', '.join((*FOUNDATION, *ELEMENTS))}"
        )
    test = emt.frames(name, 20 if quick else 200, (TUNE_SEED if tune else TEST_SEED) + seed)
    crystals = {} if tune else alloys(elements)
    return Case(name, emt.frames(name, count, seed), test, HELD_BACK, crystals, EMT())


def alloys(elements: Sequence[str]) -> dict[str, Atoms]:
    """The elements, and for several of them ordered compounds of the first two and of the last two."""
    found = {name: bulk(name, "fcc", a=emt.LATTICE[name]) for name in elements}
    if len(elements) > 1:
        for a, b in {tuple(elements[:2]), tuple(elements[-2:])}:
            found[f"{a}3{b}"] = _ordered(a, b)
    return found


def _ordered(a: str, b: str) -> Atoms:
    """L1₂ A₃B."""
    atoms = bulk(a, "fcc", a=0.75 * emt.LATTICE[a] + 0.25 * emt.LATTICE[b], cubic=True)
    atoms.symbols[0] = b
    return atoms


def _of_mlearn(name: str, folder: Path, tune: bool) -> Case:
    """The official test frames; to choose settings, a tenth of the training frames is judged by instead."""
    learn = read(folder / "periodic" / f"mlearn_{name}_training.extxyz.gz")
    if not tune:
        return Case(name, learn, read(folder / "periodic" / f"mlearn_{name}_test.extxyz.gz"), MLEARN_HELD_BACK)
    order = np.random.default_rng(TUNE_SEED).permutation(len(learn))
    tenth = len(learn) // 10
    return Case(name, learn.subset(np.sort(order[tenth:])), learn.subset(np.sort(order[:tenth])), MLEARN_HELD_BACK)


def _of_foundation(name: str, tune: bool) -> Case:
    known = {name: (read_json(foundation.LABELS / f"{name}.json") or {}).get("properties", {})}
    learn, test = (read(foundation.LABELS / f"{name}{end}.xyz") for end in ("", "-tune" if tune else "-test"))
    return Case(name, learn, test, HELD_BACK, {name: foundation.crystal(name)}, None, known)
