"""Runs tests on changed copies of the code, one change at a time.  The checkout itself is never written to."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.mutate import Mutant

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("equibayes", "tests", "pyproject.toml")
OPTIONS = ("-q", "-x", "-m", "not slow", "-p", "no:cacheprovider")
LARGE = "torch scipy.stats sklearn.metrics ase.io ase.build hypothesis.strategies yaml rich matplotlib.figure pytest"
TIMED_OUT = -1
PATIENCE = 4
"""Times as long as on the unchanged code, after which a change counts as one that never ends."""


@contextmanager
def copied_tree(root: Path = ROOT) -> Iterator[Path]:
    """A copy of package and tests in a temporary folder, without compiled files, which could outlive a change."""
    with tempfile.TemporaryDirectory(prefix="equibayes-mutants-") as folder:
        copy = Path(folder)
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(root / name, copy / name)
        yield copy


class Runner:
    """Runs pytest in a folder, again and again, by way of `server`."""

    def __init__(self, folder: Path, imports: str = LARGE) -> None:
        """imports: modules that most tests need and that are not of the project."""
        environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(ROOT / "tests" / "mutants" / "server.py"), *imports.split()]
        # a session of its own: Ctrl-C reaches this process alone, which then ends the others
        self.server = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            bufsize=0,  # or `select` does not see what a buffer has read already
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.communicate()

    def run(self, tests: Sequence[str], limit: float) -> tuple[int, float]:
        """Exit status up to the first failure, `TIMED_OUT` after `limit` s; and the seconds."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps([*OPTIONS, *tests]).encode() + b"\n")
        group, started, status = int(self.server.stdout.readline()), time.monotonic(), TIMED_OUT
        ended: list[object] = []
        try:
            ended, _, _ = select.select([self.server.stdout], [], [], limit)
        finally:  # also after Ctrl-C: what the tests have started goes with them
            if not ended:
                os.killpg(group, signal.SIGKILL)
            last = int(self.server.stdout.readline())
        if ended:
            status = last
        return status, time.monotonic() - started


class Trials:
    """Tests on changes of a copied tree, one after the other."""

    def __init__(self, copy: Path, runner: Runner, limit: float) -> None:
        """limit: s, at most, for a set of tests; usually four times what they take on the unchanged code."""
        self.copy, self.runner, self.limit = copy, runner, limit
        self.unchanged: dict[tuple[str, ...], float] = {}
        """Seconds of each set of tests on the unchanged code."""

    def outcome(self, mutant: Mutant, stages: Sequence[Sequence[str]]) -> tuple[str, float]:
        """'killed', 'timeout' or 'survived', and the seconds it took; the copy is as before when this returns."""
        file, took, found = self.copy / mutant.path, 0.0, "survived"
        source = file.read_text(encoding="utf-8")
        for tests in filter(None, stages):
            allowed = min(self.limit, PATIENCE * self._seconds(tuple(tests)) + 10)
            file.write_text(mutant.applied_to(source), encoding="utf-8")
            try:
                status, seconds = self.runner.run(tests, allowed)
            finally:
                file.write_text(source, encoding="utf-8")
            took += seconds
            if status != 0:
                found = "timeout" if status == TIMED_OUT else "killed"
                break
        return found, round(took, 1)

    def _seconds(self, tests: tuple[str, ...]) -> float:
        """What the tests take on the unchanged code, where all must pass."""
        if tests not in self.unchanged:
            status, self.unchanged[tests] = self.runner.run(tests, self.limit)
            if status != 0:
                raise SystemExit(f"error: tests fail on the unchanged code, or take too long: {' '.join(tests)}")
        return self.unchanged[tests]
