"""Files that are whole or not there: written beside their place, flushed to the disk, then renamed."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from equibayes.errors import InputError


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call `write` with a temporary path in the same folder and move the result to `path`.

    Whoever reads `path` sees the old content or the new, never a part; a failure leaves the old in place.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # some writers make files that only their owner can read
        os.replace(temporary, path)
        _flush_folder(path.parent)
    except OSError as cause:
        raise InputError(f"{path}: {_reason(cause)}") from cause
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def make_folder(path: str | Path) -> Path:
    """A folder that exists and can be written to."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise InputError(f"{path}: {_reason(cause)}") from cause
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"{path}: the folder cannot be written to; choose another with -o")
    return path


def _umask() -> int:
    """The process's mask can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _reason(cause: OSError) -> str:
    if cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; nothing that was there is lost: free some space, then continue with --resume"
    if cause.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "not writable; choose another place with -o"
    return f"cannot be written ({cause.strerror or cause})"


def _flush_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
