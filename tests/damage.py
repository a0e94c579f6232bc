"""Ways in which a file can be damaged, or be something else than its name says."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file


class Trap:
    """Leaves the file `sprung` when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch sprung",)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path, place: int) -> None:
    """Change one bit of the byte at `place`."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def text(path: Path) -> None:
    path.write_text("not tensors\n" * 100)


def foreign(path: Path) -> None:
    """Safetensors of another program."""
    save_file({"weight": torch.zeros(3)}, path, {"format": "pt"})


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"samples": Trap()}))


def torch_file(path: Path) -> None:
    torch.save({"samples": Trap()}, path)
