"""Reading files with third-party readers: every failure becomes a one-line `InputError`."""

import gzip
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from equibayes.errors import InputError, one_line


@contextmanager
def foreign_reader(where: str, remedy: str) -> Iterator[None]:
    """Run a third-party reader on a user's file.

    On damaged files numpy, zipfile, sqlite3, json and ASE raise nearly everything there is (KeyError, AssertionError,
    struct.error, RecursionError, MemoryError, …).  This is the one place where all of it is caught; the cause stays
    chained.  Their warnings about odd input would only repeat what our own checks say, so they are silenced.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except Exception as cause:
        detail = one_line(cause) or "no further detail"
        raise InputError(f"{where}: cannot be read ({type(cause).__name__}: {detail}); {remedy}") from cause


def require_file(path: Path) -> None:
    """An `InputError` unless `path` is a readable file that is not empty."""
    name = one_line(path, 300)
    try:
        if path.is_dir():
            raise InputError(f"{name}: is a directory; name a file in it")
        if not path.exists():
            raise InputError(f"{name}: no such file; check the path")
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"{name}: the file is empty; write or download it again")
    except (OSError, ValueError) as cause:  # no permission, name too long, NUL character in the name
        raise InputError(f"{name}: cannot be opened ({one_line(cause)}); check path and permissions") from cause


def text_lines(path: Path) -> Iterator[str]:
    """Lines of a text file without their ends, also gzipped (recognised by its first two bytes, not its name)."""
    name, blank = one_line(path, 300), True
    try:
        with path.open("rb") as file:
            opened = gzip.open if file.read(2) == b"\x1f\x8b" else open
        with opened(path, "rb") as text:
            for line in text:
                if b"\0" in line:
                    raise InputError(
                        f"{name}: not a text file; extended xyz is text, other formats need their own extension"
                    )
                blank = blank and not line.strip()
                yield line.removesuffix(b"\n").decode("utf-8")
    except UnicodeDecodeError as cause:
        raise InputError(f"{name}: not a text file (not UTF-8); write UTF-8 text") from cause
    except (OSError, EOFError, zlib.error) as cause:
        raise InputError(f"{name}: cannot be read ({one_line(cause)}); write or download it again") from cause
    if blank:
        raise InputError(f"{name}: the file is empty; write or download it again")


def bare_stem(path: Path) -> str:
    """File name without compression and extension: `train.xyz.gz` gives `train`."""
    name = path.name.removesuffix(".gz")
    return name.rpartition(".")[0] or name
