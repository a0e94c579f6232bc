"""Reading files with third-party readers: every failure becomes a one-line `InputError`."""

import gzip
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from equibayes.errors import InputError, one_line

LONGEST_LINE = 64 * 10**6
"""Bytes."""
LARGEST_UNPACKED, MOST_EXPANSION = 10**9, 200
"""Bytes, and times its size, to which a compressed file may unpack; only beyond both is it refused."""


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
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as text:
            for line in _bounded_lines(text, path, name):
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


def _bounded_lines(text: BinaryIO | gzip.GzipFile, path: Path, name: str) -> Iterator[bytes]:
    """Lines of an open file; an `InputError` for one without an end and for a file that grows without bounds."""
    size, total = path.stat().st_size, 0
    while line := text.readline(LONGEST_LINE):
        total += len(line)
        if len(line) == LONGEST_LINE:
            raise InputError(f"{name}: a line of more than {LONGEST_LINE // 10**6} MB; not a file of structures")
        if total > LARGEST_UNPACKED and total > MOST_EXPANSION * size:
            raise InputError(f"{name}: {_bomb(size)}; decompress it with gunzip if it is right")
        yield line


def check_archive(path: Path, name: str) -> None:
    """An `InputError` for a zip file (npz) whose members are far larger than the file."""
    with (
        foreign_reader(name, "not an npz file, or damaged: write it again with numpy.savez"),
        zipfile.ZipFile(path) as archive,
    ):
        total = sum(member.file_size for member in archive.infolist())
    size = path.stat().st_size
    if total > LARGEST_UNPACKED and total > MOST_EXPANSION * size:
        raise InputError(f"{name}: {_bomb(size)}; if it is right, write it again with numpy.savez, uncompressed")


def _bomb(size: int) -> str:
    limit = f"{LARGEST_UNPACKED // 10**9} GB and {MOST_EXPANSION} times its size"
    return f"{size / 1e6:.3g} MB that unpack to more than {limit}"


def bare_stem(path: Path) -> str:
    """File name without compression and extension: `train.xyz.gz` gives `train`."""
    name = path.name.removesuffix(".gz")
    return name.rpartition(".")[0] or name
