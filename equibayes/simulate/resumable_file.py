"""Text files that grow during a run and can be cut back to the length recorded in a saved state."""

import os
from pathlib import Path

from equibayes.errors import InputError
from equibayes.files import reason


class ResumableFile:
    """Text is appended; whatever lies beyond `length` when the file is opened is removed."""

    def __init__(self, path: Path, length: int = 0) -> None:
        self.path = path
        try:
            present = path.stat().st_size if path.exists() else 0
            if present < length:
                raise InputError(
                    f"{path}: has {present} bytes, but the saved state expects {length}; "
                    "it was changed since: start again with --overwrite"
                )
            # unbuffered: other programs can follow it, and closing cannot fail
            self._file = path.open("ab", buffering=0)
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

    def flush(self) -> int:
        """Force everything to the disk; returns the length in bytes."""
        try:
            os.fsync(self._file.fileno())
        except OSError as cause:
            raise InputError(f"{self.path}: {reason(cause)}") from cause
        return self.length

    def close(self) -> None:
        self._file.close()
