"""Stress from labels to σ, end to end: a tiny network learns strained copper with the compiled engine."""

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import read as ase_read

from equibayes.baselines.train import train
from equibayes.cli.main import main
from equibayes.config import merge
from equibayes.data import Dataset
from equibayes.data.extxyz import write_exact
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.select import VARIABLE
from equibayes.errors import InputWarning
from equibayes.evaluation.evaluated import evaluate
from equibayes.evaluation.tables import measure
from equibayes.labelling.pool_labeller import PoolLabeller
from equibayes.learning.learn import Learner
from equibayes.learning.rounds import Round
from equibayes.learning.settings import learn_config
from equibayes.learning.study import Inputs
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.predict import predict
from equibayes.posterior.sample import sample
from equibayes.posterior.seen import marks_of, split_known
from equibayes.posterior.tangent import refine
from equibayes.run.options import Run
from equibayes.run.prepare import prepare
from equibayes.run.progress import describe
from equibayes.simulate.log import read_log
from equibayes.solids.properties import properties
from equibayes.units import GPA
from tests.copper import LEARN, copper, spread_of_stress
from tests.runs import SMALL, small_config

if why_no_compiler():
    pytest.skip(str(why_no_compiler()), allow_module_level=True)

TRAIN, TEST = copper(50, bare=10), copper(20, seed=1)
CONFIG = small_config(LEARN)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "native")
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("copper") / "copper.posterior"
    sample(TRAIN, CONFIG, output=path, device="cpu")
    return path


@pytest.fixture(scope="module")
def posterior(file: Path) -> Posterior:
    return load(file)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frames") / "test.xyz"
    write_exact(path, TEST)
    return path


def test_stress_is_learned(posterior: Posterior) -> None:
    """Its error on unseen cells is a fraction of that of a constant, and σ is of its size."""
    assert posterior.engine.startswith("native-")
    assert posterior.network.stress_head is True
    values = measure(evaluate(posterior, TEST, device="cpu"))
    assert values["n_frames_with_stress"] == 20
    assert values["gpa"]["stress_mae"] < 0.25 * spread_of_stress(TEST)
    assert 0.4 < values["stress_coverage_68"] < 0.95
    assert 0.7 < values["gpa"]["stress_sharpness"] / values["gpa"]["stress_rmse"] < 3
    assert values["stress_auc"] > 0.5


def test_held_back_error_is_recorded_and_shown(posterior: Posterior) -> None:
    last = posterior.history[-1]
    assert np.mean(last["validation_stress_mae"]) < 0.5 * np.mean(last["validation_stress_unlearned"])
    assert describe(last)["stress error"].endswith(" GPa")
    assert not [word for word in posterior.verdict["warnings"] if "stress" in word]


def test_info_says_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(file)]) == 0
    out = capsys.readouterr().out
    assert "stress of single chains: error" in out
    assert " GPa" in out
    assert "(float32); learned stress" in out


def test_evaluate_and_report(file: Path, frames: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(file), str(frames), "--json", str(tmp_path / "m.json"), "--report", str(tmp_path / "r.html")]
    assert main(["evaluate", *words, "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    values = json.loads((tmp_path / "m.json").read_text())
    assert values["units"]["stress"] == "eV/Å³"
    found = values["data"]["test.xyz"]["4"]
    assert f"{found['gpa']['stress_mae']:.3f}" in out
    assert found["gpa"]["stress_mae"] == pytest.approx(found["stress_mae"] / GPA)
    for name in ("rmse", "mll", "auc", "crps", "coverage_50", "coverage_68", "coverage_90", "coverage_95", "spearman"):
        assert found[f"stress_{name}"] is not None
    assert 'id="stress"' in (tmp_path / "r.html").read_text()


def test_calibrate(file: Path, frames: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "calibrated.posterior"
    assert main(["calibrate", str(file), str(frames), "-o", str(target), "--method", "scale", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "stress    scale" in out
    calibration = load(target).calibration
    assert calibration is not None
    found = Calibration.from_dict(calibration).stress
    assert found.choice["frames"] == 20
    before, after = (next(predict(load(path), TEST, device="cpu")) for path in (file, target))
    assert np.abs(after.stress_std - before.stress_std).max() > 0
    capsys.readouterr()
    assert main(["info", str(target)]) == 0
    assert "stress scale (σ ×" in capsys.readouterr().out


def test_predict_writes_all_of_it(file: Path, frames: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.xyz"
    words = [str(file), str(frames), "-o", str(target), "--interval", "0.9", "--members", "--device", "cpu"]
    assert main(["predict", *words]) == 0
    atoms, (expected, *_) = ase_read(target, 0), predict(load(file), TEST, device="cpu")
    for name in ("stress_std", "stress_epistemic", "stress_aleatoric"):
        np.testing.assert_allclose(atoms.info[name], getattr(expected, name), rtol=1e-6)
    np.testing.assert_allclose(atoms.info["stress_interval"], expected.stress_interval(0.9), rtol=1e-6)
    assert atoms.info["pressure_std"] == pytest.approx(expected.pressure_std, rel=1e-6)
    assert atoms.info["stress_ensemble"].shape == (36,)
    np.testing.assert_allclose(atoms.get_stress(voigt=False), expected.stress, atol=1e-7)


def test_constant_pressure(file: Path, frames: Path, tmp_path: Path) -> None:
    """The log of a simulation under pressure has σ of the pressure, of the size of the errors of the stress."""
    words = f"--steps 20 --temperature 300 --ensemble npt --timestep 2 --pressure 1 -o {tmp_path}/t.xyz --device cpu"
    assert main(["md", str(file), f"{frames}@0", *words.split()]) == 0
    log = read_log(tmp_path / "t-md/md.log")
    assert (log["pressure_std"] > 0.02).all()
    assert (log["pressure_std"] < 3).all()


@pytest.mark.parametrize("kind", ["point", "dropout", "ensemble"])
def test_baselines(kind: str) -> None:
    config = small_config(LEARN | {"burn_in": LEARN["burn_in"] | {"steps": 300}})
    found = train(kind, TRAIN, config, run=Run(device="cpu"))
    held = prepare(TRAIN, config).validation
    predictions = list(predict(found, held, device="cpu"))
    assert all(p.stress_aleatoric.all() for p in predictions)
    values = measure(evaluate(found, TEST, device="cpu"))
    assert values["gpa"]["stress_mae"] < 0.7 * spread_of_stress(TEST)
    if kind != "point":
        return
    # one σ, the error of the virial per atom on held-back frames: of six components, √2 times those off the diagonal
    virials = [
        (p.stress - s.stress) * s.volume / len(s)
        for p, s in zip(predictions, held, strict=True)
        if s.stress is not None
    ]
    sigma = predictions[0].stress_aleatoric[0, 0] * held[0].volume / len(held[0])
    assert sigma == pytest.approx(np.sqrt(np.square(virials).sum((1, 2)).mean() / 6), rel=1e-5)


def test_compare(frames: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table of methods has the stress."""
    write_exact(tmp_path / "train.xyz", TRAIN)
    settings = [
        "data.validation=8",
        "burn_in.steps=60",
        "burn_in.batch_size=4",
        "guard.interval=30",
        "--network",
        "tiny",
    ]
    words = [str(tmp_path / "train.xyz"), "--test", str(frames), "-o", str(tmp_path / "all"), *settings]
    assert (
        main(["compare", *words, "--methods", "ensemble,point", "--chains", "2", "--samples", "2", "--device", "cpu"])
        == 0
    )
    out = capsys.readouterr().out
    heading = next(line for line in out.splitlines() if line.startswith("method "))
    assert [word for word in heading.split() if word in ("MAE-S", "MLL-S")] == ["MAE-S", "MLL-S"]


def test_learning_by_stress(tmp_path: Path) -> None:
    """Each round asks for the cells with the largest σ of the stress; the errors of rounds have that of the stress."""
    pool = Dataset([replace(s, source=f"pool {i}") for i, s in enumerate(copper(30, seed=2))], "pool")
    sampling = merge(SMALL, LEARN, {"data": {"validation": 0}, "burn_in": {"steps": 60}, "output": {"validations": 0}})
    select = {"select": {"kind": "stress"}, "sample": sampling, "start_labels": 8, "per_round": 3, "rounds": 1}
    said: list[str] = []
    config, run = learn_config("quick", "tiny", select), Run(device="cpu")
    learner = Learner(config, Inputs(pool, None, TEST), PoolLabeller(pool), tmp_path, run=run, say=said.append)
    assert learner.run() == "1 round is done"
    last = Round(tmp_path, 1)
    chosen = (last.note("choice") or {})["chosen"]
    assert len(chosen) == 3
    assert all(re.match(r"σ of the stress is [\d.]+ GPa, [\d.]+ after labelling", each["reason"]) for each in chosen)
    assert [line for line in said if re.search(r"stress error [\d.]+ GPa, σ [\d.]+ GPa", line)]
    assert load(last.posterior).network.stress_head is True


def test_elastic_constants_are_right_within_their_intervals(posterior: Posterior) -> None:
    """Sampled and refined from 40 strained cells: moduli of copper as EMT has them, by the same procedure."""
    pytest.importorskip("phonopy")
    known, held = split_known(marks_of(posterior), TRAIN)
    refined = refine(posterior, known, held, draws=2)
    truth, found = (
        properties(potential, bulk("Cu"), only=["lattice", "elastic"]).numbers["elastic"]
        for potential in (EMT(), refined)
    )
    for name in ("C11", "C12", "C44", "bulk_modulus"):
        assert float(found[name].mean) == pytest.approx(float(truth[name].mean), rel=0.06), name
        low, high = found[name].interval(0.95)
        assert low < float(truth[name].mean) < high, name


def test_ignored_labels_are_told() -> None:
    config = small_config(LEARN | {"network": {"stress_head": False}})
    with pytest.warns(InputWarning, match=r"copper: 32 stress labels ignored \(network.stress_head=false\)"):
        prepare(TRAIN, config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare(TRAIN, CONFIG)
