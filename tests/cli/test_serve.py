"""`equibayes serve` as a program, with the real i-PI."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ase.io import read as ase_read

from tests.cli import program
from tests.simulate.posteriors import random_posterior

EXAMPLE = Path(__file__).parents[2] / "examples" / "ipi"
POSTERIOR = random_posterior()
BEADS, STEPS = 4, 20


def extras(path: Path) -> np.ndarray:
    """Rows of an extras file, without the lines that tell the step."""
    return np.array([line.split() for line in path.read_text().splitlines() if "#" not in line and line], dtype=float)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example with a socket of its own and few steps."""
    text = (EXAMPLE / "pimd.xml").read_text()
    text = text.replace("<address> water <", f"<address> equibayes-{os.getpid()} <")
    text = text.replace("<total_steps> 200 <", f"<total_steps> {STEPS} <")
    (tmp_path / "pimd.xml").write_text(text)
    shutil.copy(EXAMPLE / "water.xyz", tmp_path)
    POSTERIOR.save(tmp_path / "my.posterior")
    return tmp_path


def test_path_integrals_of_water(folder: Path) -> None:
    words = [
        "serve",
        "my.posterior",
        "water.xyz",
        "--unix",
        f"equibayes-{os.getpid()}",
        "--device",
        "cpu",
        "--threads",
        "1",
    ]
    server = subprocess.Popen(
        [str(Path(sys.executable).parent / "i-pi"), "pimd.xml"],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        status, out, err = program.run(words, folder)
        log, _ = server.communicate(timeout=60)
    finally:
        server.kill()
    assert (status, err) == (0, "")
    assert server.returncode == 0, log
    assert f"{BEADS * (STEPS + 1)} evaluations" in out
    energies = []
    for bead in range(BEADS):
        frames = ase_read(folder / f"pimd.pos_{bead}.extxyz", ":")
        sigma, atoms = extras(folder / f"pimd.sigma_{bead}"), extras(folder / f"pimd.atoms_{bead}")
        assert len(frames) == len(sigma) == len(atoms) == STEPS + 1
        for frame, (energy_std, largest, mean), each in zip(frames, sigma, atoms):
            frame.pbc, frame.cell = False, None
            expected = POSTERIOR.predict(frame)
            energies.append(expected.energy)
            assert energy_std == pytest.approx(expected.energy_std, rel=1e-6)
            np.testing.assert_allclose(each, np.sqrt(np.square(expected.forces_std).mean(1)), rtol=1e-6)
            assert (largest, mean) == pytest.approx((each.max(), each.mean()), rel=1e-6)
    columns = np.loadtxt(folder / "pimd.out")
    potential = np.reshape(energies, (BEADS, STEPS + 1)).mean(0)
    np.testing.assert_allclose(
        columns[:, 4], potential, rtol=2e-7
    )  # i-PI's electronvolt is another in the seventh digit
    changes = [values - values[0] for values in (columns[:, 4], potential)]
    np.testing.assert_allclose(*changes, rtol=0, atol=2e-6)
    assert np.abs(changes[0]).max() > 1e-3
    spread = [
        np.ptp(ase_read(folder / f"pimd.pos_{b}.extxyz", "-1").positions - frames[-1].positions) for b in range(3)
    ]
    assert max(spread) > 0.05, "beads have spread, as those of a quantum particle do"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--unix", "nobody-listens-here"], "/tmp/ipi_nobody-listens-here: no program listens there"),
        (["--port", "1"], "localhost:1: no program listens there"),
        (["--port", "1", "--unix", "x"], "--unix and --port exclude each other"),
    ],
)
def test_mistakes_in_one_line(more: list[str], message: str, folder: Path) -> None:
    words = ["serve", "my.posterior", "water.xyz", "--device", "cpu", "--wait", "0"]
    status, _, err = program.run([*words, *more], folder)
    assert status == 2
    assert message in err
    assert err.count("\n") == 1
