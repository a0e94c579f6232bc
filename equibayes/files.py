"""Files that are complete or absent: written under a temporary name, flushed to the disk, then renamed."""

import errno
import hashlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from glob import escape
from pathlib import Path

from equibayes.errors import InputError

AGAIN = "run the same command again"
RESUME = "continue with --resume"
SAME_COMMAND = "run the same command again, which continues"
_REMEDY: ContextVar[str] = ContextVar("remedy", default="")
# process numbers mean something on their own machine only
_HOST = re.sub(r"[^A-Za-z0-9]+", "_", socket.gethostname())[:40] or "host"


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call `write` with a temporary path in the same folder and move the result to `path`.

    A reader of `path` sees the old content or the new, never a part of it; a failure leaves the old content in place.
    A symbolic link is kept, and the file that it leads to is written.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f"{_hidden(target)}.{_HOST}-{os.getpid()}.tmp")
    try:
        _remove_stale(target)
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


def _hidden(path: Path) -> str:
    """The beginning of the names of temporary files for a target; a long name is shortened, so that they exist."""
    name = path.name if len(os.fsencode(path.name)) <= 150 else hashlib.sha256(os.fsencode(path.name)).hexdigest()
    return f".{name}"


def _remove_stale(path: Path) -> None:
    """Delete what processes of this machine that are no more have left of earlier attempts to write `path`."""
    for old in path.parent.glob(f"{escape(_hidden(path))}.{escape(_HOST)}-*.tmp"):
        number = old.name.removesuffix(".tmp").rpartition("-")[2]
        if number.isdecimal() and not _alive(int(number)):
            with suppress(OSError):
                old.unlink()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it belongs to someone else
        pass
    return True


@contextmanager
def remedy(words: str) -> Iterator[None]:
    """How a command goes on after a disk was full; the outermost block decides."""
    token = _REMEDY.set(_REMEDY.get() or words)
    try:
        yield
    finally:
        _REMEDY.reset(token)


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
        return f"{limit}; existing files are intact: free some space, then {_REMEDY.get() or AGAIN}"
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
