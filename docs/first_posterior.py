"""Runs the commands of first-posterior.md in a shortened form and keeps their output for the page."""

import contextlib
import io
import runpy
import tempfile
from pathlib import Path

from equibayes.cli.main import main

SHORT = (
    "--network tiny --threads 1 burn_in.steps=360 burn_in.batch_size=8 cycles.length=240 cycles.batch_size=8 "
    "output.validations=16"
)
"""A network of 1866 weights and a run of seconds; everything else is as on the page."""

COMMANDS = {
    "data": "info bundled:ethanol@train",
    "sample": f"sample bundled:ethanol@train -o ethanol.posterior {SHORT}",
    "info": "info ethanol.posterior",
    "calibrate": "calibrate ethanol.posterior bundled:ethanol@train --threads 1",
    "evaluate": "evaluate ethanol.posterior bundled:ethanol@test --threads 1",
    "md": "md ethanol.posterior bundled:ethanol@test -o run.xyz --steps 100 --temperature 300 --threads 1",
}
SNIPPET = Path(__file__).parent / "snippets" / "ask.py"


def write(folder: Path) -> None:
    """Run everything in an empty folder; write NAME.txt for each command and python.txt for the snippet."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        for name, line in COMMANDS.items():
            output, errors = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                status = main(line.split())
            if status:
                raise RuntimeError(f"equibayes {line} ended with status {status}: {errors.getvalue()}")
            (folder / f"{name}.txt").write_text(f"$ equibayes {line}\n{output.getvalue()}", encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            runpy.run_path(str(SNIPPET))
        (folder / "python.txt").write_text(output.getvalue(), encoding="utf-8")
