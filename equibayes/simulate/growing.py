"""Files that grow during a run and can be cut back to a length that a saved state knows."""

import os
from pathlib import Path

from equibayes.errors import InputError
from equibayes.files import reason


class GrowingFile:
    """Text that is appended to; what lies beyond `length` when it is opened is forgotten."""

    def __init__(self, path: Path, length: int = 0) -> None:
        self.path = path
        try:
            there = path.stat().st_size if path.exists() else 0
            if there < length:
                raise InputError(
                    f"{path}: {there} bytes where the saved state knows {length}; it was changed since: begin anew with --overwrite"
                )
            self._file = path.open(
                "ab", buffering=0
            )  # others can watch it grow, and nothing is left to fail when it is closed
            self._file.truncate(length)
        except OSError as cause:
            raise InputError(f"{path}: {reason(cause)}") from cause
        self.length = length

    def append(self, text: str) -> None:
        data = text.encode("utf-8")
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as cause:
            raise InputError(f"{self.path}: {reason(cause)}") from cause
        self.length += len(data)

    def settle(self) -> int:
        """Put everything on the disk; returns the length."""
        try:
            os.fsync(self._file.fileno())
        except OSError as cause:
            raise InputError(f"{self.path}: {reason(cause)}") from cause
        return self.length

    def close(self) -> None:
        self._file.close()
