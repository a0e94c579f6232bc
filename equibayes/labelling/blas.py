"""A faster linear algebra library for engines that ship with a slow one.

A library that replaces another must be loaded before the process starts, through LD_PRELOAD.  Intel's MKL in its LP64
interface has the symbols of the reference BLAS and LAPACK.
"""

import importlib.metadata
import os
import sys
from pathlib import Path

_PARTS = ("libmkl_intel_lp64", "libmkl_{layer}", "libmkl_core")


def preload_environment(threads: int = 1) -> dict[str, str]:
    """Environment variables that replace another BLAS by MKL; empty if the `mkl` package is not installed."""
    if not sys.platform.startswith("linux"):
        return {}
    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    # GNU threads, since engines compiled by gfortran load the GNU OpenMP library; one thread needs none.
    parts = [part.format(layer="sequential" if threads == 1 else "gnu_thread") for part in _PARTS]
    found = []
    for part in parts:
        paths = [Path(file.locate()).resolve() for file in files if file.name.startswith(f"{part}.so")]
        if not paths or not paths[0].exists():
            return {}
        found.append(str(paths[0]))
    already = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": os.pathsep.join([*found, *([already] if already else [])])}
