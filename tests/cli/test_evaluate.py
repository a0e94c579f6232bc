"""`equibayes evaluate`: the paper's tables as text and JSON, whatever labels there are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase.io import write

from equibayes.cli.main import main
from equibayes.data import read
from equibayes.data.extxyz import write_exact
from equibayes.errors import InputWarning
from equibayes.evaluation.evaluated import evaluate
from equibayes.posterior.file import load

KEYS = [f"{kind}_{name}" for kind in ("force", "energy") for name in
        ("mae", "rmse", "mll", "auc", "ece", "nece", "miscalibration_area", "ence", "crps", "spearman",
         "coverage_50", "coverage_68", "coverage_90", "coverage_95")]  # fmt: skip
DATA = "bundled:ethanol@1000:1030"


def metrics_of(argv: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """JSON and text of a run that succeeds."""
    target = folder / "metrics.json"
    assert main(["evaluate", *argv, "--json", str(target), "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert err == ""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(target.read_text(), parse_constant=refuse), out


def test_every_number_of_samples(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, out = metrics_of([str(file), DATA, "--k", "4,1,2"], tmp_path, capsys)
    assert list(values["data"]) == [DATA]
    by_k = values["data"][DATA]
    assert list(by_k) == ["1", "2", "4"]
    for k, each in by_k.items():
        assert set(KEYS) <= each.keys()
        assert (each["n_frames"], each["n_atoms"], each["k"]) == (30, 270, int(k))
        assert all(each[key] is not None or key in each["reasons"] for key in KEYS)
    # k = 2 by one pass with 4 samples is what a posterior of 2 samples says
    alone = evaluate(load(file).subset(2), read(DATA))
    assert by_k["2"]["force_mae"] == pytest.approx(abs(alone.force_error).mean(), rel=1e-9)
    assert by_k["2"]["force_sharpness"] == pytest.approx(np.sqrt((alone.force_sigma**2).mean()), rel=1e-9)
    # one sample cannot disagree with itself; what is left is the floor where atoms are novel
    floor = by_k["1"]["force_epistemic_share"]
    assert floor < 1e-4
    assert by_k["4"]["force_epistemic_share"] > 0.001 + floor
    for word in ("MAE-F", "RMSE-F", "MLL-F", "MAE-E", "MLL-E", "ROC AUC", "NECE-F", "95 %", "CRPS-F"):
        assert word in out
    kcal = by_k["4"]["kcal_mol"]["force_mae"]
    assert f"{kcal:.3f}" in out
    assert kcal == pytest.approx(by_k["4"]["force_mae"] * 23.0605, rel=1e-5)


def test_several_sets_and_species(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, out = metrics_of([str(file), DATA, "bundled:ethanol@1500:1504", DATA], tmp_path, capsys)
    assert list(values["data"]) == [DATA, "bundled:ethanol@1500:1504", f"{DATA} (2)"], "none is lost"
    small = values["data"]["bundled:ethanol@1500:1504"]["4"]
    assert small["energy_ence"] is None
    assert small["reasons"]["energy_ence"] == "4 values are too few for 10 bins of σ"
    assert "bundled:ethanol@1500:1504: no" in out
    assert {name: each["n_atoms"] for name, each in small["per_species"].items()} == {"H": 24, "C": 8, "O": 4}
    assert small["per_atom"]["force_mae"] > small["force_mae"], "the length of a vector exceeds its components"
    assert small["per_atom"]["energy_mae"] == pytest.approx(small["energy_mae"] / 9)


def test_threshold(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, out = metrics_of([str(file), DATA, "--threshold", "1000"], tmp_path, capsys)
    each = values["data"][DATA]["4"]
    assert each["force_auc"] is None
    assert each["reasons"]["force_auc"].startswith("no error is above 1000")
    assert each["force_outlier_share"] == 0
    assert "no force_auc" in out
    assert (values["threshold"], values["data"][DATA]["4"]["force_threshold"]) == (1000.0, 1000.0)
    low, _ = metrics_of([str(file), DATA, "--threshold", "0.5"], tmp_path, capsys)
    assert 0 < low["data"][DATA]["4"]["force_outlier_share"] < 1


def test_usual_threshold(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, out = metrics_of([str(file), DATA], tmp_path, capsys)
    found = values["data"][DATA]["4"]
    assert values["threshold"] is None
    assert values["threshold_rule"] == "3 x MAE of each data set"
    for kind in ("force", "energy"):
        assert found[f"{kind}_threshold"] == pytest.approx(3 * found[f"{kind}_mae"])
    assert 0 < found["force_outlier_share"] < 0.2
    assert "Outliers (errors above 3 times the MAE, %)" in out
    assert out.index("In meV and meV/Å") < out.index("In kcal/mol")


def test_energies_alone(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables, report and calibration of data without forces."""
    path = unlabelled(tmp_path / "part.xyz", ("energy",), "bundled:ethanol@1000:1030")
    values, out = metrics_of([str(file), str(path), "--report", str(tmp_path / "r.html")], tmp_path, capsys)
    found = values["data"]["part.xyz"]["4"]
    assert found["force_threshold"] is None
    first = next(line for line in out.splitlines() if line.startswith("data "))
    assert first.split() == ["data", "k", "MAE-E", "MAE/atom-E", "RMSE-E", "σ-E", "CRPS-E", "MLL-E"]
    assert "By species" not in out
    assert not any("-F" in line for line in out.splitlines())
    words = (tmp_path / "r.html").read_text().replace("\u00a0", " ")
    assert "There are no force labels; the model is judged by its energies." in words
    assert "cannot be checked" not in words
    assert main(["calibrate", str(file), str(path), "-o", str(tmp_path / "c.posterior"), "--method", "scale"]) == 0
    out = capsys.readouterr().out
    assert "energies: scale, as requested" in out
    assert "forces: unchanged: no labelled frames" in out


def unlabelled(path: Path, what: tuple[str, ...], data: str = "bundled:ethanol@1000:1004") -> Path:
    """Four frames, or others, that keep only the labels `what`."""
    frames = []
    for structure in read(data):
        atoms = structure.to_atoms()
        results = {name: value for name, value in atoms.calc.results.items() if name in what}
        atoms.calc = None
        if "energy" in results:
            atoms.info["REF_energy"] = results["energy"]
        if "forces" in results:
            atoms.arrays["REF_forces"] = results["forces"]
        frames.append(atoms)
    write(path, frames, format="extxyz")
    return path


@pytest.mark.parametrize(("there", "missing"), [("energy", "force"), ("forces", "energy")])
def test_what_is_there_is_evaluated(
    file: Path, there: str, missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = unlabelled(tmp_path / "part.xyz", (there,))
    values, out = metrics_of([str(file), str(path)], tmp_path, capsys)
    each = values["data"]["part.xyz"]["4"]
    assert each[f"{missing}_mae"] is None
    assert each["reasons"][f"{missing}_mae"] == "no labels"
    assert each[f"{there.removesuffix('s')}_mae"] > 0
    assert f"note: part.xyz: no {missing}_mae" in out


TRAINED = "bundled:ethanol@0:20"
"""The frames of the posterior: 16 that it learned from, 4 held back."""


def test_training_frames_are_left_out_unless_wanted(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "the posterior learned from 16 of these frames; the other 4 are used"
    report = tmp_path / "report.html"
    values, out = metrics_of([str(file), TRAINED, "--report", str(report)], tmp_path, capsys)
    assert values["data"][TRAINED]["4"]["n_frames"] == 4
    assert values["data"][TRAINED]["4"]["note"] == note
    assert f"note: {TRAINED}: {note}\n" in out
    assert note in report.read_text()
    values, out = metrics_of([str(file), TRAINED, "--include-training"], tmp_path, capsys)
    assert values["data"][TRAINED]["4"]["n_frames"] == 20
    assert f"note: {TRAINED}: includes 16 frames that the posterior learned from" in out
    values, _ = metrics_of([str(file), DATA], tmp_path, capsys)
    assert "note" not in values["data"][DATA]["4"]


def test_training_frames_alone_are_refused(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = load(file).data["frame_marks"]
    own = [s for s in read(TRAINED) if s.geometry_digest().hex()[:8] in marks]
    write_exact(tmp_path / "own.xyz", own)
    err = bad([str(file), DATA, str(tmp_path / "own.xyz")], capsys)
    assert "own.xyz: these are frames that the posterior learned from" in err
    assert "or add --include-training" in err


def test_the_same_from_python(file: Path) -> None:
    posterior, data = load(file), read(TRAINED)
    with pytest.warns(InputWarning, match="learned from 16 of these frames; the other 4 are used"):
        assert len(evaluate(posterior, data).structures) == 4
    everything = evaluate(posterior, data, include_training=True)
    assert len(everything.structures) == 20
    assert "includes 16 frames that the posterior learned from" in everything.note


def bad(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["evaluate", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_bad_input(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    none = unlabelled(tmp_path / "none.xyz", ())
    assert "none.xyz: has neither energies nor forces" in bad([str(file), str(none)], capsys)
    salt = tmp_path / "salt.xyz"
    salt.write_text("2\nProperties=species:S:1:pos:R:3:forces:R:3 energy=-1\nNa 0 0 0 0 0 0\nCl 0 0 2.4 0 0 0\n")
    assert "salt.xyz, frame 0: species Na, Cl unknown to this model" in bad([str(file), str(salt)], capsys)
    atom = tmp_path / "atom.xyz"
    atom.write_text("1\nProperties=species:S:1:pos:R:3:forces:R:3 energy=-1 config_type=IsolatedAtom\nH 0 0 0 0 0 0\n")
    assert "atom.xyz: holds no frames to evaluate" in bad([str(file), str(atom)], capsys)
    assert "k=9: this posterior has 4 samples" in bad([str(file), DATA, "--k", "1,9"], capsys)
    assert "k=0: this posterior has 4 samples" in bad([str(file), DATA, "--k", "0"], capsys)
    assert "--k two: whole numbers" in bad([str(file), DATA, "--k", "two"], capsys)
    assert "--threshold -1: must be above 0" in bad([str(file), DATA, "--threshold", "-1"], capsys)
    assert "--threshold nan: must be above 0" in bad([str(file), DATA, "--threshold", "nan"], capsys)
    assert "there is no such folder" in bad([str(file), DATA, "--json", str(tmp_path / "no" / "m.json")], capsys)
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    assert "the folder cannot be written to" in bad([str(file), DATA, "--report", str(tmp_path / "r.html")], capsys)
    monkeypatch.undo()
    assert "must end in .json" in bad([str(file), DATA, "--json", "metrics.txt"], capsys)
    assert "required: DATA" in bad([str(file)], capsys)


def test_on_a_terminal(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["evaluate", str(file), "bundled:ethanol@1000:1004"]) == 0
    out, err = capsys.readouterr()
    assert "│" in out
    assert "bundled:ethanol@1000:1004" in err, "a bar of progress"
