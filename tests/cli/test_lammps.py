"""`equibayes lammps` as a program: one rank and several, the example, mistakes in one line."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from equibayes.cli.main import main
from tests.cli import program
from tests.samples import salt
from tests.simulate.lammps_parts import head, in_standard_form, mpirun, thermo, write_data
from tests.simulate.posteriors import ETHANOL, random_posterior

EXAMPLE = Path(__file__).parents[2] / "examples" / "lammps"
COMMON = ["lammps", "x.posterior", "in.salt", "--quiet", "--device", "cpu", "--threads", "1"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A posterior and a script in which atoms wander between ranks and through the faces of a triclinic cell."""
    random_posterior(3).save(tmp_path / "x.posterior")
    atoms = in_standard_form(salt().to_atoms())
    write_data(tmp_path / "salt.data", atoms, ["Cl", "Na"])
    (tmp_path / "in.salt").write_text(
        head("salt.data", atoms)
        + "velocity all create ${temperature} 3 loop geom\nvelocity all set 10 8 12 sum yes\n"
        + "fix move all npt temp 300 300 0.1 tri 0 0 1\ntimestep 0.0005\nneigh_modify every 1 delay 0\n"
        + "thermo_style custom step temp pe press vol v_max_devi_f v_avg_devi_f v_energy_std\nthermo 10\n"
        + "thermo_modify format float %.12g\n"
        + "dump d all custom 10 atoms.dump id type xu yu zu vx fx fy fz d_devi_f\n"
        + "dump_modify d sort id format float %.12g\nrun 20\n"
    )
    return tmp_path


def equibayes(ranks: int, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The program on several ranks."""
    code = "import sys; from equibayes.cli.main import main; sys.exit(main())"
    return mpirun(ranks, [sys.executable, "-c", code, *words], folder)


def atoms_of(dump: Path) -> np.ndarray:
    lines = dump.read_text().splitlines()
    return np.array([[float(word) for word in line.split()] for line in lines if len(line.split()) == 10])


WAITS = (
    "equibayes: warning: 1 of 3 MPI ranks wait while others evaluate the potential, because there are only 2 samples "
    "to share; use 2 ranks with more --threads each"
)


@pytest.mark.parametrize(("ranks", "samples", "told"), [(2, 3, ""), (3, 2, WAITS)])
def test_several_ranks_give_what_one_gives(ranks: int, samples: int, told: str, folder: Path) -> None:
    """Samples divided evenly or not, and a rank without any."""
    words = [*COMMON, "--elements", "Cl", "Na", "--var", "temperature=300", "--k", str(samples)]
    status, _, err = program.run([*words, "--log", "one.log"], folder)
    assert (status, err) == (0, "")
    shutil.move(folder / "atoms.dump", folder / "one.dump")
    done = equibayes(ranks, [*words, "--log", "many.log"], folder)
    assert (done.returncode, done.stderr.strip()) == (0, told)
    assert f"on {ranks} procs" in (folder / "many.log").read_text()
    (one,), (many,) = thermo(folder / "one.log"), thermo(folder / "many.log")
    assert len(one["Step"]) == 3
    for name in one:
        np.testing.assert_allclose(many[name], one[name], rtol=1e-8, err_msg=name)
    first, second = atoms_of(folder / "one.dump"), atoms_of(folder / "atoms.dump")
    assert first.shape == (3 * 8, 10)
    np.testing.assert_allclose(second, first, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("words", "expected"), [([], 4), (["--threads", "6"], 6)])
def test_ranks_of_one_machine_divide_its_cores(
    words: list[str], expected: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the user gives a number of threads."""
    before, used = torch.get_num_threads(), []
    monkeypatch.setattr("equibayes.simulate.lammps.run_script", lambda *_, **__: used.append(torch.get_num_threads()))
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setenv("MPI_LOCALNRANKS", "2")
    monkeypatch.chdir(folder)
    torch.set_num_threads(8)
    try:
        assert main(["lammps", "x.posterior", "in.salt", "--device", "cpu", *words]) == 0
    finally:
        torch.set_num_threads(before)
    assert used == [expected]


def test_a_mistake_is_told_once_by_two_ranks(folder: Path) -> None:
    done = equibayes(2, [*COMMON, "--elements", "Cl", "--var", "temperature=300"], folder)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "equibayes: error: in.salt, line 11: --elements Cl: 1 elements for 2 atom types; give one per type, in order"
    )


def test_a_mistake_on_one_rank_ends_both(folder: Path) -> None:
    """Each rank finds it for itself, at its own time; the first one to do so ends all."""
    done = equibayes(2, [*COMMON, "--elements", "Cl", "Na"], folder)
    assert done.returncode != 0
    line = (
        r"equibayes: error: in\.salt: LAMMPS stopped: ERROR on proc [01]: Substitution for illegal variable temperature"
    )
    assert re.search(line, done.stderr)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--elements", "Cl", "Na"], "LAMMPS stopped: ERROR on proc 0: Substitution for illegal variable temperature"),
        (["--var", "temperature"], "--var temperature: write it as NAME=VALUE"),
        (["--trust-hi", "3x"], "--trust-hi 3x: no frames were held back"),
        (["--k", "9", "--var", "temperature=300", "--elements", "Cl", "Na"], "k=9"),
    ],
)
def test_mistakes_in_one_line(more: list[str], message: str, folder: Path) -> None:
    status, _, err = program.run([*COMMON, *more], folder)
    assert status == 2
    assert message in err
    assert err.count("\n") == 1


def test_the_example(tmp_path: Path) -> None:
    """As its first lines say to run it; the deviations are in its output and a trust level ends it."""
    for name in ("in.ethanol", "ethanol.data"):
        shutil.copy(EXAMPLE / name, tmp_path)
    shutil.copy(ETHANOL, tmp_path / "my.posterior")
    words = ["lammps", "my.posterior", "in.ethanol", "--var", "steps=100", "--device", "cpu", "--threads", "1"]
    status, out, err = program.run([*words, "--trust-hi", "10x"], tmp_path)
    assert (status, err) == (0, "")
    assert "v_max_devi_f" in out
    (run,) = thermo(tmp_path / "log.lammps")
    assert run["Step"][-1] == 100
    assert (run["v_max_devi_f"] >= run["v_avg_devi_f"]).all()
    assert (run["v_energy_std"] > 0).all()
    dump = (tmp_path / "ethanol.dump").read_text()
    assert "ITEM: ATOMS id element xu yu zu fx fy fz d_devi_f" in dump
    status, _, err = program.run(words, tmp_path)
    assert (status, err) == (2, "equibayes: error: in.ethanol: uses ${trust_hi}; give this level with --trust-hi\n")
    level = float(np.median(run["v_max_devi_f"]))
    status, out, err = program.run([*words, "--trust-hi", str(level)], tmp_path)
    assert status == 0
    (halted,) = thermo(tmp_path / "log.lammps")
    assert halted["Step"][-1] < 100
    assert halted["v_max_devi_f"][-1] > level
