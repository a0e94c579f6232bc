"""The CPU that code is compiled for."""

import hashlib
import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from equibayes.errors import InputError

VARIABLE = "EQUIBAYES_CPU"
"""Environment variable that asks for smaller vectors than the CPU has, to compare or to debug."""


@dataclass(frozen=True)
class Target:
    """
    name   of the vector instructions
    width  floats in a vector
    flags  that choose the instructions
    """

    name: str
    width: int
    flags: tuple[str, ...]


TARGETS = {
    "avx512": Target("avx512", 16, ("-march=native", "-mprefer-vector-width=512")),
    "avx2": Target("avx2", 8, ("-mavx2", "-mfma")),
    "sse": Target("sse", 4, ("-msse4.2",)),
    "neon": Target("neon", 4, ("-mcpu=native",)),
}


def target() -> Target:
    """The best of this CPU, or what EQUIBAYES_CPU says."""
    wanted = os.environ.get(VARIABLE) or best()
    if wanted not in TARGETS:
        raise InputError(f"{VARIABLE}={wanted}: is unknown; use one of {', '.join(TARGETS)}, or unset it")
    return TARGETS[wanted]


def engine_name() -> str:
    """Of the engine, in records: the width of a vector decides in which order sums are made."""
    return f"native-{target().name}"


@cache
def best() -> str:
    """The widest vectors of this CPU."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "neon"
    return {"AVX512": "avx512", "AVX2": "avx2"}.get(torch.backends.cpu.get_cpu_capability(), "sse")


@cache
def cpu_stamp() -> str:
    """Identifies the instructions that -march=native stands for, in a cache that several machines may share."""
    words = [platform.machine(), platform.processor()]
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        known = ("flags", "Features", "model name", "cpu family", "model\t")
        words += sorted({line for line in lines if line.startswith(known)})
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
