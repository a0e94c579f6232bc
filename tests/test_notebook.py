"""What notebooks show; docs/notebooks are executed in a real kernel by tests/test_docs.py."""

import re
from pathlib import Path

import numpy as np

from equibayes.data import read
from equibayes.notebook import html_table, in_notebook
from equibayes.posterior.file import load
from equibayes.run import Run
from equibayes.run.notebook_display import NotebookDisplay
from equibayes.run.progress import Silent, default_display
from tests.samples import salt, water
from tests.simulate.posteriors import ETHANOL, random_posterior


def words(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


def test_a_table_keeps_what_is_no_markup() -> None:
    table = html_table([("a < b", "x & y"), ("", "more")], "T")
    assert "<th" in table
    assert "a &lt; b" in table
    assert "x &amp; y" in table
    assert table.count("<tr>") == 2


def test_data_and_posterior_show_what_info_prints() -> None:
    assert "bundled:ethanol" in words(read("bundled:ethanol@0:5")._repr_html_())
    shown = words(load(ETHANOL)._repr_html_())
    for text in ("NequIP with 2 layers", "on held-back frames", "R-hat", "samples", "calibration"):
        assert text in shown
    assert "stored as" not in shown, "there is no file"


def test_a_prediction_shows_energy_and_the_least_certain_atom() -> None:
    prediction = random_posterior().predict(water())
    sigma = np.sqrt(np.square(prediction.forces_std).mean(1))
    for shown in (words(prediction._repr_html_()), repr(prediction)):
        assert f"{prediction.energy:.4f} ± {prediction.energy_std:.4f} eV" in shown
        assert f"{1e3 * sigma.max():.1f} at most, meV/Å, atom {sigma.argmax()}" in shown
        assert "stress" not in shown
    assert "GPa" in repr(random_posterior().predict(salt()))


def test_a_run_shows_its_state(tmp_path: Path) -> None:
    run = Run(output=tmp_path / "a.posterior", device="cpu")
    assert "not begun" in words(run._repr_html_())
    random_posterior().save(tmp_path / "a.posterior")
    assert "finished" in words(run._repr_html_())


def test_progress_outside_and_inside_of_notebooks() -> None:
    assert not in_notebook()
    assert isinstance(default_display(), Silent)
    display = NotebookDisplay("sampling", lambda record: {"force error": f"{record['error']} meV/Å"})
    display.clock.total, display.step, display.entries = 200, 50, {"force error": "12 meV/Å"}
    assert '<progress value="50" max="200">' in display.html()
    assert "12 meV/Å" in display.html()
    assert "left" in display.html()
