"""The driver within i-PI itself, and its batches."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ase import units
from ase.io import read

from equibayes.adapters import ipi_driver
from equibayes.simulate.evaluator import Evaluator
from tests.samples import salt
from tests.simulate.posteriors import random_posterior

EXAMPLE = Path(__file__).parents[2] / "examples" / "ipi"
POSTERIOR, STEPS, BEADS = random_posterior(), 3, 4
FFDIRECT = f"""<ffdirect name='equibayes' pbc='false'>
    <pes> custom </pes>
    <pes_path> {ipi_driver.__file__} </pes_path>
    <parameters> {{ posterior: my.posterior, template: water.xyz, device: cpu }} </parameters>
    <batch_size> {BEADS} </batch_size>
  </ffdirect>"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example of the socket, with the driver in its place."""
    text = (EXAMPLE / "pimd.xml").read_text()
    text = re.sub(r"<ffsocket.*</ffsocket>", lambda _: FFDIRECT, text, flags=re.DOTALL)
    (tmp_path / "pimd.xml").write_text(text.replace("<total_steps> 200 <", f"<total_steps> {STEPS} <"))
    shutil.copy(EXAMPLE / "water.xyz", tmp_path)
    POSTERIOR.save(tmp_path / "my.posterior")
    return tmp_path


def test_path_integrals_without_a_socket(folder: Path) -> None:
    words = [str(Path(sys.executable).parent / "i-pi"), "pimd.xml"]
    done = subprocess.run(
        words, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    potential = np.zeros(STEPS + 1)
    for bead in range(BEADS):
        frames = read(folder / f"pimd.pos_{bead}.extxyz", ":")
        sigma = np.loadtxt(folder / f"pimd.sigma_{bead}")
        for step, frame in enumerate(frames):
            frame.pbc, frame.cell = False, None
            expected = POSTERIOR.predict(frame)
            potential[step] += expected.energy / BEADS
            assert sigma[step, 0] == pytest.approx(expected.energy_std, rel=1e-6)
    np.testing.assert_allclose(np.loadtxt(folder / "pimd.out")[:, 4], potential, rtol=2e-7)


def test_a_batch_is_one_evaluation_and_gives_what_single_calls_give(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt().to_atoms().write(folder / "salt.xyz")
    driver = ipi_driver.EquibayesDriver(str(folder / "my.posterior"), str(folder / "salt.xyz"), device="cpu")
    calls, batch = [], Evaluator.__call__
    monkeypatch.setattr(
        Evaluator, "__call__", lambda own, many, **more: calls.append(len(many)) or batch(own, many, **more)
    )
    structures = [salt(seed) for seed in range(3)]
    cells = [each.cell.T / units.Bohr for each in structures]
    places = [each.positions / units.Bohr for each in structures]
    together = driver(cells, places)
    assert calls == [3]
    for structure, cell, place, answer in zip(structures, cells, places, together):
        expected, alone = POSTERIOR.predict(structure), driver(cell, place)
        for found in (answer, alone):
            assert found[0] * units.Hartree == pytest.approx(expected.energy, rel=1e-10)
            np.testing.assert_allclose(found[1] * units.Hartree / units.Bohr, expected.forces, atol=1e-8)
            np.testing.assert_allclose(found[2] * units.Hartree, -structure.volume * expected.stress, atol=1e-7)
            assert json.loads(found[3])["energy_std"] == pytest.approx(expected.energy_std, rel=1e-8)


def test_module_prints_its_path() -> None:
    done = subprocess.run([sys.executable, "-m", ipi_driver.__name__], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == Path(ipi_driver.__file__)
