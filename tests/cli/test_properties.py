"""`equibayes properties`: from a posterior and a structure to text, JSON, a figure and a report."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ase.build import bulk, molecule
from ase.io import write

from equibayes.cli.main import main
from equibayes.posterior.file import load
from equibayes.solids import crystal
from equibayes.solids.properties import properties
from tests.evaluation.test_report import Page
from tests.solids.posteriors import COPPER, copper_frames

GUIDE = Path(__file__).parents[2] / "docs" / "properties.md"


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """The conventional cell of copper, as VASP writes it."""
    path = tmp_path / "POSCAR"
    write(path, bulk("Cu", a=3.65, cubic=True))
    return path


def bad(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a refused command."""
    assert main(["properties", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_the_posterior_knows_the_frames_that_its_docstring_names() -> None:
    """Forces of some of them, to their error."""
    posterior, frames = load(COPPER), copper_frames()[::10]
    errors = [p.forces - a.get_forces() for p, a in zip(posterior.predict(frames), frames, strict=True)]
    assert 1e3 * np.mean([np.abs(each).mean() for each in errors]) < 10


def test_everything(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All properties of all samples; the numbers agree wherever they are written."""
    files = {name: tmp_path / f"cu.{name}" for name in ("json", "svg", "html")}
    argv = [str(COPPER), str(start), "--supercell-length", "6", "--threads", "1"]
    argv += ["--json", str(files["json"]), "--plot", str(files["svg"]), "--report", str(files["html"])]
    assert main(["properties", *argv]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Cu, cubic, Fm-3m (225), 1 atom in the primitive cell" in out
    assert "property equation of state" in out, "progress"
    values = json.loads(files["json"].read_text())
    assert values["posterior"] == "copper.posterior"
    assert set(values["properties"]) == {"lattice", "eos", "elastic", "phonons", "vacancy"}
    for group, name, low, high in (
        ("lattice", "a", 3.5, 3.8),
        ("eos", "bulk_modulus", 60, 160),
        ("elastic", "C44", 30, 120),
        ("phonons", "highest_frequency", 5, 9),
        ("vacancy", "formation_energy_Cu", 0.1, 2),
    ):
        found = values["properties"][group][name]
        assert low < found["value"] < high
        assert len(found["members"]) == 4
        assert found["sigma"] == pytest.approx(np.std(found["members"]))
        assert found["sigma"] > 0
        printed = re.search(rf"^  {name.replace('_', ' ')} +([\d.]+) ± ([\d.]+) {found['unit']}$", out, re.MULTILINE)
        assert printed is not None
        assert float(printed[1]) == pytest.approx(found["value"], abs=0.2 * found["sigma"])
        assert float(printed[2]) == pytest.approx(found["sigma"], rel=0.1)
    # the same pressure derivative of the energy by two ways
    moduli = [values["properties"][group]["bulk_modulus"]["members"] for group in ("eos", "elastic")]
    np.testing.assert_allclose(moduli[0], moduli[1], rtol=0.03)
    assert "Phonons" in files["svg"].read_text()
    for heading, group, name in (
        ("lattice parameter a, Å", "lattice", "a"),
        ("bulk modulus, GPa", "eos", "bulk_modulus"),
        ("C11, C12, C44, GPa", "elastic", "C11"),
    ):
        row = re.search(rf"^\| {heading} \|.*\| ([\d.]+) ± ([\d.]+)", GUIDE.read_text(), re.MULTILINE)
        assert row is not None
        found = values["properties"][group][name]
        assert float(row[1]) == pytest.approx(found["value"], abs=0.1 * found["sigma"]), "as documented"
        assert float(row[2]) == pytest.approx(found["sigma"], rel=0.05)
    page = Page(files["html"].read_text())
    assert "4 posterior samples from 2 chains" in page.words
    assert len(page.all("svg")) == 5


def test_members_relax_on_their_own(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each sample has the value that it has alone."""
    argv = [str(COPPER), str(start), "--only", "lattice, elastic", "--k", "2", "--json", str(tmp_path / "a.json")]
    assert main(["properties", *argv]) == 0
    assert "Phonons" not in capsys.readouterr().out
    both = json.loads((tmp_path / "a.json").read_text())["properties"]
    posterior = load(COPPER)
    for number in range(2):
        alone = replace(posterior, samples=posterior.samples[number : number + 1], chain=posterior.chain[:1])
        alone = replace(alone, step=posterior.step[:1])
        found = properties(alone, start, only=["lattice", "elastic"], device="cpu")
        for group, name in (("lattice", "a"), ("elastic", "C11"), ("elastic", "C44")):
            expected = float(found.numbers[group][name].mean)
            assert both[group][name]["members"][number] == pytest.approx(expected, rel=1e-6)


def test_single_precision(start: Path, tmp_path: Path) -> None:
    found = {}
    for dtype in ("float32", "float64"):
        path = tmp_path / f"{dtype}.json"
        argv = [str(COPPER), str(start), "--only", "lattice,elastic", "--dtype", dtype, "--json", str(path)]
        assert main(["properties", *argv]) == 0
        found[dtype] = json.loads(path.read_text())["properties"]
    for name in ("C11", "C12", "C44"):
        single, double = (found[dtype]["elastic"][name]["value"] for dtype in ("float32", "float64"))
        assert single == pytest.approx(double, rel=0.01)


def test_bad_input(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "water.xyz", molecule("H2O"))
    write(tmp_path / "gold.cif", bulk("Au"))
    model = str(COPPER)
    assert "water.xyz: species H, O unknown to this model, which knows Cu" in bad(
        [model, str(tmp_path / "water.xyz")], capsys
    )
    write(tmp_path / "cluster.xyz", bulk("Cu", cubic=True), format="xyz")
    assert "cluster.xyz: not periodic in three directions; properties are those of a bulk crystal" in bad(
        [model, str(tmp_path / "cluster.xyz")], capsys
    )
    assert "gold.cif: species Au unknown to this model" in bad([model, str(tmp_path / "gold.cif")], capsys)
    assert "no property 'bands'; choose from lattice" in bad([model, str(start), "--only", "bands"], capsys)
    assert "--mu Cu: a species and an energy in eV are needed" in bad([model, str(start), "--mu", "Cu"], capsys)
    assert "--plot a.jpg: the name of the file must end in .svg or .pdf or .png" in bad(
        [model, str(start), "--plot", "a.jpg"], capsys
    )
    assert "there is no such folder" in bad([model, str(start), "--json", "no/a.json"], capsys)
    assert "k=9: this posterior has 4 samples" in bad([model, str(start), "--k", "9"], capsys)
    assert "no.cif: no such file; name a structure" in bad([model, "no.cif"], capsys)
    monkeypatch.setattr(crystal, "find_spec", lambda name: None)
    assert "pip install 'equibayes[properties]'" in bad([model, str(start)], capsys)


def test_samples_that_do_not_relax_are_named(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sample of four has all its weights with the opposite sign, which binds no crystal."""
    posterior = load(COPPER)
    posterior.samples[2] *= -1
    posterior.save(tmp_path / "spoilt.posterior")
    argv = [str(tmp_path / "spoilt.posterior"), str(start), "--only", "lattice", "--json", str(tmp_path / "a.json")]
    assert main(["properties", *argv]) == 0
    assert "note: lattice: sample 2 left out: its " in capsys.readouterr().out
    values = json.loads((tmp_path / "a.json").read_text())
    assert [each["member"] for each in values["left_out"]] == ["sample 2"]
    assert values["properties"]["lattice"]["a"]["members"][2] is None
