"""From C++ text to a loaded library: compiled at first use, then found in the cache.

A library is named after everything that it depends on: text, headers, flags, compiler and CPU.  Its translation units
are compiled in parallel, each cached by itself, so that a new network does not compile the common ones again.  Two
processes that need the same library do not disturb each other: one compiles, the other waits.
"""

import ctypes
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from equibayes.engine.cache import code_cache
from equibayes.engine.native.target import Target, cpu_stamp, target

HERE = Path(__file__).parent
COMMON = ("gemm.cpp", "threads.cpp")
"""Sources in `source/` that every library has."""
# no -ffast-math: it removes the reduction of large arguments
FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-pthread", "-w")
FAST, SLOW = "-O3", "-O1"
REMEDY = "install a C++ compiler (g++ or clang++), or pip install equibayes[compiler]"

Say = Callable[[str], None]


class CompileError(Exception):
    """The compiler is missing or failed; the message is one line."""


@dataclass(frozen=True)
class Unit:
    """A translation unit, and what to compile it with."""

    name: str
    text: str
    flags: tuple[str, ...]
    key: str


_loaded: dict[str, ctypes.CDLL] = {}


def build(
    name: str,
    sources: Mapping[str, str],
    *,
    say: Say = lambda message: None,
    slow: Collection[str] = (),
    steps: bool = False,
) -> ctypes.CDLL:
    """The library of C++ texts by file name.

    name   begins the names of the files in the cache
    slow   files whose speed does not matter, compiled with less optimisation
    steps  with the steps of the sampler
    """
    chosen = target()
    common = [*COMMON, "steps.cpp"] if steps else COMMON
    texts = {each: (HERE / "source" / each).read_text(encoding="utf-8") for each in common} | dict(sources)
    units = [_unit(each, text, chosen, each in slow) for each, text in texts.items()]
    key = _digest("\n".join(unit.key for unit in units))
    if key not in _loaded:
        path = code_cache() / f"{name}-{chosen.name}-{key}.so"
        if not path.is_file():
            with _locked(path):
                if not path.is_file():  # no other process made it meanwhile
                    _make(path, units, say)
        _loaded[key] = ctypes.CDLL(str(path))
    return _loaded[key]


@cache
def compiler() -> tuple[str, ...] | None:
    """The command of a C++ compiler: $CXX, g++, clang++, or the one in the package ziglang."""
    given = shlex.split(os.environ.get("CXX", ""))
    for command in ([given] if given else []) + [["g++"], ["clang++"], ["c++"]]:
        if shutil.which(command[0]):
            return tuple(command)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "c++")
    return None


def why_no_compiler() -> str | None:
    """The reason why nothing can be compiled here, with the remedy, or None."""
    if os.name != "posix":
        return "it needs Linux or macOS"
    return None if compiler() else f"there is no C++ compiler; {REMEDY}"


def _unit(name: str, text: str, chosen: Target, slow: bool) -> Unit:
    flags = (SLOW if slow else FAST, f"-DWIDTH={chosen.width}", *chosen.flags, *FLAGS)
    command = " ".join(compiler() or ())
    return Unit(name, text, flags, _digest("\n".join([text, _headers(), *flags, command, _version(), cpu_stamp()])))


@cache
def _headers() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((HERE / "include").glob("*.h")))


@cache
def _version() -> str:
    command = compiler()
    if command is None:
        return ""
    return subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _make(path: Path, units: list[Unit], say: Say) -> None:
    """Compile what is not in the cache yet, and link."""
    command = compiler()
    if command is None:
        raise CompileError(f"there is no C++ compiler; {REMEDY}")
    missing = {unit.key: unit for unit in units if not _object(unit).is_file()}
    say("compiling this network for the CPU, once on this machine: some seconds, half a minute if it is large")
    _compile(command, list(missing.values()))
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    objects = [str(_object(unit)) for unit in units]
    _run([*command, "-shared", "-pthread", "-o", str(temporary), *objects])
    os.replace(temporary, path)


def _object(unit: Unit) -> Path:
    return code_cache() / f"{Path(unit.name).stem}-{unit.key}.o"


def _compile(command: tuple[str, ...], units: list[Unit]) -> None:
    """All units, as many at once as there are cores, long ones first.  The text stays beside the object, to be read."""
    waiting = sorted(units, key=lambda unit: len(unit.text))
    running: list[tuple[subprocess.Popen[str], Unit, Path]] = []
    with tempfile.TemporaryDirectory(dir=code_cache()) as folder:
        try:
            while waiting or running:
                while waiting and len(running) < (os.cpu_count() or 1):
                    running.append(_start(command, waiting.pop(), Path(folder)))
                for each in [each for each in running if each[0].poll() is not None]:
                    running.remove(each)
                    _finish(*each)
                time.sleep(0.01)
        finally:
            for process, *_ in running:
                process.kill()
                process.wait()


def _start(command: tuple[str, ...], unit: Unit, folder: Path) -> tuple[subprocess.Popen[str], Unit, Path]:
    source = _object(unit).with_suffix(".cpp")
    made = folder / f"{unit.key}.cpp"
    made.write_text(unit.text, encoding="utf-8")
    os.replace(made, source)
    result = folder / f"{unit.key}.o"
    words = [*command, *unit.flags, f"-I{HERE / 'include'}", "-c", str(source), "-o", str(result)]
    errors = (folder / f"{unit.key}.txt").open("w")
    with errors:
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors, text=True), unit, result


def _finish(process: "subprocess.Popen[str]", unit: Unit, result: Path) -> None:
    if process.returncode:
        raise _failure(result.with_suffix(".txt").read_text(encoding="utf-8", errors="replace"))
    os.replace(result, _object(unit))


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _failure(done.stderr)


def _failure(errors: str) -> CompileError:
    lines = errors.splitlines() or ["it gave no message"]
    first = next((line for line in lines if "error" in line), lines[0])
    return CompileError(f"the C++ compiler failed: {first.strip()[:200]}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time makes a library; the system releases the lock when a process ends."""
    import fcntl

    with path.with_suffix(".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # some network file systems have no locks; then both compile, and one result replaces the other
            pass
        yield
