"""The folder of generated code and of what compilers made of it."""

import os
import tempfile
from functools import cache
from pathlib import Path


def code_cache() -> Path:
    """$XDG_CACHE_HOME/equibayes, or a folder of temporary files where that cannot be written."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "equibayes"
    try:
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK):
            return base
    except OSError:
        pass
    return _temporary_folder()


@cache
def _temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="equibayes-kernels-"))
