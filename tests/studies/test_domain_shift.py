"""The studies of domain shift run from data to tables; what they conclude is in results/domain-shift."""

import json
from pathlib import Path

import numpy as np
import pytest

from equibayes.data.dataset import Dataset
from equibayes.evaluation.evaluated import Evaluated
from studies.domain_shift import cases, measures
from tests.samples import water
from tests.studies.running import ROOT, run_study

STUDY = ROOT / "studies/domain_shift"
WORDS = ("3bpa", "--quick", "--device", "cpu", "--folder", "work", "--output", "out", "--methods", "bayes", "dropout")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("study")
    run_study("domain_shift", *WORDS, cwd=place)
    return place


def test_a_study_writes_its_numbers_once(folder: Path) -> None:
    found = json.loads((folder / "out/3bpa/bayes.json").read_text())
    kinds = {"300 K": "inside", "300 K, own dynamics": "control", "600 K": "outside", "1200 K": "outside"}
    assert {name: each["kind"] for name, each in found["sets"].items()} == kinds
    assert set(found["detection"]["raw"]) == set(kinds) - {"300 K"}
    values = found["sets"]["1200 K"]["raw"]
    assert list(values) == ["1", "2", "4"]
    total, *parts = (values["4"][f"rms_{part}"] for part in ("sigma", "epistemic", "aleatoric"))
    assert total**2 == pytest.approx(sum(value**2 for value in parts))
    assert values["1"]["rms_epistemic"] == 0 < values["4"]["rms_epistemic"]
    assert run_study("domain_shift", *WORDS, cwd=folder).count("already done") == 2


def test_tables_and_figures_say_what_is_missing(folder: Path) -> None:
    (folder / "out/notes.md").write_text("A word in front.\n")
    run_study("domain_shift.tables", "out", cwd=folder)
    text = (folder / "out/README.md").read_text()
    assert "A word in front." in text
    assert "**Missing:** ensemble." in text
    assert "**Not run:** PEDOT" in text
    shown = [word.partition(")")[0] for word in text.split("](")[1:]]
    assert len(shown) == 4
    assert all((folder / "out" / name).stat().st_size > 4_000 for name in shown)


def test_training_validation_and_test_frames_are_disjoint() -> None:
    case = cases.bpa(STUDY / "data", 0)
    sets = [case.train, case.validation, *(frames for _, frames in case.tests.values())]
    assert [len(frames) for frames in sets] == [470, 30, 500, 250, 250, 250]
    assert len({s.geometry_digest() for frames in sets for s in frames}) == sum(map(len, sets))


def made_up(sigma: float, error: float, molecules: int = 40) -> Evaluated:
    """Water molecules with random errors of that size and nearly the same σ everywhere."""
    generator = np.random.default_rng(0)
    frames = Dataset([water(seed) for seed in range(molecules)])
    atoms, zero = 3 * molecules, np.zeros(molecules)
    spread = sigma * np.exp(0.01 * generator.normal(size=(atoms, 3)))
    forces = {"force_true": np.zeros((atoms, 3)), "force_mean": error * generator.normal(size=(atoms, 3))}
    half = spread / np.sqrt(2)
    return Evaluated(
        "made up", 8, frames.structures, zero, zero, zero + 1, zero, zero + 1, **forces, force_sigma=spread,
        force_epistemic=half, force_aleatoric=half, number=np.tile([8, 1, 1], molecules),
        frame=np.repeat(np.arange(molecules), 3),
    )  # fmt: skip


def test_frames_from_elsewhere_are_noticed_by_their_sigma() -> None:
    inside, shifted = made_up(0.1, 0.1), made_up(0.2, 0.2)
    found = measures.detection([inside], {"same": inside, "shifted": shifted})
    assert found["same"] == {name: pytest.approx(0.5) for name in measures.FRAME_SCORES}
    assert found["shifted"] == dict.fromkeys(measures.FRAME_SCORES, 1.0)


def test_measures_of_known_errors() -> None:
    result = made_up(0.1, 0.1)
    values = measures.measured(result, 3 * measures.inside_error([result]))
    assert values["rms_sigma"] == pytest.approx(0.1, rel=0.01)
    assert values["force_coverage_68"] == pytest.approx(0.68, abs=0.08)
    assert values["threshold_relative"] == pytest.approx(3 * values["force_mae"])
    assert 0 < values["force_outlier_share_relative"] < 0.1
    assert values["energy_mae_up_to_a_constant"] is None, "there are no energies"


def test_pedot_keeps_every_tenth_test_frame() -> None:
    """Disjoint from the training frames, and as many as the README says."""
    case = cases.pedot(ROOT / "studies/pedot/data", 0)
    assert {name: len(frames) for name, (_, frames) in case.tests.items()} == {
        "length 8": 40,
        "length 12": 40,
        "length 16": 200,
    }
    assert (len(case.train), len(case.validation)) == (100, 30)
    assert case.settings["data"] == {"energy_reference": "zero"}, "the ground state, as in the paper"
    sets = [case.train, case.validation, *(frames for _, frames in case.tests.values())]
    assert len({s.geometry_digest() for frames in sets for s in frames}) == sum(map(len, sets))
