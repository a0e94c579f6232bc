"""Frames to learn from, to choose settings on, and to judge by, of every data set in hand."""

from pathlib import Path

import numpy as np

from equibayes.data import Dataset, read
from studies.presets.frames import CRYSTALS, MOLECULES
from studies.presets.frames import frames as tried

SETS = (*MOLECULES, "3bpa", "alkane", "pedot", *CRYSTALS, "water")
PEDOT = Path(__file__).parent.parent / "pedot" / "data"
PERIODIC_SETS = (*CRYSTALS, "water")
HELD_BACK = 30
"""Frames that a run holds back itself."""
MOST = 200
"""Frames to choose on, and to judge by."""


def frames(name: str, folder: Path) -> tuple[Dataset, Dataset, Dataset]:
    """learned from and held back, chosen on, judged by"""
    if name in MOLECULES or name in CRYSTALS:
        learn, tune = tried(name, None, folder)
        return learn, _some(tune), _some(_official(name, folder))
    if name == "3bpa":
        data = read(folder / "3bpa" / "train_300K.xyz.gz")
        return *_parts(data, (400, 100)), _some(read(folder / "3bpa" / "test_300K.xyz.gz"))
    if name == "alkane":
        return _parts(read(folder / "alkanes" / "c06.npz"), (500, MOST, MOST))
    if name == "pedot":
        longer = [s for units in (8, 12) for s in read(PEDOT / f"pedot_{units}.npz")]
        return *(read(PEDOT / f"pedot.npz@{part}") for part in ("train", "validation")), Dataset(longer, "later steps")
    return _parts(read(folder / "periodic" / "water_pbe0ts_deepmd.npz"), (150 + HELD_BACK, 30, 30))


def _official(name: str, folder: Path) -> Dataset:
    if name in CRYSTALS:
        return read(folder / "periodic" / f"mlearn_{CRYSTALS[name]}_test.extxyz.gz")
    with np.load(folder / "rmd17" / f"splits_{name}.npz") as splits:
        first = set(splits["train_01"].tolist())
        rows = [row for row in splits["test_01"].tolist() if row not in first]
    return read(folder / "rmd17" / f"rmd17_{name}.npz").subset(rows)


def _parts(data: Dataset, counts: tuple[int, ...]) -> tuple[Dataset, ...]:
    """Random frames, no frame twice."""
    order = np.random.default_rng(0).permutation(len(data))
    ends = np.cumsum(counts)
    return tuple(data.subset(np.sort(part)) for part in np.split(order[: ends[-1]], ends[:-1]))


def _some(data: Dataset) -> Dataset:
    return data.subset(np.unique(np.linspace(0, len(data) - 1, min(MOST, len(data))).astype(int)))
