"""The contest of the linearised posterior: its tables, and that it runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from studies.tangent.report import every_method, goals, kept, settings
from studies.tangent.rivals import PERMUTATIONS
from tests.studies.running import ROOT, run_study

RMD17 = ROOT.parent / "shared/data/rmd17/rmd17_ethanol.npz"
NUMBERS = ("mae", "rmse", "energy_mae", "ln_p", "rescaled_ln_p", "auc", "rank", "in_68", "in_95", "prediction_ms")


def written(folder: Path, seed: int, errors: dict[str, float], auc: float | None = 0.8) -> None:
    """A file of one seed; ln p is −MAE/10."""
    about: dict[str, Any] = {"system": "ethanol", "frames": 100, "network": "small", "mass": "matrix", "chains": 4}
    methods = {
        name: {"seconds": 10.0 * (name != "posterior"), "tests": {"test": dict.fromkeys(NUMBERS, auc) | {
            "mae": mae, "energy_mae": mae, "ln_p": -mae / 10, "rescaled_ln_p": -mae / 10, "in_68": 70.0}}}
        for name, mae in errors.items()
    }  # fmt: skip
    (folder / f"ethanol-100-{seed}.json").write_text(json.dumps(about | {"steps": 5, "seed": seed, "methods": methods}))


def test_tables_are_means_over_seeds(tmp_path: Path) -> None:
    methods = {"posterior": 40.0, "refined": 20.0, "last-layer": 30.0, "ensemble-4": 25.0, "ensemble-8": 32.0}
    written(tmp_path, 0, methods)
    written(tmp_path, 1, {name: 2 + mae for name, mae in methods.items()}, auc=None)
    (setting,) = settings(tmp_path)
    assert (setting.title, setting.seeds, setting.best("mae")) == ("ethanol 100, 4 × 5", 2, 26.0)
    line = goals([setting])[-1]
    assert "| 26.0 | 21.0 | -19 % | -2.60 | -2.10 |" in line
    assert line.endswith("| 70 / 70 | 70 | – | – |")
    assert "| 50 % | 50 % | 50 % |" in kept([setting])[-1]
    assert len(every_method(setting)) == 2 + len(methods)


def test_permutations_of_equivalent_atoms() -> None:
    assert {name: len(set(group)) for name, group in PERMUTATIONS.items()} == {
        "ethanol": 6, "malonaldehyde": 4, "aspirin": 6
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not RMD17.exists(), reason="needs rMD17 ethanol")
def test_contest(tmp_path: Path) -> None:
    """All methods; what the file has already is not done again."""
    case = ("ethanol", "100", "0", "-o", "out", "--quick")
    run_study("tangent", *case, "--methods", "posterior,refined,last-layer,ensemble-4,point,llpr", cwd=tmp_path)
    path = tmp_path / "out/ethanol-100-0.json"
    before = json.loads(path.read_text())["methods"]
    run_study("tangent", *case, "--methods", "posterior,gp", cwd=tmp_path)
    after = json.loads(path.read_text())["methods"]
    assert set(after) == {*before, "gp"}
    assert {name: after[name] for name in before} == before
    assert before["refined"]["tests"]["test"]["mae"] < before["posterior"]["tests"]["test"]["mae"]
