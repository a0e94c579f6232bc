"""Named, seeded, disjoint splits, and the files that hold them."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.data.files import check_archive, foreign_reader, one_line, require_file
from equibayes.data.structures import IntArray
from equibayes.errors import InputError
from equibayes.plural import counted

Splits = dict[str, IntArray]
"""Frame indices, counted from 0, by the name of the split."""


def split(data: Dataset | int, sizes: Mapping[str, int | float], seed: int) -> Splits:
    """Draw disjoint splits at random.

    Parameters
    ----------
    data: a data set, or its number of frames.
    sizes: by name either counts (whole numbers) or fractions (floats that add up to at most 1, rounded down), in this
        order.  One size may be -1: all that is left over.
    seed: the same seed always gives the same split: numpy's PCG64 orders all frames by `permutation`, and the splits
        are cut from that order one after another; within a split the indices are then sorted.
    """
    n = data if isinstance(data, int) else len(data)
    counts = {name: _count(name, size, n) for name, size in sizes.items()}
    rest = [name for name, count in counts.items() if count < 0]
    needed = sum(count for count in counts.values() if count > 0)
    if len(rest) > 1:
        raise InputError(f"splits {rest[0]} and {rest[1]}: only one split can take what is left over (-1)")
    if needed > n:
        wanted = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(f"splits need {counted(needed, 'frame')} ({wanted}), there are {n}; ask for fewer")
    for name in rest:
        counts[name] = n - needed
    order = np.random.Generator(np.random.PCG64(seed)).permutation(n)
    ends = np.cumsum(list(counts.values())).tolist()
    return {name: np.sort(order[end - counts[name] : end]) for name, end in zip(counts, ends)}


def _count(name: str, size: int | float, n: int) -> int:
    if isinstance(size, bool) or not np.isfinite(size) or (size < 0 and size != -1):
        raise InputError(f"split {name}: size {size} is neither a count, a fraction, nor -1 for what is left over")
    if isinstance(size, int):
        return size
    if size == -1:
        return -1
    if size > 1:
        raise InputError(f"split {name}: a fraction of {size} is more than all; write a count as a whole number")
    return int(np.floor(size * n + 1e-9))  # 0.29 * 100 is 28.999…


def paper_rmd17(official_train: IntArray, n_frames: int, seed: int = 0) -> Splits:
    """The paper's protocol: 970 train and 30 validation frames out of an official train_NN, test on all others.

    `official_train` holds 1000 indices into a set of `n_frames`; which 30 validate is drawn with `seed`.  The test
    split is every frame in neither, since official test splits of other numbers share frames with this training split.
    """
    official = np.asarray(official_train, dtype=np.int64)
    if len(np.unique(official)) != 1000 or official.min() < 0 or official.max() >= n_frames:
        raise InputError(f"the rMD17 protocol needs 1000 distinct frames below {n_frames}, got {len(official)}")
    drawn = split(len(official), {"train": 970, "validation": 30}, seed)
    result = {name: np.sort(official[indices]) for name, indices in drawn.items()}
    result["test"] = np.setdiff1d(np.arange(n_frames, dtype=np.int64), official)
    return result


def save_splits(path: str | Path, splits: Mapping[str, IntArray]) -> None:
    """Write to `.npz` or `.json`; named `<stem>.splits.npz` next to its data file, `file@name` finds it."""
    path = Path(path)
    if path.suffix == ".json":
        path.write_text(json.dumps({name: np.asarray(indices).tolist() for name, indices in splits.items()}))
    elif path.suffix == ".npz":
        arrays = {name: np.asarray(indices, dtype=np.int64) for name, indices in splits.items()}
        np.savez_compressed(path, allow_pickle=False, **arrays)
    else:
        raise InputError(f"{path}: a split file ends in .npz or .json")


def load_splits(path: str | Path) -> Splits:
    """Read a split file; anything but lists of whole numbers by name is an `InputError`."""
    path = Path(path)
    require_file(path)
    if zipfile.is_zipfile(path):
        check_archive(path, path.name)
    with foreign_reader(path.name, "a split file holds lists of frame numbers by name: write it with save_splits"):
        if path.suffix == ".json":
            content = json.loads(path.read_text(encoding="utf-8"))
        else:
            with np.load(path, allow_pickle=False) as archive:
                content = {name: archive[name] for name in archive.files}
        raw = {str(name): np.asarray(indices) for name, indices in dict(content).items()}
    for name, indices in raw.items():
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            raise InputError(f"{path.name}: split {one_line(name, 40)} is not a list of frame numbers; write one")
    return {name: indices.astype(np.int64) for name, indices in raw.items()}
