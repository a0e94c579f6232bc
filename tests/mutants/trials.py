"""Runs tests on changed copies of the code, one change at a time.  The checkout itself is never written to."""

import os
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


class Trials:
    """Tests on changes of a copied tree, one after the other."""

    def __init__(self, copy: Path, limit: float) -> None:
        """limit: s, at most, for a set of tests; usually four times what they take on the unchanged code."""
        self.copy, self.limit = copy, limit
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
                status, seconds = run_tests(self.copy, tests, allowed)
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
            status, self.unchanged[tests] = run_tests(self.copy, tests, self.limit)
            if status != 0:
                raise SystemExit(f"error: tests fail on the unchanged code, or take too long: {' '.join(tests)}")
        return self.unchanged[tests]


def run_tests(copy: Path, tests: Sequence[str], limit: float) -> tuple[int, float]:
    """Exit status of pytest in the copy up to its first failure, `TIMED_OUT` after `limit` s; and the seconds."""
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = TIMED_OUT
        finally:  # also after Ctrl-C: what the tests have started goes with them
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return status, time.monotonic() - started
