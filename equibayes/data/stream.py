"""Structures one by one, for files too long to hold in memory: like `read`, in constant memory for extended xyz.

Other formats are read whole (the arrays of an npz file are small compared with predictions), and so are frames that
are requested in another order than in the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data.checks import check_structures
from equibayes.data.dataset import Dataset
from equibayes.data.files import require_file, text_lines
from equibayes.data.labels import AseFrame, find_keys, to_structure
from equibayes.data.parsed import FileUnits, LabelKeys
from equibayes.data.plausibility import warn_if_implausible
from equibayes.data.read import XYZ, convert, read, settle_units
from equibayes.data.specs import Spec, parse_spec, select
from equibayes.data.structures import ISOLATED_ATOM, IntArray, Structure
from equibayes.units import KINDS

# The first frames, which decide under which keys the labels are and whether the units look right.
LOOK = 1000


@dataclass(frozen=True)
class Stream:
    """Structures to iterate over once; `total` also counts the free atoms (config_type=IsolatedAtom) left out."""

    name: str
    total: int
    structures: Iterator[Structure]


def stream(spec: str | Path, **options: Any) -> Stream:
    """Structures of a file or a part of it, with any labels; `options` are those of `read` about keys and units."""
    target = parse_spec(spec)
    if target.path.name.lower().endswith(XYZ):
        from equibayes.data.ase_formats import cut_into_frames

        require_file(target.path)
        # a first look at the counts alone: how many there are, and whether the file is complete
        chosen = select(target, sum(1 for _ in cut_into_frames(text_lines(target.path), target.file)))
        if (np.diff(chosen) > 0).all():
            return Stream(target.name, len(chosen), _structures(target, chosen, options))
    data = read(spec, require_labels=False, **options)
    return Stream(data.name, len(data), iter(data))


def _structures(target: Spec, chosen: IntArray, options: dict[str, Any]) -> Iterator[Structure]:
    """In eV and Å, checked; the first frames decide the keys of the labels for the whole file."""
    keys = LabelKeys(*(options.get(f"{label}_key") for label in ("energy", "forces", "stress")))
    frames = _ase_frames(target, chosen)
    first = list(islice(frames, LOOK))
    found, _ = find_keys(first, keys, target.file)
    told = (options.get(f"{kind}_unit") for kind in KINDS)
    units = settle_units(FileUnits(), *told, stress_key=found.get("stress"))

    def usable(frame: AseFrame) -> list[Structure]:
        structure = to_structure(frame, found)
        ours = convert([structure] if structure.config_type != ISOLATED_ATOM else [], units)
        check_structures(ours)
        return ours

    beginning = [structure for frame in first for structure in usable(frame)]
    del first
    warn_if_implausible(Dataset(beginning, target.name))
    return chain(beginning, (structure for frame in frames for structure in usable(frame)))


def _ase_frames(target: Spec, chosen: IntArray) -> Iterator[AseFrame]:
    from equibayes.data.ase_formats import cut_into_frames, read_frame

    wanted = iter(chosen.tolist())
    next_one = next(wanted, None)
    for index, lines in enumerate(cut_into_frames(text_lines(target.path), target.file)):
        if next_one is None:
            return
        if index == next_one:
            yield read_frame(lines, index, target.file)
            next_one = next(wanted, None)
