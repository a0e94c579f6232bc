"""MACE beside the others: its program runs in an environment of its own (see mace_step.py) and is told when to work."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ase.io import write
from contestants import ethanol_config, ethanol_frames

from equibayes.network.config import NetworkConfig

PROGRAM = Path(__file__).with_name("mace_step.py")
REMEDY = "python -m venv mace && mace/bin/pip install torch mace-torch, then --mace mace/bin/python"


class Missing(Exception):
    """MACE cannot be timed; the message says why."""


class Mace:
    """Training steps of MACE with the channels, l_max, cutoff and radial network of a preset, on the same frames.

    A correlation order of 3 and invariant readouts, as usual; energies and forces with equal weights in the loss.
    """

    def __init__(self, python: str | None, name: str, layers: int) -> None:
        """python: of the environment with mace-torch."""
        if python is None:
            raise Missing(f"MACE is not timed: {REMEDY}")
        config = ethanol_config(name)
        with tempfile.TemporaryDirectory() as folder:
            frames = Path(folder) / "frames.xyz"
            write(frames, [_labelled(i) for i in range(len(ethanol_frames()))])
            errors = Path(folder) / "errors"
            try:
                self._start(python, errors, _settings(config, layers) | {"frames": str(frames)})
            except (OSError, ValueError) as cause:
                said = errors.read_text().splitlines()[-1:] if errors.exists() else []
                reason = said[0] if said else cause
                raise Missing(f"MACE is not timed: {python} does not run it ({reason}); {REMEDY}") from cause

    def _start(self, python: str, errors: Path, settings: dict[str, Any]) -> None:
        pipe = subprocess.PIPE
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with errors.open("w") as file:
            self.process = subprocess.Popen(
                [python, str(PROGRAM)], stdin=pipe, stdout=pipe, stderr=file, text=True, env=environment
            )
        self.about: dict[str, Any] = json.loads(self._ask(json.dumps(settings)))

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline()

    def seconds(self, repeats: int) -> float:
        """Processor time of that many steps."""
        return float(self._ask(str(repeats)))


def _settings(config: NetworkConfig, layers: int) -> dict[str, Any]:
    return {
        "r_max": config.r_max,
        "l_max": config.l_max,
        "channels": config.channels[0],
        "interactions": layers,
        "bessels": config.num_bessels,
        "cutoff_p": config.polynomial_cutoff_p,
        "radial": [config.radial_mlp_width] * config.radial_mlp_depth,
        "elements": sorted({int(z) for frame in ethanol_frames() for z in frame.numbers}),
        "neighbors": 8.0,
    }


def _labelled(i: int) -> Any:
    """A frame under the names of MACE's labels."""
    frame = ethanol_frames()[i]
    atoms = frame.to_atoms()
    atoms.calc = None
    atoms.info["REF_energy"], atoms.arrays["REF_forces"] = frame.energy, frame.forces
    return atoms
