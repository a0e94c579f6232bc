"""Studies that are too long for every change still run; what they conclude is in results/."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
MALONALDEHYDE = EXAMPLES.parents[1] / "shared/data/rmd17/rmd17_malonaldehyde.npz"


@pytest.mark.slow
def test_convergence_study(tmp_path: Path) -> None:
    words = [sys.executable, str(EXAMPLES / "convergence_study.py"), "--quick", "--work", "work", "--output", "out"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert 0.3 < report["acceptance"] <= 1
    assert set(report["comparison"]) >= {"SGHMC", "temperature 0.5", "null: two halves of HMC"}
    assert report["kinetic_temperature"]["temperature 0.5"] == pytest.approx(0.5, abs=0.1)


def quick(name: str, folder: Path, *options: str) -> dict[str, Any]:
    """The report of a short run."""
    words = [sys.executable, str(EXAMPLES / name), "--quick", "--output", "out", *options]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())
    return report


@pytest.mark.slow
def test_on_the_fly(tmp_path: Path) -> None:
    report = quick("on_the_fly.py", tmp_path, "--work", "work")
    assert (report["steps_done"], report["ended"], report["checked"]["frames"]) == (30, None, 5)
    assert report["asked"] == len(report["asked_at"]) > 0
    assert quick("on_the_fly.py", tmp_path, "--work", "work")["checked"] == report["checked"], "nothing is done again"


@pytest.mark.slow
def test_proton_transfer(tmp_path: Path) -> None:
    report = quick("proton_transfer.py", tmp_path)
    assert report["engine_band"]["barrier"] == pytest.approx(0.16, abs=0.02), "GFN2-xTB, eV"
    assert [row["labels"] for row in report["rounds"]] == [12, 17]


@pytest.mark.slow
@pytest.mark.skipif(not MALONALDEHYDE.exists(), reason="needs rMD17 malonaldehyde")
def test_label_efficiency(tmp_path: Path) -> None:
    report = quick("label_efficiency.py", tmp_path, "--work", "work", "--data", str(MALONALDEHYDE))
    assert report["seeds_done"] == [0, 1]
    assert report["curves"]["bald"]["labels"] == report["curves"]["random"]["labels"] == [8, 16, 24]
    assert (tmp_path / "out" / "curves.png").exists()


@pytest.mark.slow
def test_energies_of_large_structures(tmp_path: Path) -> None:
    words = [sys.executable, str(EXAMPLES / "energy_shift.py"), "--steps", "50", "--every", "25", "--output", "out"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [row["step"] for row in report["with"]] == [row["step"] for row in report["without"]]
    assert report["with"][0]["energy_sigma_eV"] > 0
