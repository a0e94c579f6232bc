"""Files to learn from and to validate on, as users name them."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ase.io import write

import equibayes
from equibayes.cli.main import build_parser, main, parse
from equibayes.cli.settings import data_and_settings
from equibayes.data import Dataset, read
from equibayes.data.several import expand, read_all
from equibayes.errors import InputError, InputWarning
from equibayes.evaluation.report import words
from equibayes.run.frames import frames_of
from equibayes.run.prepare import prepare
from equibayes.run.settings import sample_config
from tests.runs import ethanol_frames, small_config
from tests.samples import water

CONFIG = sample_config()
TINY = "--network tiny chains=2 samples=2 burn_in.steps=8 burn_in.batch_size=4 cycles.length=4 guard.interval=4"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ethanol in three formats: a.xyz (8 frames), more/b.npz (6) and more/c.traj (4)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more").mkdir()
    frames = ethanol_frames(18)
    write("a.xyz", [s.to_atoms() for s in frames[:8]], format="extxyz")
    frames[8:14].save_npz("more/b.npz")
    write("more/c.traj", [s.to_atoms() for s in frames[14:]])
    return tmp_path


def same_frames(found: Dataset, expected: Dataset) -> None:
    assert [s.numbers.tolist() for s in found] == [s.numbers.tolist() for s in expected]
    for ours, theirs in zip(found, expected):
        np.testing.assert_allclose(ours.positions, theirs.positions, atol=1e-7)
        np.testing.assert_allclose(ours.forces, theirs.forces, atol=1e-7)


@pytest.mark.usefixtures("folder")
def test_several_files_and_formats() -> None:
    found = read_all(["a.xyz", "more/*"])
    same_frames(found, ethanol_frames(18))
    assert found.name == "a.xyz + b.npz + c.traj"
    assert read_all("a.xyz").name == "a.xyz"
    assert read_all(["a.xyz@0:2", "more/b.npz@::3"]).name == "a.xyz@0:2 + b.npz@::3"
    assert read_all([*(f"a.xyz@{i}" for i in range(5))]).name == "a.xyz@0 + … + a.xyz@4 (5 files)"
    assert len(read_all([ethanol_frames(3), "more/c.traj"])) == 7


@pytest.mark.usefixtures("folder")
def test_patterns() -> None:
    assert expand("more/?.*") == ["more/b.npz", "more/c.traj"]
    assert expand("**/*.npz") == ["more/b.npz"]
    assert expand("more/*.npz@0:2") == ["more/b.npz@0:2"]
    assert expand("bundled:ethanol@0:2") == ["bundled:ethanol@0:2"]
    Path("x[1].xyz").write_text(Path("a.xyz").read_text())
    assert expand("x[1].xyz@0:2") == ["x[1].xyz@0:2"], "the name of a file is no pattern"
    np.savez("more/b.splits.npz", train=np.arange(3))
    assert expand("more/*.npz") == ["more/b.npz"], "split files hold no frames"
    with pytest.raises(InputError, match=r"^frames/\*\.xyz@0:5: no file matches this pattern; check the folder"):
        read_all("frames/*.xyz@0:5")


@pytest.mark.usefixtures("folder")
def test_files_that_do_not_belong_together() -> None:
    """Another zero of energy (one line for each file), and the same frames twice."""
    frames = ethanol_frames(18)
    with pytest.warns(
        InputWarning, match=r"^moved\.xyz: energies of C2H6O are 1\.\d+ eV per atom away from those in a"
    ):
        read_all(["a.xyz", moved(frames[8:], 9.0 * 1.3)])
    with pytest.warns(InputWarning):
        posterior = equibayes.sample(["a.xyz", "moved.xyz"], small_config(), validation="more/c.traj", device="cpu")
    (told,) = posterior.data["notes"]
    assert any(told[1:] in word for word in words.warnings(posterior)), "in the report too"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_all(["a.xyz", moved(frames[8:], 9.0 * 0.3)])
    with pytest.warns(InputWarning, match=r"^a\.xyz@5:: 3 frames with the geometry of one in another file \(a\.xyz"):
        read_all(["a.xyz", "a.xyz@5:"])


def moved(frames: Dataset, energy: float) -> str:
    """A file of the frames with other energies."""
    images = [s.to_atoms() for s in frames]
    for atoms in images:
        forces = atoms.get_forces()
        atoms.info["REF_energy"] = atoms.get_potential_energy() + energy
        atoms.calc = None
        atoms.arrays["REF_forces"] = forces
    write("moved.xyz", images, format="extxyz")
    return "moved.xyz"


@pytest.mark.usefixtures("folder")
def test_validation_frames() -> None:
    data, apart, config = frames_of("a.xyz", "more/*", CONFIG)
    assert (len(data), apart and len(apart), config.data.validation) == (8, 10, 0)
    assert frames_of("a.xyz", 0.25, CONFIG)[2].data.validation == 2
    assert frames_of("a.xyz", "0.25", CONFIG)[1] is None
    assert frames_of("a.xyz", "3", CONFIG)[2].data.validation == 3
    assert frames_of("a.xyz", None, CONFIG)[2] is CONFIG
    for wrong in ("1.5", -1, 0.0, "nan", True):
        with pytest.raises(
            InputError, match=r"is neither a number of frames such as 30, nor a fraction such as 0\.1, nor"
        ):
            frames_of("a.xyz", wrong, CONFIG)
    with pytest.raises(InputError, match=r"validation\.xyz: no such file"):
        frames_of("a.xyz", "validation.xyz", CONFIG)
    with pytest.raises(InputError, match=r"species S unknown to this model, which knows H, C, O"):
        frames_of("a.xyz", str(Path(__file__).parents[2] / "studies/pedot/data/pedot.npz@validation"), CONFIG)


@pytest.mark.usefixtures("folder")
def test_validation_frames_that_are_training_frames() -> None:
    with pytest.warns(
        InputWarning, match=r"^b\.npz: 2 of 6 frames are training frames too \(.* = .*\) and are left out"
    ):
        _, apart, _ = frames_of(["a.xyz", "more/b.npz@0:2"], "more/b.npz", CONFIG)
    assert apart is not None
    assert len(apart) == 4
    with pytest.raises(InputError, match=r"^a\.xyz@2:4: all of its frames are training frames too"):
        frames_of("a.xyz", "a.xyz@2:4", CONFIG)


@pytest.mark.usefixtures("folder")
def test_words_of_the_command_line() -> None:
    """DATA and settings in any order; a file whose name looks like a setting is a file."""
    Path("T=300.xyz").write_text(Path("a.xyz").read_text())
    Path("s.yaml").write_text("chains: 3\n")
    line = "sample a.xyz more/* T=300.xyz s.yaml -o out.posterior samples=5 b.xyz T=*.xyz"
    data, config = data_and_settings(parse(line.split()))
    assert data == ["a.xyz", "more/*", "T=300.xyz", "b.xyz", "T=*.xyz"]
    assert (config.chains, config.samples) == (3, 5)
    with pytest.raises(InputError, match="no DATA: name a file to learn from; see equibayes sample --help"):
        data_and_settings(parse(["sample", "s.yaml", "-o", "out.posterior"]))
    assert "--validation FILE|FRACTION" in build_parser().format_help() + _help("sample") + _help("compare")


def _help(verb: str) -> str:
    actions = build_parser()._subparsers
    assert actions is not None
    return actions._group_actions[0].choices[verb].format_help()  # type: ignore[call-overload,index,no-any-return]


def test_a_run_with_validation_frames_resumes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same bits as in Python and as without a stop; other validation frames are refused."""
    argv = ["sample", "a.xyz", "more/b.npz", "-o", "a.posterior", *TINY.split()]
    assert main([*argv, "--validation", "more/*.traj"]) == 0
    assert "14 frames to learn from, 4 of c.traj to validate on" in capsys.readouterr().out
    whole = equibayes.load("a.posterior")
    assert (whole.data["frames"], whole.data["validation_frames"], whole.data["validation_name"]) == (14, 4, "c.traj")
    assert main(["info", "a.posterior"]) == 0
    assert "a.xyz + b.npz: 14 frames with 126 atoms to learn from, 4 of c.traj to validate" in capsys.readouterr().out
    newest = max((folder / "a.run").glob("checkpoint-*"))
    newest.unlink()
    assert main([*argv, "--validation", "more/*.traj", "--resume"]) == 0
    resumed = equibayes.load("a.posterior")
    assert resumed.samples.equal(whole.samples)
    assert resumed.history == whole.history
    capsys.readouterr()
    assert main([*argv, "--validation", "more/c.traj@0:3", "--resume"]) == 2
    assert "--resume: the validation frames changed since the run began" in capsys.readouterr().err
    assert main([*argv, "--validation", "0.2", "--resume"]) == 2
    assert "--resume: data.validation was 0 when the run began and is 3 now" in capsys.readouterr().err
    config = equibayes.sample_config("quick", "tiny", {"chains": 2, "samples": 2, **_nested()})
    again = equibayes.sample(["a.xyz", "more/b.npz"], config, validation="more/*.traj", device="cpu")
    assert again.samples.equal(whole.samples)


def _nested() -> dict[str, dict[str, int]]:
    burn_in = {"steps": 8, "batch_size": 4}
    return {"burn_in": burn_in, "cycles": {"length": 4}, "guard": {"interval": 4}}


def test_compare_takes_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["compare", "a.xyz", "more/b.npz", "--test", "more/c.traj@2:", "--validation", "more/c.traj@0:2", "-o", "c"]
    assert main([*argv, "--methods", "bayes,point", *TINY.split()]) == 0
    assert "14 frames to learn from, 2 of c.traj@0:2 to validate on" in capsys.readouterr().out
    for method in ("bayes", "point"):
        assert equibayes.load(folder / f"c/{method}.posterior").data["validation_frames"] == 2


def test_energies_of_unknown_molecules_are_no_labels() -> None:
    """Offsets per formula say nothing of a new molecule: its energy error would be that of the unknown zero."""
    config = small_config({"data": {"validation": 0, "energy_reference": "per_structure"}, "network": {"r_max": 3.0}})
    one = read("bundled:ethanol@0:6")
    other = Dataset([replace(water(0), energy=-1.0, forces=np.zeros((3, 3)))], "water")
    prepared = prepare(one, config, other)
    assert np.isnan(prepared.resident(prepared.validation, "cpu").energy.tolist()).tolist() == [True]
    assert np.isfinite(prepared.resident(prepared.train, "cpu").energy.numpy()).all()


def test_a_zero_that_the_labels_have() -> None:
    """Energies above a ground state are taken as they are; totals are refused."""
    config = small_config({"data": {"energy_reference": "zero"}})
    with pytest.raises(
        InputError, match=r"energy_reference=zero, but energies are up to 4\d\d\.?\d* eV per atom, not rel"
    ):
        prepare(ethanol_frames(), config)
    both = small_config({"data": {"energy_reference": "zero", "given_energies": {"H": -13.6}}})
    with pytest.raises(InputError, match="both say what an energy of 0 is"):
        prepare(ethanol_frames(), both)
