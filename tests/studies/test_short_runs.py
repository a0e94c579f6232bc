"""Studies that are too long for every change still run; their conclusions are in results/."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.studies.running import ROOT, run_study

MALONALDEHYDE = ROOT.parent / "shared/data/rmd17/rmd17_malonaldehyde.npz"


def reported(name: str, folder: Path, *options: str) -> dict[str, Any]:
    """The report of a short run."""
    run_study(name, "--output", "out", *options, cwd=folder)
    report: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())
    return report


@pytest.mark.slow
def test_convergence_study(tmp_path: Path) -> None:
    report = reported("convergence", tmp_path, "--quick", "--work", "work")
    assert 0.3 < report["acceptance"] <= 1
    assert set(report["comparison"]) >= {"SGHMC", "temperature 0.5", "null: two halves of HMC"}
    assert report["kinetic_temperature"]["temperature 0.5"] == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_on_the_fly(tmp_path: Path) -> None:
    report = reported("on_the_fly", tmp_path, "--quick", "--work", "work")
    assert (report["steps_done"], report["ended"], report["checked"]["frames"]) == (30, None, 5)
    assert report["asked"] == len(report["asked_at"]) > 0
    again = reported("on_the_fly", tmp_path, "--quick", "--work", "work")
    assert again["checked"] == report["checked"], "nothing is done again"


@pytest.mark.slow
def test_proton_transfer(tmp_path: Path) -> None:
    report = reported("proton_transfer", tmp_path, "--quick")
    assert report["engine_band"]["barrier"] == pytest.approx(0.16, abs=0.02), "GFN2-xTB, eV"
    assert [row["labels"] for row in report["rounds"]] == [12, 17]


@pytest.mark.slow
@pytest.mark.skipif(not MALONALDEHYDE.exists(), reason="needs rMD17 malonaldehyde")
def test_label_efficiency(tmp_path: Path) -> None:
    report = reported("label_efficiency", tmp_path, "--quick", "--work", "work", "--data", str(MALONALDEHYDE))
    assert report["seeds_done"] == [0, 1]
    assert report["curves"]["bald"]["labels"] == report["curves"]["random"]["labels"] == [8, 16, 24]
    assert (tmp_path / "out" / "curves.png").exists()


@pytest.mark.slow
def test_energies_of_large_structures(tmp_path: Path) -> None:
    report = reported("energy_shift", tmp_path, "--steps", "50", "--every", "25")
    assert [row["step"] for row in report["with"]] == [row["step"] for row in report["without"]]
    assert report["with"][0]["energy_sigma_eV"] > 0


def test_burn_ins_are_compared(tmp_path: Path) -> None:
    report = reported("fast_burn_in", tmp_path, "--steps", "30", "--ways", "cold half")
    assert set(report["summary"]) == {"no option", "cold half"}
    assert report["summary"]["no option"]["difference_to_no_option"] == 0
    assert {"commit", "hardware", "versions"} <= report["provenance"].keys()
    assert (tmp_path / "out" / "curves.png").exists()
