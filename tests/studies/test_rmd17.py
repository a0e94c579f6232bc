"""The study on rMD17, on the bundled frames and with few steps: it runs, goes on after a stop, and its tables hold its
numbers."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equibayes.data import read
from equibayes.data.specs import BUNDLED
from equibayes.posterior.file import load
from equibayes.posterior.predict import predict
from equibayes.run.settings import sample_config
from tests.studies.running import ROOT, run_study


def study(folder: Path, *options: str) -> str:
    """What the study prints, without packages that it must not need."""
    words = ["ethanol", "--data", "rmd17_ethanol.npz", "--folder", "work", "--output", "out", "--quick", *options]
    return run_study("rmd17", *words, cwd=folder, bare=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With bundled frames in the files of the archive, one of which stands there twice, and two methods carried out."""
    folder = tmp_path_factory.mktemp("rmd17")
    with np.load(BUNDLED / "ethanol.npz") as source:
        arrays = {name: source[name][980:1060] for name in ("coords", "energies", "forces")}
        for name in arrays:
            arrays[name] = np.concatenate([arrays[name], arrays[name][3:4]])  # frame 80 repeats frame 3
        np.savez(folder / "rmd17_ethanol.npz", nuclear_charges=source["nuclear_charges"], **arrays)
    np.savez(folder / "splits_ethanol.npz", train_01=np.arange(41))
    study(folder, "--methods", "bayes,point", "--keep-compact", "--commit", "abc")
    return folder


def result(folder: Path, method: str, case: str = "ethanol") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / case / f"{method}.json").read_text())
    return found


def test_protocol(folder: Path) -> None:
    bayes, point = result(folder, "bayes"), result(folder, "point")
    # of 81 frames 41 are in train_01, and one of the others repeats one of those
    assert bayes["frames"] == {"learned": 30, "held_back": 10, "test": 39}
    assert bayes["data"] == point["data"], "learned from and tested on the same"
    assert (bayes["commit"], bayes["seed"], bayes["precision"]) == ("abc", 0, "mixed")
    assert bayes["networks"] == bayes["members"] == 8, "one sample of each chain"
    assert list(bayes["raw"]) == ["1", "2", "4", "8"]
    assert list(point["raw"]) == list(point["recalibrated"]) == ["1"]
    assert bayes["history"][-1]["step"] == bayes["steps"]
    # a network of a rival gets the steps of one chain, up to a whole epoch
    assert 0 <= point["steps"] - bayes["steps"] < 8


def test_curves_belong_to_the_metrics(folder: Path) -> None:
    found = result(folder, "bayes")
    curves, raw, fixed = found["curves"], found["raw"]["8"], found["recalibrated"]["8"]
    for name, key in (("roc", "force_auc"), ("roc_relative", "force_auc_relative")):
        curve = curves[name]
        assert np.trapezoid(curve["found"], curve["flagged"]) == pytest.approx(raw[key], abs=0.02)
    assert curves["calibration"]["raw"][67] == pytest.approx(raw["force_coverage_68"], abs=1e-6)
    assert curves["calibration"]["recalibrated"][67] == pytest.approx(fixed["force_coverage_68"], abs=1e-6)
    for kind in ("observed", "predicted"):
        density = curves["density"]["raw"]
        assert 0.9 < density["width"] * sum(density[kind]) <= 1.001


def test_half_precision(folder: Path) -> None:
    small = load(folder / "out" / "ethanol" / "ethanol.posterior")
    effect = result(folder, "half-precision")
    assert (len(small), effect["stored"]["members"], effect["members"]) == (2, 2, 8)
    assert sorted(small.chain.tolist()) == [0, 7], "from different chains"
    assert small.calibration is not None
    assert 0 < effect["force_change_rms"] < 1e-3
    assert effect["stored"]["force_mae"] > 0


def test_a_stopped_study_goes_on(folder: Path) -> None:
    words = study(folder, "--methods", "single,bayes", "--seconds", "0", "--train", "20")
    assert "ethanol-20 single: stopped at step 10" in words
    assert "continues with single" in words
    assert not (folder / "out" / "ethanol-20" / "single.json").exists()
    words = study(folder, "--methods", "single", "--train", "20")
    assert result(folder, "single", "ethanol-20")["frames"]["learned"] == 20
    assert "ethanol-20 single: force error" in words


def test_a_finished_posterior(folder: Path) -> None:
    study(folder, "--paper-chain", "work/ethanol/point.posterior")
    words = study(folder, "--paper-chain", "work/ethanol/point.posterior", "--keep-compact")
    assert "done before" in words
    assert result(folder, "half-precision")["members"] == 1
    ours, theirs = result(folder, "point"), result(folder, "paper-chain")
    assert theirs["steps"] == ours["steps"]
    assert theirs["raw"] == ours["raw"]
    assert theirs["recalibrated"] == ours["recalibrated"]


def test_all_molecules_of_a_folder_and_their_tables(folder: Path) -> None:
    """With a preset for CPUs: eight chains of one sample, and as many steps for a rival."""
    options = "--preset", "quick", "--methods", "bayes,point", "--folder", "cpu-work", "--output", "cpu", "--quick"
    run_study("rmd17", "all", "--data", ".", *options, cwd=folder)
    bayes, point = (json.loads((folder / "cpu" / "ethanol" / f"{m}.json").read_text()) for m in ("bayes", "point"))
    assert (bayes["networks"], bayes["members"], bayes["steps"]) == (8, 8, point["steps"])
    assert bayes["config"]["burn_in"]["initial"] == sample_config("quick").burn_in.initial
    page = (folder / "cpu" / "README.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| ethanol | posterior, 8 chains |"))
    assert f"{1e3 * bayes['raw']['8']['force_mae']:.2f}" in row
    assert "Few data" not in page
    with pytest.raises(AssertionError, match=r"has no file rmd17_MOLECULE.npz"):
        run_study("rmd17", "all", "--data", "cpu", *options, cwd=folder)


def test_tables_of_what_is_there(folder: Path) -> None:
    run_study("rmd17.tables", "out", cwd=folder)
    page = (folder / "out" / "README.md").read_text()
    bayes, point = result(folder, "bayes")["raw"]["8"], result(folder, "point")["raw"]["1"]
    for method, values in (("posterior, 8 chains", bayes), ("point NequIP", point)):
        rows = [line for line in page.splitlines() if line.startswith(f"| ethanol | {method} |")]
        assert f"{1e3 * values['force_mae']:.2f}" in rows[0]
        assert f"{values['kcal_mol']['force_nece']:.3f}" in rows[2]
    assert "| ethanol | deep ensemble | missing |" in page
    assert "malonaldehyde (all methods)" in page
    shown = [line.split("](")[1].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert "roc.png" in shown
    assert all((folder / "out" / name).stat().st_size > 1000 for name in shown)


def test_the_same_page_without_the_curves(folder: Path) -> None:
    shutil.copytree(folder / "out", folder / "small")
    run_study("rmd17.tables", "small", "--small", cwd=folder)
    page = (folder / "small" / "README.md").read_text()
    assert "curves" not in json.loads((folder / "small" / "ethanol" / "bayes.json").read_text())
    run_study("rmd17.tables", "small", cwd=folder)
    assert (folder / "small" / "README.md").read_text() == page
    assert "![" in page


def test_the_posterior_that_comes_along() -> None:
    """Two samples of the paper's chain on ethanol, in half precision."""
    posterior = load(ROOT / "results" / "rmd17" / "ethanol" / "ethanol.posterior")
    assert posterior.calibration is not None
    frames = list(read("bundled:ethanol@test"))[:8]
    found = list(predict(posterior, frames))
    error = np.concatenate([p.forces - frame.forces for p, frame in zip(found, frames)])
    sigma = np.concatenate([p.forces_std for p in found])
    assert np.abs(error).mean() < 4e-3
    assert 0.6 < np.abs(error / sigma).mean() < 1.1, "sqrt(2/pi) = 0.8 for errors that are normal with this sigma"
