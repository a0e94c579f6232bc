"""A run is repeated from its settings, and continued from its folder."""

import json
import shutil
from pathlib import Path

import pytest
from ase import units
from ase.io import write

from equibayes.cli.main import main
from equibayes.data import read
from equibayes.posterior.file import load
from tests.cli.test_sample_failures import RUN, refused

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with 20 frames in Hartree and Bohr under unusual keys."""
    frames = []
    for structure in read("bundled:ethanol@0:20"):
        atoms = structure.to_atoms()
        atoms.info["dft_energy"] = structure.energy / units.Hartree
        atoms.arrays["dft_forces"] = structure.forces / (units.Hartree / units.Bohr)
        atoms.positions /= units.Bohr
        atoms.calc = None
        frames.append(atoms)
    write(tmp_path / "d.xyz", frames, format="extxyz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


READING = "data.energy_key=dft_energy data.forces_key=dft_forces data.energy_unit=Hartree data.length_unit=Bohr"


def sampled(*words: str) -> None:
    assert main(["sample", *words, "--device", "cpu"]) == 0


def interrupted(folder: Path) -> bytes:
    """A finished run set back to its last checkpoint but one; the posterior that it must come to."""
    *_, newest = sorted((folder / "a.run").glob("checkpoint-*"))
    newest.unlink()
    content = (folder / "a.posterior").read_bytes()
    (folder / "a.posterior").unlink()
    return content


def test_keys_and_units_are_settings(folder: Path) -> None:
    sampled("d.xyz", "-o", "a.posterior", *RUN.split(), *READING.split())
    data = load("a.posterior").config["data"]
    assert (data["energy_key"], data["forces_key"]) == ("dft_energy", "dft_forces")
    assert (data["energy_unit"], data["length_unit"], data["force_unit"]) == ("Hartree", "Bohr", None)
    options = "--energy-key dft_energy --forces-key dft_forces --energy-unit Hartree --length-unit Bohr"
    sampled("d.xyz", "-o", "b.posterior", *RUN.split(), *options.split())
    sampled("d.xyz", "a.run/config.yaml", "-o", "c.posterior")
    contents = {(folder / f"{name}.posterior").read_bytes() for name in "abc"}
    assert len(contents) == 1


@pytest.mark.parametrize("words", [("-o", "a.posterior"), ("a.run",)])
def test_continued_from_the_folder_alone(folder: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    sampled("d.xyz", "-o", "a.posterior", *RUN.split(), *READING.split())
    expected = interrupted(folder)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    sampled("--resume", *(word if word.startswith("-") else str(folder / word) for word in words))
    assert (folder / "a.posterior").read_bytes() == expected


def test_data_that_moved(folder: Path, capsys: Capture) -> None:
    sampled("d.xyz", "-o", "a.posterior", *RUN.split(), *READING.split())
    expected = interrupted(folder)
    (folder / "new").mkdir()
    shutil.move(folder / "d.xyz", folder / "new" / "d.xyz")
    words = f"a.run: its data file {folder / 'd.xyz'} is not there any more; name it where it is now"
    refused(["sample", "--resume", "-o", "a.posterior"], capsys, words)
    sampled("new/d.xyz", "--resume", "-o", "a.posterior")
    assert (folder / "a.posterior").read_bytes() == expected
    assert json.loads((folder / "a.run" / "origin.json").read_text())["data"] == [str(folder / "new" / "d.xyz")]
    sampled("--resume", "-o", "a.posterior")


def test_data_that_changed(folder: Path, capsys: Capture) -> None:
    sampled("d.xyz@0:18", "-o", "a.posterior", *RUN.split(), *READING.split())
    text = (folder / "d.xyz").read_text()
    assert text.count("dft_energy=-154.") > 1
    (folder / "d.xyz").write_text(text.replace("dft_energy=-154.", "dft_energy=-154.0", 1))
    refused(["sample", "--resume", "-o", "a.posterior"], capsys, "d.xyz@0:18 changed since the run began; restore")


def test_what_does_not_fit_together(folder: Path, capsys: Capture) -> None:
    sampled("d.xyz", "-o", "a.posterior", *RUN.split(), *READING.split())
    for words in (["cycles.peak=2e-3"], ["--seed", "1"], ["--energy-unit", "eV"]):
        refused(["sample", *words, "--resume", "-o", "a.posterior"], capsys, "takes all settings from a.run; leave")
    refused(["sample", "--resume"], capsys, "required: DATA, -o; see equibayes sample --help")
    refused(["sample", "new", "--resume", "-o", "b.posterior"], capsys, "b.run: no checkpoint to resume from")
    (folder / "new").mkdir()
    refused(["sample", "new", "--resume"], capsys, "new: is not the folder of a run")
    (folder / "a.run" / "origin.json").unlink()
    refused(["sample", "--resume", "-o", "a.posterior"], capsys, "a.run: does not say what its data were; name DATA")
