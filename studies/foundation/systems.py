"""Frames of the study: few to learn from, others to test on, split afresh for each seed.

Settings are chosen on malonaldehyde, toluene and lithium; ethanol, aspirin, 3BPA, silicon, molybdenum and water are
reported.
"""

import os
from pathlib import Path

import numpy as np

from equibayes.data import Dataset, Structure, read
from equibayes.errors import InputError

BPA = Path(__file__).parents[1] / "domain_shift" / "data"
FOLDER = Path(os.environ.get("SHARED", "../shared")) / "data"
MOLECULES = ("ethanol", "aspirin", "malonaldehyde", "toluene")
CRYSTALS = {"silicon": "Si", "molybdenum": "Mo", "lithium": "Li"}
SYSTEMS = (*MOLECULES, "3bpa", *CRYSTALS, "water")
MOST = 300
"""Frames that may be learned from; tests are on others."""


def frames(name: str, count: int, test: int, seed: int) -> tuple[Dataset, dict[str, Dataset]]:
    """`count` frames to learn from and at most `test` of each kind to test on, the kind of the training frames first.

    3BPA has labels of GFN2-xTB (studies/domain_shift), since those of the public set end at 300 K.
    """
    rng = np.random.default_rng(seed)
    if name in MOLECULES:
        return _split(read(FOLDER / "rmd17" / f"rmd17_{name}.npz"), count, test, rng)
    if name == "water":
        return _split(water(), count, test, rng)
    if name == "3bpa":
        learned = read(BPA / "bpa_train.npz")
        hot = {f"{kelvin} K": read(BPA / f"bpa_md_{kelvin}K.npz") for kelvin in (300, 600, 1200)}
        own = learned.subset(rng.permutation(len(learned))[:count])
        return own, {kelvin: data.subset(rng.permutation(len(data))[:test]) for kelvin, data in hot.items()}
    if name in CRYSTALS:
        parts = ("training", "test")
        learned, others = (read(FOLDER / "periodic" / f"mlearn_{CRYSTALS[name]}_{part}.extxyz.gz") for part in parts)
    else:
        raise InputError(f"no system {name}; there are {', '.join(SYSTEMS)}")
    own = learned.subset(rng.permutation(len(learned))[:count])
    return own, {"test": others.subset(rng.permutation(len(others))[:test])}


def _split(data: Dataset, count: int, test: int, rng: np.random.Generator) -> tuple[Dataset, dict[str, Dataset]]:
    order = rng.permutation(len(data))
    return data.subset(order[:count]), {"test": data.subset(order[MOST : MOST + test])}


def water() -> Dataset:
    with np.load(FOLDER / "periodic" / "water_pbe0ts_deepmd.npz") as file:
        numbers, places, energies, forces, cells = (file[key] for key in ("z", "R", "E", "F", "cell"))
    cells = np.broadcast_to(cells.reshape(-1, 3, 3), (len(places), 3, 3))
    return Dataset(
        [
            Structure(numbers, r.astype(float), cell.astype(float), [True] * 3, energy=float(e), forces=f.astype(float))
            for r, e, f, cell in zip(places, np.ravel(energies), forces, cells)
        ],
        "water",
    )
