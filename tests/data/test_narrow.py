"""The warning about training data that are nearly relaxed: on the terminal, in the file and in the report."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from equibayes.data import Dataset
from equibayes.data.narrow import narrow_range
from equibayes.errors import InputWarning
from equibayes.evaluation.evaluated import evaluate
from equibayes.evaluation.report import write_report
from equibayes.posterior.sample import sample
from tests.runs import ethanol_frames, small_config


def relaxed(factor: float) -> Dataset:
    """Ethanol close to one geometry, with forces as small as the displacements."""
    frames = ethanol_frames()
    origin = frames[0].positions
    close = [
        replace(s, positions=origin + factor * (s.positions - origin), forces=factor * np.asarray(s.forces))
        for s in frames
    ]
    return Dataset(close, "relaxed")


def test_data_with_thermal_forces_pass_without_a_word() -> None:
    assert narrow_range(ethanol_frames()) == ""
    assert narrow_range(relaxed(0.1)) == ""


def test_on_the_terminal_in_the_file_and_in_the_report(tmp_path: Path) -> None:
    data = relaxed(0.01)
    with pytest.warns(InputWarning, match=r"nearly relaxed \(forces: RMS 12, .* 0.9\d\d to 1.1\d\d Å apart\)"):
        posterior = sample(data, small_config({"burn_in": {"steps": 4}, "samples": 2}), device="cpu")
    assert posterior.verdict["warnings"][0].endswith("(equibayes learn --propose md)")
    page = write_report(tmp_path / "report.html", posterior, [evaluate(posterior, ethanol_frames(24)[20:])])
    assert "The training structures are nearly relaxed" in page.read_text()
