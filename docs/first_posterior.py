"""Runs the commands of first-posterior.md, shortened, and keeps what they print: the page shows nothing that was not run."""

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
"""A network of 1866 weights and a run of seconds; all else is what the page tells a reader to type."""

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
    """Run all of it in an empty folder, and write NAME.txt for every command, and python.txt for the snippet."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        for name, line in COMMANDS.items():
            said, complaint = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
                status = main(line.split())
            if status:
                raise RuntimeError(f"equibayes {line} ended with status {status}: {complaint.getvalue()}")
            (folder / f"{name}.txt").write_text(f"$ equibayes {line}\n{said.getvalue()}", encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            runpy.run_path(str(SNIPPET))
        (folder / "python.txt").write_text(said.getvalue(), encoding="utf-8")
