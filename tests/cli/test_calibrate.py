"""`equibayes calibrate`: in the file, in every prediction, and out again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ase.io import write

from equibayes.cli.main import main
from equibayes.data import read
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.file import load
from equibayes.posterior.sample import sample
from equibayes.posterior.summary import PosteriorSummary
from tests.runs import ethanol_frames, small_config


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A posterior, and 40 frames whose labels differ from its predictions by 3 σ (forces) and 1 σ (energies), in the
    mean square."""
    folder, rng = tmp_path_factory.mktemp("calibrate"), np.random.default_rng(0)
    sample(ethanol_frames(60), small_config({"data": {"validation": 12}}), output=folder / "a.posterior", device="cpu")
    posterior, frames = load(folder / "a.posterior"), []
    for structure in read("bundled:ethanol@1000:1040"):
        prediction, atoms = posterior.predict(structure), structure.to_atoms()
        atoms.calc = None
        atoms.info["REF_energy"] = prediction.energy + prediction.energy_std * rng.normal()
        atoms.arrays["REF_forces"] = prediction.forces + 3 * prediction.forces_std * rng.normal(size=(len(atoms), 3))
        frames.append(atoms)
    write(folder / "made.xyz", frames, format="extxyz")
    return folder / "a.posterior", folder / "made.xyz"


@pytest.fixture
def file(made: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy to change."""
    path = tmp_path / "a.posterior"
    path.write_bytes(made[0].read_bytes())
    return path


def good(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["calibrate", *argv]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def bad(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["calibrate", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_a_link_is_kept(
    made: tuple[Path, Path], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere/link.posterior"
    link.symlink_to("../a.posterior")
    good([str(link), str(made[1])], capsys)
    assert link.is_symlink()
    assert load(file).calibration is not None, "the file behind the link is written"
    assert [path.name for path in link.parent.iterdir()] == ["link.posterior"]


def test_in_place_and_out_again(made: tuple[Path, Path], file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, frame = file.read_bytes(), ethanol_frames(1)[0]
    out = good([str(file), str(made[1])], capsys)
    assert "Calibration on made.xyz, 40 frames" in out
    assert "forces: scale is better than none on frames left out, by" in out
    assert "energies: unchanged: no method is clearly better on frames left out (the best, scale, by" in out
    assert "forces: intervals of guaranteed coverage for 50, 68, 90, 95 %" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines()[1:4]}
    assert rows["forces"][:3] == ["forces", "scale", "×"]
    factor, before_68, after_68 = float(rows["forces"][3]), float(rows["forces"][7]), float(rows["forces"][9])
    assert factor == pytest.approx(3, rel=0.1)
    assert before_68 < 35
    assert after_68 == pytest.approx(68, abs=4)
    assert rows["energies"][1] == "none"
    widened = load(file).predict(frame).forces_std / load(made[0]).predict(frame).forces_std
    assert widened == pytest.approx(np.full((9, 3), factor), rel=0.1)

    assert main(["info", str(file)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("calibration"))
    assert line.split(maxsplit=1)[1] == f"forces scale (σ × {factor:.2f}), energies none; on made.xyz, 40 frames"

    assert "calibration removed" in good([str(file), "--remove"], capsys)
    assert file.read_bytes() == before
    assert "there was no calibration" in good([str(file), "--remove"], capsys)
    assert file.read_bytes() == before


def test_another_file(made: tuple[Path, Path], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, target = file.read_bytes(), tmp_path / "b.posterior"
    found = json.loads(good([str(file), str(made[1]), "-o", str(target), "--json"], capsys))
    assert file.read_bytes() == before
    assert load(target).calibration == found
    assert Calibration.from_dict(found).forces.choice["chosen_by"] == "auto"
    assert "b.posterior: exists already; choose another name with -o, or add --overwrite" in bad(
        [str(file), str(made[1]), "-o", str(target)], capsys
    )
    good([str(file), str(made[1]), "-o", str(target), "--overwrite", "--method", "species"], capsys)
    assert load(target).calibration["forces"]["method"] == "species"
    assert good([str(target), "--remove", "--json"], capsys) == "null\n"


def test_a_method_by_name(made: tuple[Path, Path], file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = good([str(file), str(made[1]), "--method", "species"], capsys)
    assert "forces: species, as requested" in out
    assert "forces: σ of H × " in out
    assert "invalid choice: 'magic'" in bad([str(file), str(made[1]), "--method", "magic"], capsys)


def test_held_back_frames_of_the_training_set(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = good([str(file), "bundled:ethanol@0:60"], capsys)
    assert "note: the posterior learned from 48 of these frames; the other 12 are used" in out
    assert "12 frames" in out


def test_forces_alone(made: tuple[Path, Path], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "forces.xyz"
    path.write_text("\n".join(line for line in made[1].read_text().replace("REF_energy", "other").splitlines()) + "\n")
    out = good([str(file), str(path)], capsys)
    assert "energies: unchanged: no labelled frames, 10 are needed to calibrate on" in out
    assert "forces: scale" in out


def test_bad_input(made: tuple[Path, Path], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, data = file.read_bytes(), str(made[1])
    assert "give DATA to calibrate on, or --remove" in bad([str(file)], capsys)
    assert "give DATA to calibrate on, or --remove" in bad([str(file), data, "--remove"], capsys)
    assert "no.xyz: no such file" in bad([str(file), "no.xyz"], capsys)
    assert "no.posterior: no such file; name a posterior file" in bad(["no.posterior", data], capsys)
    assert "made.xyz@0:5: forces: 5 labelled frames, 10 are needed" in bad([str(file), f"{data}@0:5"], capsys)
    assert "there is no such folder" in bad([str(file), data, "-o", str(tmp_path / "no" / "b.posterior")], capsys)
    assert "is a folder" in bad([str(file), data, "-o", str(tmp_path)], capsys)
    bare = tmp_path / "bare.xyz"
    bare.write_text("1\n\nH 0 0 0\n")
    assert "bare.xyz: has neither energies nor forces to calibrate on; name their keys" in bad(
        [str(file), str(bare)], capsys
    )
    salt = tmp_path / "salt.xyz"
    salt.write_text("2\nProperties=species:S:1:pos:R:3:forces:R:3 energy=-1\nNa 0 0 0 0 0 0\nCl 0 0 2.4 0 0 0\n")
    assert "salt.xyz, frame 0: species Na, Cl unknown to this model" in bad([str(file), str(salt)], capsys)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.posterior", "bare.xyz", "salt.xyz"]


def test_novelty_of_an_earlier_file(made: tuple[Path, Path], file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As if sampled now; the calibration stays, or its absence."""
    before = load(file)
    assert before.novelty is not None
    replace(before, novelty=None).save(file)
    assert "novelty is not known" in str(PosteriorSummary(file))
    assert good([str(file), "bundled:ethanol@0:60", "--novelty"], capsys).startswith("novelty of 48 frames stored in")
    after = load(file)
    assert after.novelty is not None
    np.testing.assert_allclose(after.novelty.mean, before.novelty.mean, atol=1e-5)
    frame = ethanol_frames(1)[0]
    np.testing.assert_allclose(after.predict(frame).novelty, before.predict(frame).novelty, rtol=0.05)
    assert after.calibration is None
    assert "1 is the edge of 48 training frames" in str(PosteriorSummary(file))


def test_novelty_needs_the_training_frames(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = bad([str(file), "bundled:ethanol@1000:1040", "--novelty"], capsys)
    assert "the posterior learned from none of these frames" in said
    assert "give the file that it was sampled from" in said
