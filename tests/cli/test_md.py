"""`equibayes md` as a program: kills, interrupts, summary, and mistakes in one line."""

import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.constraints import FixAtoms
from ase.io import read as ase_read
from ase.io import write

from equibayes.cli.main import main
from equibayes.data import read
from equibayes.units import BOHR
from tests.cli import program
from tests.simulate.posteriors import ETHANOL

START = "bundled:ethanol@0:1"
RUN = f"md {ETHANOL} {START} -o t.xyz --steps 160 --temperature 400 --ensemble bussi --k 1 --threads 1 --device cpu".split()
RUN += ["--every", "3", "--save-every", "5", "--trust-lo", "0.5x", "--trust-hi", "50x", "--on-uncertain", "write"]
FILES = ("t.xyz", "t-md/md.log", "t-md/candidates.xyz", "t-md/md.svg")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program.completed(RUN, tmp_path_factory.mktemp("whole"))


def assert_same_files(folder: Path, expected: Path) -> None:
    for name in FILES:
        assert (folder / name).read_bytes() == (expected / name).read_bytes(), name


def test_summary(uninterrupted: Path) -> None:
    out = (uninterrupted / "out.txt").read_text()
    assert re.search(r"steps +160 of 160 \(0\.08 ps\) with 9 atoms; \d+\.\d steps per second", out)
    assert re.search(r"temperature +\d+\.\d ± \d+\.\d K", out)
    assert re.search(r"drift +[+-]\S+ meV/atom/ps", out)
    assert re.search(r"largest σ +\d+\.\d meV/Å, in step \d+, atom \d \([CHO], counted from 0\)", out)
    assert re.search(r"frames +\d+\.\d % trusted, \d+\.\d % candidate, .*; \d+ candidates written", out)
    assert "step 160/160  T " in out
    assert "\x1b" not in out


def test_killed_again_and_again(uninterrupted: Path, tmp_path: Path) -> None:
    process = program.start(RUN, tmp_path)
    program.wait_for(tmp_path / "t-md/state.safetensors", process)
    time.sleep(0.2)
    process.kill()
    assert program.finish(process) == -signal.SIGKILL
    process = program.start([*RUN, "--resume"], tmp_path)
    time.sleep(0.5)
    process.kill()
    program.finish(process)
    status, out, err = program.run([*RUN, "--resume"], tmp_path)
    assert (status, err) == (0, "")
    assert_same_files(tmp_path, uninterrupted)
    assert frames_line(out) == frames_line((uninterrupted / "out.txt").read_text())


def frames_line(out: str) -> str:
    return next(line for line in out.splitlines() if line.startswith("frames "))


def test_interrupted(uninterrupted: Path, tmp_path: Path) -> None:
    """Ctrl-C: the state is written, and it is said how to go on."""
    process = program.start(RUN, tmp_path)
    program.wait_for(tmp_path / "t-md/state.safetensors", process)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    assert program.finish(process) == 128 + signal.SIGINT
    out = (tmp_path / "out.txt").read_text()
    assert re.search(r"stopped at step \d+; continue with the same command and --resume", out)
    assert program.run([*RUN, "--resume"], tmp_path)[0] == 0
    assert_same_files(tmp_path, uninterrupted)


def test_full_disk_loses_nothing(uninterrupted: Path, tmp_path: Path) -> None:
    status, _, err = program.run(RUN, tmp_path, file_size=40_000)
    assert status == 2
    assert "t.xyz: no space left" in err
    assert err.count("\n") == 1
    assert program.run([*RUN, "--resume"], tmp_path)[0] == 0
    assert_same_files(tmp_path, uninterrupted)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("--temperature -5", "temperature -5: must be above 0, in K"),
        ("--timestep 0", "timestep 0: must be above 0, in fs"),
        ("--temperature 1e300", "temperature 1e+300: must be between 1e-06 and 1e+12 K"),
        ("--temperature 1e-300", "temperature 1e-300: must be between"),
        ("--threads 10000000000", "--threads 10000000000: must be at most 4096"),
        ("--steps 0", "steps 0: must be at least 1"),
        ("--ensemble nvt", "invalid choice: 'nvt'"),
        ("--ensemble npt", "has no pressure"),
        ("--trust-lo much", "--trust-lo much: give eV/Å"),
        ("--trust-lo 0.5 --trust-hi 0.1", "is above the upper one"),
        ("--k 9", "k=9: this posterior has 4 samples"),
        ("--every 0", "every 0: must be at least 1 step"),
        ("--resume", "nothing to resume from"),
        ("-o out.traj", "must end in .xyz"),
        ("--on-uncertain label --trust-lo 0.1", "name an engine with --labeller"),
        ("--on-uncertain label --labeller emt", "which says when to ask; give --trust-lo"),
        ("--on-uncertain learn --labeller emt --trust-lo 0.1", "name what the posterior was sampled from with --data"),
        ("--on-uncertain label --labeller emt --trust-lo 0.1 sample.burn=3", "sample.burn"),
        ("--labeller emt", "--labeller: only used with --on-uncertain label or learn"),
        ("--observe length", '--observe "length": write "distance 0 1", "rdf O H" or "energy"'),
        ("-o nowhere/there/out.txt", "must end in .xyz"),
    ],
)
def test_mistakes_are_one_line(
    change: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    argv = f"md {ETHANOL} {START} -o t.xyz --steps 5 --temperature 300 --device cpu {change}".split()
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert err.startswith("equibayes: error: ")
    assert err.count("\n") == 1
    assert part in err
    assert not (tmp_path / "t.xyz").exists()


def test_unknown_species(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.xyz").write_text("2\n\nSi 0 0 0\nSi 0 0 2.3\n")
    argv = f"md {ETHANOL} {tmp_path}/s.xyz -o {tmp_path}/t.xyz --steps 5 --temperature 300 --device cpu".split()
    assert main(argv) == 2
    assert "s.xyz, frame 0: species Si unknown to this model, which knows H, C, O" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["s.xyz"], "nothing was begun"
    argv[1] = str(tmp_path / "no.posterior")
    assert main(argv) == 2
    assert "no such file" in capsys.readouterr().err


def test_names_with_dots_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """run.300K.xyz and run.400K.xyz shared a folder, and the second run removed log and labels of the first."""
    monkeypatch.chdir(tmp_path)
    for temperature in ("300", "400"):
        words = (
            f"md {ETHANOL} {START} -o run.{temperature}K.xyz --steps 2 --temperature {temperature} --k 1 --device cpu"
        )
        assert main(words.split()) == 0
        out = capsys.readouterr().out
        assert f"in run.{temperature}K-md" in out
        assert "trusted" not in out, "nobody said what is to be trusted"
    Path("run.300K.xyz").unlink()
    assert main(words.replace("run.400K", "run.300K").split()) == 2
    assert "run.300K-md: contains an earlier run, whose log and labels would be lost" in capsys.readouterr().err


def test_units_are_those_of_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They were accepted and not heeded."""
    atoms = read(START)[0].to_atoms()
    atoms.calc = None
    atoms.positions /= BOHR
    write(tmp_path / "bohr.xyz", atoms, format="extxyz")
    words = (
        f"md {ETHANOL} {tmp_path}/bohr.xyz -o {tmp_path}/t.xyz --steps 1 --every 1 --temperature 300 --k 1 --device cpu"
    )
    assert main([*words.split(), "--length-unit", "Bohr"]) == 0
    first = ase_read(tmp_path / "t.xyz", 0)
    np.testing.assert_allclose(first.positions, atoms.positions * BOHR, atol=1e-6)


def test_help_shows_a_command_that_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["md", "--help"]) == 0
    assert "--on-uncertain learn \\\n      --labeller gfn2-xtb" in capsys.readouterr().out


def test_an_explosion_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that goes on with the trajectory should not go on with this one."""
    words = [
        "md",
        str(ETHANOL),
        START,
        "-o",
        str(tmp_path / "t.xyz"),
        "--steps",
        "50",
        "--temperature",
        "3000",
        "--k",
        "1",
    ]
    assert main([*words, "--timestep", "50", "--device", "cpu"]) == 1
    assert "ended early  exploded at step" in capsys.readouterr().out
    assert main([*words, "--timestep", "0.1", "--overwrite", "--device", "cpu"]) == 0


def boxed() -> Atoms:
    """Ethanol in a periodic box; its first atom is fixed."""
    atoms = read(START)[0].to_atoms()
    atoms.calc = None
    atoms.set_cell([9.0, 9.0, 9.0])
    atoms.center()
    atoms.pbc = True
    atoms.set_constraint(FixAtoms([0]))
    return atoms


def frames_of(start: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[Atoms], str]:
    """The trajectory of a short run from a file, and what the program said."""
    target = start.with_name("t.xyz")
    argv = [
        "md",
        str(ETHANOL),
        str(start),
        "-o",
        str(target),
        *["--steps", "4", "--every", "1", "--k", "1", "--device", "cpu"],
    ]
    assert main([*argv, "--temperature", "300", "--overwrite", *words]) == 0
    return ase_read(target, ":"), capsys.readouterr().out


@pytest.mark.parametrize("name", ["POSCAR", "start.vasp", "start.cif", "start.xyz", "start.traj"])
def test_starts_from_what_ase_reads(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    atoms = boxed()
    write(tmp_path / name, atoms, **({"format": "extxyz"} if name.endswith(".xyz") else {}))
    frames, out = frames_of(tmp_path / name, capsys)
    assert frames[0].pbc.all()
    np.testing.assert_allclose(frames[0].cell.lengths(), 9.0)
    assert sorted(frames[0].numbers) == sorted(atoms.numbers)
    assert "velocities" not in out
    moved = np.abs(frames[-1].positions - frames[0].positions).max(axis=1)
    assert moved[1:].min() > 1e-4
    assert (moved[0] < 1e-7) == (name != "start.cif"), "a CIF has no constraints"


def test_a_start_that_nothing_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("this is not a structure\n")
    words = f"md {ETHANOL} {tmp_path}/notes.txt -o {tmp_path}/t.xyz --steps 4 --temperature 300"
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "notes.txt: cannot be read" in err
    assert "give extended xyz, POSCAR, CIF or another file that ASE reads" in err


def test_velocities_of_the_file_start_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    atoms = boxed()
    masses = atoms.get_masses()
    masses[-1] = 2.014
    atoms.set_masses(masses)
    atoms.set_momenta(np.random.default_rng(0).normal(scale=0.2, size=(9, 3)))
    write(tmp_path / "start.traj", atoms)
    frames, out = frames_of(tmp_path / "start.traj", capsys)
    np.testing.assert_allclose(frames[0].get_momenta(), atoms.get_momenta(), atol=1e-7)
    kelvin = atoms.get_temperature()
    assert f"start.traj start the run ({kelvin:.0f} K); --temperature 300 K is the target of the thermostat" in out
    log = np.loadtxt(tmp_path / "t-md/md.log", usecols=(2, 4))
    assert log[0, 1] == pytest.approx(atoms.get_kinetic_energy(), abs=1e-6), "with the masses of the file"
    assert "--temperature is not used" in frames_of(tmp_path / "start.traj", capsys, "--ensemble", "nve")[1]
    frames, out = frames_of(tmp_path / "start.traj", capsys, "--fresh-velocities")
    assert "velocities" not in out
    assert np.loadtxt(tmp_path / "t-md/md.log", usecols=2)[0] == pytest.approx(300.0, abs=1e-3)


def test_a_slab_is_refused_under_pressure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    atoms = boxed()
    atoms.set_constraint()
    atoms.pbc = (True, True, False)
    write(tmp_path / "slab.traj", atoms)
    words = f"md {ETHANOL} {tmp_path}/slab.traj -o {tmp_path}/t.xyz --steps 4 --temperature 300 --ensemble npt"
    assert main(words.split()) == 2
    assert "periodic in 2 of 3 directions" in capsys.readouterr().err
