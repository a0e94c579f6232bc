"""Files that are whole or not there: written beside their place, flushed to the disk, then renamed."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
        raise InputError(f"{path}: {reason(cause)}") from cause
    finally:
        with suppress(OSError):
            temporary.unlink()


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Delete what a killed process left half written of such files; only while nobody else writes there."""
    for path in folder.glob(f".{name}.*.tmp"):
        with suppress(OSError):
            path.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def make_folder(path: str | Path) -> Path:
    """A folder that exists and can be written to."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise InputError(f"{path}: {reason(cause)}") from cause
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"{path}: the folder cannot be written to; choose another with -o")
    return path


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Holds a folder for one process; a second one is refused.  The system lets go of it however the process ends."""
    try:
        import fcntl
    except ImportError:  # a system without such locks: nothing to hold
        yield
        return
    path = folder / "lock"
    try:
        file = path.open("a")
    except OSError as cause:
        raise InputError(f"{path}: {reason(cause)}") from cause
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{folder}: another equibayes is at work there; wait for it, stop it, or choose another name with -o"
            ) from None
        except OSError:  # some network file systems have no locks
            pass
        yield


def _umask() -> int:
    """The process's mask can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def reason(cause: OSError) -> str:
    """Why a file cannot be written, and what to do about it."""
    if cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        limit = "the disk is full" if cause.errno == errno.ENOSPC else f"no room ({cause.strerror})"
        return f"{limit}; nothing that was there is lost: free some space, then continue with --resume"
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
