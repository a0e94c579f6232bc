"""Checkpoints: everything needed to continue bit for bit, in files written atomically.

A checkpoint is a safetensors file (never a pickle).  Its header holds a format version, what identifies the run, and a
SHA-256 of tensors and header.  The two newest are kept, so that a damaged one can be replaced by the one before.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from equibayes import expect, tensor_file
from equibayes.errors import InputError
from equibayes.files import RESUME, remedy
from equibayes.plural import counted
from equibayes.run.upgrade import checkpoint_1_to_2, checkpoint_2_to_3

FORMAT = "equibayes-checkpoint"
VERSION = 3
UPGRADES = {1: checkpoint_1_to_2, 2: checkpoint_2_to_3}
KEEP = 2


class Checkpoint(NamedTuple):
    """Tensors by name, and a record that can be written as JSON."""

    tensors: dict[str, torch.Tensor]
    record: dict[str, Any]


def save(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Write `checkpoint-<step>.safetensors` atomically and remove all but the newest."""
    path = folder / f"checkpoint-{step:010d}.safetensors"
    with remedy(RESUME):
        tensor_file.write(path, checkpoint.tensors, {"record": checkpoint.record}, format=FORMAT, version=VERSION)
    for old in newest_first(folder)[KEEP:]:
        old.unlink(missing_ok=True)
    return path


def load_newest(
    folder: Path, say: Callable[[str], None] = print, check: Callable[[Checkpoint], None] = lambda _: None
) -> Checkpoint:
    """The newest undamaged checkpoint that passes a check of its values; an `InputError` where there is none."""
    candidates = newest_first(folder)
    for path, before in zip(candidates, [*candidates[1:], None]):
        try:
            return load(path, check)
        except InputError as damage:
            say(f"{damage}; " + (f"falling back to {before.name}" if before else "there is none before it"))
    if candidates:
        raise InputError(
            f"{folder}: none of its {counted(len(candidates), 'checkpoint')} can be read; start over with --overwrite"
        )
    raise InputError(f"{folder}: no checkpoint to resume from; start without --resume")


def load(path: Path, check: Callable[[Checkpoint], None] = lambda _: None) -> Checkpoint:
    """Read and verify one checkpoint."""
    header, tensors = tensor_file.read(path, format=FORMAT, version=VERSION, what="checkpoint", upgrades=UPGRADES)
    try:
        found = Checkpoint(tensors, expect.section(header.get("record"), "record"))
        check(found)
    except InputError as cause:
        raise InputError(f"{path}: this checkpoint makes no sense ({cause})") from cause
    return found


def remove_all(folder: Path) -> None:
    """Remove all checkpoints in a folder."""
    for path in newest_first(folder):
        path.unlink(missing_ok=True)


def newest_first(folder: Path) -> list[Path]:
    """All checkpoints in a folder, the newest first."""
    return sorted(folder.glob("checkpoint-*.safetensors"), reverse=True)
