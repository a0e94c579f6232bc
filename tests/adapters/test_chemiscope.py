"""Files for chemiscope, from `md` and `predict`, held to the package chemiscope."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equibayes.adapters.chemiscope import OF_ATOMS, OF_FRAMES, dataset
from equibayes.cli.main import main
from equibayes.simulate.frames import read_frames
from tests.simulate.posteriors import ETHANOL, random_posterior

MD = f"md {ETHANOL} bundled:ethanol@0:1 -o t.xyz --temperature 300 --every 5 --k 1 --device cpu --chemiscope t.json.gz"
PREDICT = f"predict {ETHANOL} bundled:ethanol@0:5 -o p.xyz --device cpu --chemiscope p.json"


def content(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_trajectory_also_when_it_is_extended(tmp_path: Path) -> None:
    assert main([*MD.split(), "--steps", "10"]) == 0
    assert len(content(tmp_path / "t.json.gz")["structures"]) == 3
    assert main([*MD.split(), "--steps", "20", "--resume"]) == 0
    found = content(tmp_path / "t.json.gz")
    frames = read_frames("t.xyz")
    assert len(frames) == len(found["structures"]) == 5
    assert found["properties"]["step"]["values"] == [0, 5, 10, 15, 20]
    sigma = np.concatenate([atoms.arrays["atom_sigma"] for atoms in frames])
    np.testing.assert_allclose(found["properties"]["atom_sigma"]["values"], sigma, atol=1e-6)


def test_predictions_with_their_errors(tmp_path: Path) -> None:
    assert main(PREDICT.split()) == 0
    found = content(tmp_path / "p.json")["properties"]
    frames = read_frames("p.xyz")
    errors = [atoms.calc.results["energy"] - atoms.info["REF_energy"] for atoms in frames]
    np.testing.assert_allclose(found["energy_error"]["values"], errors, atol=1e-6)
    assert set(found) == {*OF_FRAMES, *OF_ATOMS} - {"step", "time"}


@pytest.mark.parametrize("data", ["bundled:ethanol@0:4", "crystals.xyz"])
def test_chemiscope_makes_the_same_of_the_same_frames(data: str) -> None:
    """Its `create_input` checks names, targets, units and sizes, and gives structures and properties as ours."""
    chemiscope = pytest.importorskip("chemiscope", reason="pip install chemiscope")
    from ase.io import write

    from tests.samples import salt, silicon

    write("crystals.xyz", [salt().to_atoms(), silicon().to_atoms()])
    random_posterior().save("a.posterior")
    assert main(["predict", "a.posterior", data, "-o", "p.xyz", "--device", "cpu"]) == 0
    frames = read_frames("p.xyz")
    ours = dataset(frames, "p.xyz")
    theirs = chemiscope.create_input(
        structures=frames,
        metadata=ours["meta"],
        properties=ours["properties"],
        settings=ours["settings"],
        environments=chemiscope.all_atomic_environments(frames),
    )
    assert ours["environments"] == theirs["environments"]
    assert ours["meta"] == theirs["meta"]
    assert ours["properties"] == theirs["properties"]
    assert len(ours["structures"]) == len(theirs["structures"])
    for own, their in zip(ours["structures"], theirs["structures"]):
        assert own.keys() == their.keys()
        assert (own["size"], own["names"]) == (their["size"], their["names"])
        for name in own.keys() & {"x", "y", "z", "cell"}:
            np.testing.assert_allclose(own[name], their[name], atol=1e-6)


def test_chemiscope_shows_the_file() -> None:
    chemiscope = pytest.importorskip("chemiscope", reason="pip install chemiscope")
    assert main([*MD.split(), "--steps", "5"]) == 0
    widget = chemiscope.show_input("t.json.gz")
    assert json.loads(widget.value)["meta"]["name"] == "t.xyz"


@pytest.mark.parametrize("words", [[*MD.split(), "--steps", "5"], PREDICT.split()], ids=["md", "predict"])
def test_names_are_checked_before_the_work(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--chemiscope", "t.html"]) == 2
    assert "--chemiscope t.html: the name of the file must end in .json or .gz" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
