"""The samples of a posterior as a committee of the real i-PI: its weighted baseline, and its reweighting."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ase import units
from ase.io import read as ase_read

from equibayes.simulate.reweight import reweighted
from tests.cli import program
from tests.simulate.posteriors import random_posterior

POSTERIOR = random_posterior(4)
STEPS, SPRING, BASELINE_EV, KELVIN = 8, 1e-3, 0.1, 3000.0
BIN = Path(sys.executable).parent
INPUT = f"""\
<simulation verbosity='low'>
  <output prefix='wb'>
    <properties filename='out'> [ step, potential{{electronvolt}}, kinetic_md{{electronvolt}} ] </properties>
    <trajectory filename='pos' format='ase'> positions </trajectory>
    <trajectory filename='pot' extra_type='committee_pot'> extras </trajectory>
    <trajectory filename='mix' extra_type='wb_mixing'> extras </trajectory>
  </output>
  <total_steps> {STEPS} </total_steps>
  <prng> <seed> 7 </seed> </prng>
  <ffcommittee name='committee' pbc='false'>
    <parse_json> true </parse_json>
    <baseline_name> spring </baseline_name>
    <baseline_uncertainty units='electronvolt'> {BASELINE_EV} </baseline_uncertainty>
    <ffdirect name='spring' pbc='false'> <pes> harmonic </pes> <parameters> {{ k1: {SPRING} }} </parameters> </ffdirect>
    <ffsocket name='equibayes' mode='unix' pbc='false'>
      <address> committee-{os.getpid()} </address> <latency> 1e-3 </latency>
    </ffsocket>
  </ffcommittee>
  <system>
    <initialize nbeads='1'>
      <file mode='ase'> water.xyz </file>
      <velocities mode='thermal' units='kelvin'> {KELVIN} </velocities>
    </initialize>
    <forces> <force forcefield='committee'/> </forces>
    <motion mode='dynamics'>
      <dynamics mode='nve'> <timestep units='femtosecond'> 0.1 </timestep> </dynamics>
    </motion>
    <ensemble> <temperature units='kelvin'> {KELVIN} </temperature> </ensemble>
  </system>
</simulation>
"""


def rows(path: Path) -> np.ndarray:
    """Numbers of an extras file, by step."""
    return np.array([line.split() for line in path.read_text().splitlines() if line and "#" not in line], dtype=float)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished simulation."""
    place = tmp_path_factory.mktemp("committee")
    (place / "input.xml").write_text(INPUT)
    shutil.copy(Path(__file__).parents[2] / "examples" / "ipi" / "water.xyz", place)
    POSTERIOR.save(place / "my.posterior")
    words = [
        "serve",
        "my.posterior",
        "water.xyz",
        "--unix",
        f"committee-{os.getpid()}",
        "--committee",
        "--device",
        "cpu",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [str(BIN / "i-pi"), "input.xml"], cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        status, _, err = program.run([*words, "--threads", "1"], place)
        log, _ = server.communicate(timeout=60)
    finally:
        server.kill()
    assert (status, err) == (0, "")
    assert server.returncode == 0, log
    return place


def test_weighted_baseline(folder: Path) -> None:
    """V = V_baseline + s²/(s² + variance of the committee) · mean of the committee; energy is conserved, so that forces
    are those of this V."""
    frames = ase_read(folder / "wb.pos_0.extxyz", ":")
    columns, pot, mixing = np.loadtxt(folder / "wb.out"), rows(folder / "wb.pot_0"), rows(folder / "wb.mix_0")
    assert len(frames) == len(columns) == len(pot) == STEPS + 1
    for frame, row, sent, mixed in zip(frames, columns, pot, mixing[:, 0]):
        frame.pbc, frame.cell = False, None
        members = POSTERIOR.predict(frame, members=True).members["energy"]
        np.testing.assert_allclose(sent * units.Hartree, members, rtol=1e-7)
        weight = BASELINE_EV**2 / (BASELINE_EV**2 + members.var(ddof=1))
        assert mixed == pytest.approx(weight, rel=1e-6)
        spring = 0.5 * SPRING * units.Hartree * np.square(frame.positions / units.Bohr).sum()
        assert row[1] == pytest.approx(spring + weight * members.mean(), rel=1e-6)
    assert mixing.min() < 0.8
    total = columns[:, 1] + columns[:, 2]
    assert np.ptp(total) < 0.02 * np.ptp(columns[:, 2])


def test_ipi_reweights_as_we_do(folder: Path) -> None:
    """Its direct reweighting of one column of numbers, with the committee's energies that it wrote itself."""
    pot, values = rows(folder / "wb.pot_0"), np.loadtxt(folder / "wb.out")[:, 2]
    np.savetxt(folder / "pot.txt", pot)
    np.savetxt(folder / "obs.txt", values)
    kt = units.kB * KELVIN / units.Hartree
    words = [str(BIN / "i-pi-committee-reweight"), "pot.txt", "obs.txt", "--kt", repr(kt), "--index", "0", "--direct"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    theirs = [float(word) for line in done.stdout.splitlines() if "#" not in line for word in line.split()]
    ours = reweighted(values, -(pot - pot.mean(1, keepdims=True)).T / kt)
    np.testing.assert_allclose(theirs[2:6], ours.members, rtol=1e-4)
    assert theirs[0] == pytest.approx(ours.mean, rel=1e-4)
