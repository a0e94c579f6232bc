"""Studies run as a user runs them: `python -m studies.NAME`."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# packages that a bare machine with a GPU does not have
BARE = """
import runpy, sys
for name in ("ase", "scipy", "matplotlib", "pandas", "git"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


def run_study(name: str, *words: str | Path, cwd: Path | None = None, bare: bool = False) -> str:
    """What the study prints; `bare` hides packages that it must not need."""
    start = ["-c", BARE, f"studies.{name}"] if bare else ["-m", f"studies.{name}"]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, *start, *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
