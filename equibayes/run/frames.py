"""The frames of a run as users name them: files to learn from, and frames to validate on."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number
from equibayes.data.graph import check_species
from equibayes.data.several import Given, read_all
from equibayes.errors import InputError, InputWarning
from equibayes.plural import counted
from equibayes.run.settings import SampleConfig

Validation = Given | Sequence[Given] | float | None
"""Files or frames; a fraction (0.1) or number (30) of the frames of DATA; None: as data.validation says."""


def frames_of(
    data: Given | Sequence[Given], validation: Validation, config: SampleConfig, **options: Any
) -> tuple[Dataset, Dataset | None, SampleConfig]:
    """Read what is named; options are those of `read`.

    Returns frames to learn from, the frames to validate on where they are given separately, and settings whose
    data.validation is the number of frames of the former that are still to be held back.
    """
    frames = read_all(data, **options)
    number = _number(validation)
    if validation is None:
        return frames, None, config
    if number is not None:
        return frames, None, _holding_back(config, _count(number, len(frames)))
    assert not isinstance(validation, (int, float))
    apart = _unseen(read_all(validation, **options), frames)
    known = dict.fromkeys((*frames.species, *map(atomic_number, config.network.type_names)), 0)
    for structure in apart:
        check_species(structure, known)
    return frames, apart, _holding_back(config, 0)


def _number(validation: Validation) -> int | float | None:
    """A number, or text that is one and no file."""
    if isinstance(validation, str) and not Path(validation).exists():
        for kind in (int, float):
            try:
                return kind(validation)
            except ValueError:
                continue
    return validation if isinstance(validation, (int, float)) else None


def _count(number: int | float, frames: int) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        return number
    if not isinstance(number, float) or not 0 < number < 1:
        raise InputError(
            f"validation {number}: is neither a number of frames such as 30, nor a fraction such as 0.1, nor a file"
        )
    return max(1, round(number * frames))


def _holding_back(config: SampleConfig, count: int) -> SampleConfig:
    return replace(config, data=replace(config.data, validation=count))


def _unseen(validation: Dataset, train: Dataset) -> Dataset:
    """Without the frames that are training frames too, which would prove nothing."""
    learned = {structure.geometry_digest(): structure.source for structure in train}
    again = [learned.get(structure.geometry_digest()) for structure in validation]
    kept = np.flatnonzero([source is None for source in again])
    if len(kept) == len(validation):
        return validation
    first = next(number for number, source in enumerate(again) if source is not None)
    pair = f"{validation[first].source} = {again[first]}"
    if not len(kept):
        raise InputError(f"{validation.name}: all of its frames are training frames too ({pair}); give others")
    count = f"{len(validation) - len(kept)} of {counted(len(validation), 'frame')}"
    message = f"{validation.name}: {count} are training frames too ({pair}) and are left out"
    warnings.warn(message, InputWarning, stacklevel=3)
    left = validation.subset(kept).noted(message)
    left.specs = validation.specs  # where the same frames will be left out again
    return left
