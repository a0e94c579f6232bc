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
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from equibayes.engine.cache import code_cache
from equibayes.engine.native.target import cpu_stamp, target

HERE = Path(__file__).parent
COMMON = ("gemm.cpp", "threads.cpp")
"""Sources in `source/` that every library has."""
STEPS = ("steps.cpp", "update.cpp", "basis.cpp")
"""Those with the steps of the sampler."""
# no -ffast-math: it removes the reduction of large arguments
FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-pthread", "-w")
FAST, SLOW = "-O3", "-O1"
REMEDY = "install a C++ compiler (g++ or clang++), or pip install equibayes[compiler]"

Say = Callable[[str], None]


class CompileError(Exception):
    """The compiler is missing or failed; the message is one line."""


@dataclass(frozen=True)
class Unit:
    """A translation unit: its file, the length of its text, its flags, and the name of the result."""

    name: str
    length: int
    flags: tuple[str, ...]
    key: str


Running = tuple["subprocess.Popen[bytes]", Unit, Path]
"""A compiler at work on a unit, and where it leaves the result."""

_loaded: dict[str, ctypes.CDLL] = {}


def build(
    name: str,
    sources: Mapping[str, str],
    *,
    say: Say = lambda message: None,
    slow: Collection[str] = (),
    steps: bool = False,
) -> ctypes.CDLL:
    """The library of C++ texts by file name, in a folder of the cache, where they can be read.

    name   begins the name of the folder; headers (*.h) among the texts are there for all of them
    slow   files whose speed does not matter, compiled with less optimisation
    steps  with the steps of the sampler
    """
    common = [*COMMON, *STEPS] if steps else COMMON
    texts = {each: (HERE / "source" / each).read_text(encoding="utf-8") for each in common} | dict(sources)
    units = [_unit(each, texts, slow=each in slow) for each in texts if not each.endswith(".h")]
    key = _digest([unit.key for unit in units])
    if key not in _loaded:
        path = code_cache() / f"{name}-{target().name}-{key}" / "library.so"
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            with _locked(path):
                if not path.is_file():  # no other process made it meanwhile
                    _write(path.parent, _headers() | texts)
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


def _unit(name: str, texts: Mapping[str, str], *, slow: bool) -> Unit:
    """texts: all of the library, by file name; the unit depends on those that it includes."""
    read = [texts[each] for each in _included(name, texts)]
    chosen = target()
    flags = (SLOW if slow else FAST, f"-DWIDTH={chosen.width}", *chosen.flags, *FLAGS)
    key = _digest([*read, *_headers().values(), *flags, *(compiler() or ()), _version(), cpu_stamp()])
    return Unit(name, len(texts[name]), flags, key)


def _included(name: str, texts: Mapping[str, str]) -> list[str]:
    """The file itself and the generated headers that it includes, also through each other."""
    found, waiting = [], [name]
    while waiting:
        each = waiting.pop()
        found.append(each)
        lines = texts[each].splitlines()
        waiting += [other for other in texts if other not in (*found, *waiting) and f'#include "{other}"' in lines]
    return found


@cache
def _headers() -> dict[str, str]:
    """The headers of all libraries, read once: what is compiled is what the key was made of, whatever is installed
    meanwhile."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((HERE / "include").glob("*.h"))}


@cache
def _version() -> str:
    command = compiler()
    if command is None:
        return ""
    return subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _make(path: Path, units: list[Unit], say: Say) -> None:
    """Compile what is not in the cache yet, and link."""
    command = compiler()
    if command is None:
        raise CompileError(f"there is no C++ compiler; {REMEDY}")
    missing = {unit.key: unit for unit in units if not _object(unit).is_file()}
    if missing:
        say("compiling this network for the CPU, once on this machine: some seconds, half a minute if it is large")
    _compile(command, path.parent, list(missing.values()))
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    objects = [str(_object(unit)) for unit in units]
    _run([*command, "-shared", "-pthread", "-o", str(temporary), *objects])
    os.replace(temporary, path)


def _object(unit: Unit) -> Path:
    return code_cache() / f"{Path(unit.name).stem}-{unit.key}.o"


def _compile(command: tuple[str, ...], folder: Path, units: list[Unit]) -> None:
    """All units, as many at once as there are cores, long ones first."""
    waiting = sorted(units, key=lambda unit: unit.length)
    running: list[Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                running.append(_start(command, folder, waiting.pop()))
            for each in [each for each in running if each[0].poll() is not None]:
                running.remove(each)
                _finish(*each)
            time.sleep(0.01)
    finally:
        for process, *_ in running:
            process.kill()
            process.wait()


def _start(command: tuple[str, ...], folder: Path, unit: Unit) -> Running:
    result, errors = (folder / f"{unit.name}{end}" for end in (".o", ".errors"))
    words = [*command, *unit.flags, f"-I{folder}", "-c", str(folder / unit.name), "-o", str(result)]
    with errors.open("w") as file:
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=file), unit, result


def _finish(process: "subprocess.Popen[bytes]", unit: Unit, result: Path) -> None:
    errors = result.with_suffix(".errors")
    if process.returncode:
        raise _failure(errors.read_text(encoding="utf-8", errors="replace"))
    errors.unlink()
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
        with suppress(OSError):  # some network file systems have no locks: then both compile, and one result stays
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
