"""Files that are complete or absent: written under a temporary name, flushed to the disk, then renamed."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from equibayes.errors import InputError


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call `write` with a temporary path in the same folder and move the result to `path`.

    A reader of `path` sees the old content or the new, never a part of it; a failure leaves the old content in place.
    A symbolic link is kept, and the file that it leads to is written.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # some writers create files that only their owner can read
        os.replace(temporary, target)
        _flush_folder(target.parent)
    except OSError as cause:
        raise InputError(f"{path}: {reason(cause)}") from cause
    finally:
        with suppress(OSError):
            temporary.unlink()


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Delete partial files left by a killed process; only while no other process writes there."""
    for path in folder.glob(f".{name}.*.tmp"):
        with suppress(OSError):
            path.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def check_target(path: Path, *, overwrite: bool) -> None:
    """An `InputError` where a file cannot be written or exists already; to be called before the work, not after it."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file with -o")
    if not path.resolve().parent.is_dir():
        raise InputError(f"{path}: there is no such folder; make it first")
    if path.exists() and not overwrite:
        raise InputError(f"{path}: exists already; choose another name with -o, or add --overwrite")


def make_folder(path: str | Path) -> Path:
    """Create a folder unless it exists, and check that it can be written to."""
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
    """Lock a folder for one process; a second one is refused.  The system releases the lock when the process ends."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
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
                f"{folder}: another equibayes is running there; wait for it, stop it, or choose another name with -o"
            ) from None
        except OSError:  # some network file systems have no locks
            pass
        yield


def _umask() -> int:
    """The file mode mask of the process, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def reason(cause: OSError) -> str:
    """Why a file cannot be written, and the remedy."""
    if cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        limit = "the disk is full" if cause.errno == errno.ENOSPC else f"no space left ({cause.strerror})"
        return f"{limit}; existing files are intact: free some space, then continue with --resume"
    if cause.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "not writable; choose another place with -o"
    return f"cannot be written ({cause.strerror or cause})"


def _flush_folder(folder: Path) -> None:
    """Make the rename itself survive a power failure, where the system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
