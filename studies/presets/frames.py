"""Frames to learn from and held-back frames to choose settings on; never those of the demo or of the tables.

rMD17: the official `train_01` to learn from; 400 frames of the other training splits that are in no test split, to
judge by.  Crystals of mlearn: nine tenths of the training file, and the rest to judge by.
"""

import os
from pathlib import Path

import numpy as np

from equibayes.data import Dataset, read

FOLDER = Path(os.environ.get("SHARED", "../shared")) / "data"
MOLECULES = ("aspirin", "azobenzene", "benzene", "ethanol", "malonaldehyde", "toluene")
CRYSTALS = {"silicon": "Si", "lithium": "Li", "molybdenum": "Mo"}
JUDGED = 400
HELD_BACK = 30
"""Frames that a run itself holds back for its calibration."""


def frames(name: str, count: int | None, folder: Path = FOLDER) -> tuple[Dataset, Dataset]:
    """`count` frames to learn from, plus those that a run holds back itself; and others to judge by."""
    if name in CRYSTALS:
        data = read(folder / "periodic" / f"mlearn_{CRYSTALS[name]}_training.extxyz.gz")
        order = np.random.default_rng(0).permutation(len(data))
        learned, judged = order[len(data) // 10 :], order[: len(data) // 10]
    else:
        data = read(folder / "rmd17" / f"rmd17_{name}.npz")
        learned, judged = _molecule(folder / "rmd17" / f"splits_{name}.npz")
    if count is not None:
        learned = learned[: count + HELD_BACK]
    return data.subset(learned), data.subset(judged)


def _molecule(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as file:
        splits = {key: file[key].astype(np.int64) for key in file.files}
    first = splits["train_01"]
    known = np.concatenate([first, *(rows for key, rows in splits.items() if key.startswith("test"))])
    others = np.concatenate([rows for key, rows in sorted(splits.items()) if key.startswith("train")])
    return first, np.setdiff1d(others, known)[:: max(1, len(np.setdiff1d(others, known)) // JUDGED)][:JUDGED]
