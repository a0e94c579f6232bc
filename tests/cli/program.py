"""The program in processes of its own, started in milliseconds: torch is imported once, in a server that forks for
each run.

A run is a real process: it can be killed, and nothing that it does can reach the test but through its files, output
and status.
"""

import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from equibayes.cli.main import main

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__, "ase.io", "rich.console", "yaml"])


def start(argv: list[str], folder: Path, *, file_size: int | None = None, slow_disk: float = 0.0) -> BaseProcess:
    """Begin `equibayes ARGV` in `folder`, one thread; output goes to out.txt and err.txt there.

    file_size: bytes above which no file may grow (the system then refuses to write, as it does on a full disk)
    slow_disk: seconds that flushing a file takes, so that a kill can hit that moment
    """
    process = _SERVER.Process(target=_run, args=(argv, str(folder), file_size, slow_disk))
    process.start()
    return process


def finish(process: BaseProcess, seconds: float = 120.0) -> int:
    """The exit status, negative for a signal; a process that does not end is killed and is an error."""
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"still running after {seconds} s")
    return process.exitcode


def run(argv: list[str], folder: Path, *, file_size: int | None = None) -> tuple[int, str, str]:
    """Status, stdout and stderr of a whole run."""
    status = finish(start(argv, folder, file_size=file_size))
    return status, (folder / "out.txt").read_text(), (folder / "err.txt").read_text()


def completed(argv: list[str], folder: Path) -> Path:
    """The folder of a run that nothing disturbed and that printed no error."""
    status, _, err = run(argv, folder)
    assert (status, err) == (0, "")
    return folder


def killed(
    argv: list[str], folder: Path, progress: Callable[[], int], seen: int, seconds: float, slow_disk: float = 0.0
) -> None:
    """Start a run and kill it `seconds` after `progress` has risen above `seen`; the run must not have ended before."""
    process = start(argv, folder, slow_disk=slow_disk)
    end = time.monotonic() + 60
    while progress() <= seen:
        assert time.monotonic() < end, "no progress"
        assert process.is_alive(), "the run ended by itself: make it longer"
        time.sleep(0.001)
    time.sleep(seconds)
    process.kill()
    assert finish(process) == -signal.SIGKILL, "the run ended by itself: make it longer"


def wait_for(path: Path, process: BaseProcess, seconds: float = 60.0) -> None:
    """Until a file is there."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not come"
        assert process.is_alive(), f"the run ended before {path.name} came"
        time.sleep(0.001)


def _run(argv: list[str], folder: str, file_size: int | None, slow_disk: float) -> None:
    import torch

    torch.set_num_threads(1)
    os.chdir(folder)
    for name, number in (("out.txt", 1), ("err.txt", 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    # the interpreter's own files may be captured by the test
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    if file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    if slow_disk:
        flush = os.fsync
        os.fsync = lambda descriptor: (flush(descriptor), time.sleep(slow_disk))[0]  # type: ignore[assignment]
    sys.exit(main(argv))
