"""`equibayes predict`: what the API says, as a file, or nothing at all."""

from pathlib import Path

import numpy as np
import pytest
from ase.build import molecule
from ase.io import read as ase_read
from ase.io import write

from equibayes.cli.main import main
from equibayes.data import read
from equibayes.posterior.file import load
from tests.cli import program

DATA = "bundled:ethanol@1000:1030"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Eight frames without labels; every other periodic."""
    frames = []
    for number, structure in enumerate(read("bundled:ethanol@1000:1008")):
        atoms = structure.to_atoms()
        atoms.calc = None
        if number % 2:
            atoms.set_cell([7.0, 7.5, 8.0])
            atoms.pbc = True
        frames.append(atoms)
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "bare.xyz", frames, format="extxyz")
    return folder / "bare.xyz"


def predicted(argv: list[str], path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list, str]:
    """Frames and text of a run that succeeds."""
    assert main(["predict", *argv, "-o", str(path), "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return ase_read(path, ":"), out


def bad(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["predict", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_the_file_holds_what_the_api_says(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames, out = predicted([str(file), DATA], tmp_path / "p.xyz", capsys)
    expected = load(file).predict(read(DATA))
    for atoms, structure, prediction in zip(frames, read(DATA), expected, strict=True):
        np.testing.assert_allclose(
            atoms.get_forces(), prediction.forces, atol=1e-5
        )  # batches differ in single precision
        np.testing.assert_allclose(atoms.arrays["forces_std"], prediction.forces_std, rtol=1e-4)
        assert atoms.get_potential_energy() == pytest.approx(prediction.energy, abs=1e-4)
        assert atoms.info["energy_std"] == pytest.approx(prediction.energy_std, rel=1e-4)
        assert atoms.info["REF_energy"] == pytest.approx(structure.energy)
        np.testing.assert_allclose(atoms.arrays["REF_forces"], structure.forces, atol=1e-8)
        assert "forces_ensemble" not in atoms.arrays
        assert "interval_coverage" not in atoms.info
    largest = max(p.forces_std.max() for p in expected)
    where = int(np.argmax([p.forces_std.max() for p in expected]))
    assert f"30 frames written to {tmp_path / 'p.xyz'}" in out
    assert f"at most {1000 * largest:.1f} meV/Å in bundled:ethanol, frame {1000 + where}" in out
    assert "up to a constant" not in out
    # it can be evaluated: labels are found before predictions
    assert main(["evaluate", str(file), str(tmp_path / "p.xyz")]) == 0


def test_unlabelled_and_periodic(file: Path, bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames, _ = predicted([str(file), str(bare)], tmp_path / "p.xyz", capsys)
    assert len(frames) == 8
    for number, atoms in enumerate(frames):
        assert ("stress" in atoms.calc.results) == ("stress_std" in atoms.info) == bool(number % 2)
        assert "REF_energy" not in atoms.info
        assert "REF_forces" not in atoms.arrays
    expected = load(file).predict(read(bare, require_labels=False))[1]
    np.testing.assert_allclose(frames[1].get_stress(voigt=False), expected.stress, rtol=1e-3, atol=1e-7)
    for name in ("stress_std", "stress_epistemic"):
        sigma = frames[1].info[name]
        assert sigma.dtype == np.float64
        np.testing.assert_allclose(sigma, getattr(expected, name), rtol=1e-3, atol=1e-9)


def test_fewer_samples_members_intervals(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [str(file), "bundled:ethanol@1000:1003", "--k", "2", "--members", "--interval", "0.95"]
    frames, out = predicted(argv, tmp_path / "p.xyz", capsys)
    expected = load(file).subset(2).predict(read("bundled:ethanol@1000:1003"))
    for atoms, prediction in zip(frames, expected, strict=True):
        np.testing.assert_allclose(atoms.get_forces(), prediction.forces, atol=1e-5)
        assert atoms.info["energy_ensemble"].shape == (2,)
        ensemble = atoms.arrays["forces_ensemble"].reshape(9, 3, 2)
        np.testing.assert_allclose(ensemble.std(-1), atoms.arrays["forces_epistemic"], atol=2e-8)
        np.testing.assert_allclose(atoms.arrays["forces_interval"], 1.959964 * atoms.arrays["forces_std"], atol=2e-8)
    assert "note: this posterior is not calibrated: intervals use σ as it is" in out


def test_a_calibrated_posterior(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "c.posterior"
    assert main(["calibrate", str(file), DATA, "-o", str(target), "--method", "scale"]) == 0
    capsys.readouterr()
    raw, _ = predicted([str(file), DATA], tmp_path / "raw.xyz", capsys)
    new, out = predicted([str(target), DATA, "--interval", "0.9"], tmp_path / "new.xyz", capsys)
    assert "not calibrated" not in out
    stored = load(target).calibration["forces"]
    width = stored["quantiles"]["4"]["0.9"]
    np.testing.assert_allclose(new[0].arrays["forces_interval"], width * raw[0].arrays["forces_std"], rtol=1e-5)
    assert abs(new[0].arrays["forces_std"] / raw[0].arrays["forces_std"] - 1).max() > 0.01
    np.testing.assert_array_equal(new[0].get_forces(), raw[0].get_forces())
    assert "no interval of coverage 0.99" in bad(
        [str(target), DATA, "--interval", "0.99", "-o", str(tmp_path / "x.xyz")], capsys
    )
    assert not (tmp_path / "x.xyz").exists()


def test_nothing_is_left_over(file: Path, bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, salt = tmp_path / "p.xyz", bare.with_name("salt.xyz")
    salt.write_text(bare.read_text() + "2\n\nNa 0 0 0\nCl 0 0 2.4\n")
    words = "salt.xyz, frame 8: species Na, Cl unknown to this model, which knows H, C, O"
    assert words in bad([str(file), str(salt), "-o", str(target)], capsys)
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]
    target.write_text("old")
    assert "p.xyz: exists already; choose another name" in bad([str(file), str(bare), "-o", str(target)], capsys)
    assert words in bad([str(file), str(salt), "-o", str(target), "--overwrite"], capsys)
    assert target.read_text() == "old"
    frames, _ = predicted([str(file), str(bare), "--overwrite"], target, capsys)
    assert len(frames) == 8


def test_a_full_disk(file: Path, bare: Path) -> None:
    status, out, err = program.run(["predict", str(file), "bare.xyz", "-o", "p.xyz"], bare.parent, file_size=9000)
    assert (status, out) == (2, "")
    assert err.startswith("equibayes: error: p.xyz: ")
    assert err.count("\n") == 1
    assert {path.name for path in bare.parent.iterdir()} == {"bare.xyz", "out.txt", "err.txt"}


def test_bad_input(file: Path, bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = ["-o", str(tmp_path / "p.xyz")]
    assert "k=9: this posterior has 4 samples" in bad([str(file), DATA, "--k", "9", *target], capsys)
    assert "--interval 90: a probability between 0 and 1" in bad([str(file), DATA, "--interval", "90", *target], capsys)
    assert "no.xyz: no such file" in bad([str(file), "no.xyz", *target], capsys)
    assert "no such file; name a posterior file" in bad(["no.posterior", DATA, *target], capsys)
    assert "must end in .xyz" in bad([str(file), DATA, "-o", str(tmp_path / "p.traj")], capsys)
    assert "there is no such folder" in bad([str(file), DATA, "-o", str(tmp_path / "no" / "p.xyz")], capsys)
    assert "is the input itself" in bad([str(file), f"{bare}@0:3", "-o", str(bare), "--overwrite"], capsys)
    atom = bare.with_name("atom.xyz")
    atom.write_text("1\nconfig_type=IsolatedAtom energy=-1\nH 0 0 0\n")
    assert "the data hold no frames to predict" in bad([str(file), str(atom), *target], capsys)
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]


def test_free_atoms_are_left_out(file: Path, bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = tmp_path / "mixed.xyz"
    mixed.write_text("1\nconfig_type=IsolatedAtom energy=-1\nH 0 0 0\n" + bare.read_text())
    assert main(["predict", str(file), str(mixed), "-o", str(tmp_path / "p.xyz")]) == 0
    assert "note: left out 1 of" in capsys.readouterr().out


def test_on_a_terminal(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["predict", str(file), "bundled:ethanol@1000:1004", "-o", str(tmp_path / "p.xyz")]) == 0
    assert "bundled:ethanol@1000:1004" in capsys.readouterr().err, "a bar of progress"


def test_an_energy_that_no_label_fixed_is_said_to_be_one(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From ethanol alone nobody knows what the atoms of methanol add up to."""
    methanol = molecule("CH3OH")
    methanol.info["REF_energy"] = -3000.0
    methanol.arrays["REF_forces"] = np.zeros((6, 3))
    write(tmp_path / "methanol.xyz", methanol, format="extxyz")
    frames, out = predicted([str(file), str(tmp_path / "methanol.xyz")], tmp_path / "p.xyz", capsys)
    assert frames[0].info["energy_up_to_a_constant"]
    assert "note: energies of 1 frame are defined only up to a constant, first: methanol.xyz, frame 0;" in out
    assert main(["evaluate", str(file), str(tmp_path / "methanol.xyz")]) == 0
    assert "energies of these molecules are known only up to a constant" in capsys.readouterr().out
    seen = read(DATA)[0].to_atoms()
    seen.info["REF_energy"], seen.arrays["REF_forces"] = seen.get_potential_energy(), seen.get_forces()
    seen.calc = None
    write(tmp_path / "both.xyz", [methanol, seen], format="extxyz")
    assert main(["evaluate", str(file), str(tmp_path / "both.xyz")]) == 0
    assert "energies of 1 frame are defined only up to a constant and are not compared" in capsys.readouterr().out
    assert main(["info", str(file)]) == 0
    assert "the data do not tell these elements apart" in capsys.readouterr().out
