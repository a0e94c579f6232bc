"""Checkpoints: everything that is needed to go on bit for bit, in files that are whole or not there.

A checkpoint is a safetensors file (never a pickle) whose header holds a format version, what the run was about, and a SHA-256 over the
tensors and the header.  The two newest are kept, so that a damaged one falls back to the one before.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from equibayes.errors import InputError
from equibayes.files import write_atomically

FORMAT = "equibayes-checkpoint"
VERSION = 1
KEEP = 2


class Checkpoint(NamedTuple):
    """Tensors by name and a JSON-able record beside them."""

    tensors: dict[str, torch.Tensor]
    record: dict[str, Any]


def save(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Write `checkpoint-<step>.safetensors` atomically and remove all but the newest."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    text = json.dumps(checkpoint.record, sort_keys=True)
    metadata = {"format": FORMAT, "version": str(VERSION), "record": text, "sha256": _digest(tensors, text)}
    path = folder / f"checkpoint-{step:010d}.safetensors"
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))
    for old in _newest_first(folder)[KEEP:]:
        old.unlink(missing_ok=True)
    return path


def load_newest(folder: Path, say: Callable[[str], None] = print) -> Checkpoint | None:
    """The newest checkpoint that is whole; None where there is none at all."""
    candidates = _newest_first(folder)
    for path in candidates:
        try:
            return load(path)
        except InputError as damage:
            say(f"{damage}; falling back to the one before")
    if candidates:
        raise InputError(f"{folder}: no checkpoint in it is readable; start again without --resume")
    return None


def load(path: Path) -> Checkpoint:
    """Read and verify one checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as cause:
        raise InputError(f"{path}: damaged checkpoint ({str(cause).splitlines()[0]})") from cause
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path}: not an equibayes checkpoint")
    if metadata.get("version") != str(VERSION):
        raise InputError(f"{path}: checkpoint format {metadata.get('version')}, this program reads {VERSION}")
    if metadata.get("sha256") != _digest(tensors, metadata["record"]):
        raise InputError(f"{path}: damaged checkpoint (checksum differs)")
    return Checkpoint(tensors, json.loads(metadata["record"]))


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*.safetensors"), reverse=True)


def _digest(tensors: Mapping[str, torch.Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
