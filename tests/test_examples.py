"""Studies that are too long for every change still run; what they conclude is in results/."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_convergence_study(tmp_path: Path) -> None:
    words = [sys.executable, str(EXAMPLES / "convergence_study.py"), "--quick", "--work", "work", "--output", "out"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert 0.3 < report["acceptance"] <= 1
    assert set(report["comparison"]) >= {"SGHMC", "temperature 0.5", "null: two halves of HMC"}
    assert report["kinetic_temperature"]["temperature 0.5"] == pytest.approx(0.5, abs=0.1)
