"""Files that an option names: checked before the work, not after it."""

import os
from pathlib import Path

from equibayes.errors import InputError


def check_output(option: str, path: str | None, *endings: str) -> None:
    """An `InputError` where the file of `--option` cannot be written, or has none of these endings."""
    if path is None:
        return
    if Path(path).suffix not in endings:
        raise InputError(f"--{option} {path}: the name of the file must end in {' or '.join(endings)}")
    if not Path(path).resolve().parent.is_dir():
        raise InputError(f"--{option} {path}: there is no such folder; make it first")
    if not os.access(Path(path).resolve().parent, os.W_OK):
        raise InputError(f"--{option} {path}: the folder cannot be written to; choose another")
