"""Label efficiency, one chain or many, and the paper's chain: short runs on a machine with little more than torch."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from equibayes.data import bundled_ethanol
from equibayes.errors import InputError
from equibayes.labelling.pool_labeller import PoolLabeller
from equibayes.learning.curve import rows_of
from equibayes.learning.learn import Learner
from equibayes.learning.settings import learn_config
from equibayes.learning.study import Inputs
from studies.label_efficiency.report import conclude, labels_needed
from studies.label_efficiency.rounds import QUICK, Frames, Run, run
from tests.studies.running import ROOT, run_study


def test_rounds_of_label_efficiency_are_those_of_learn(tmp_path: Path) -> None:
    """Same frames, same steps, same numbers as `equibayes learn`, which keeps files of structures besides."""
    short = replace(QUICK, pool=30, start_labels=4, per_round=4, first=8, warm=4)
    frames = Frames(bundled_ethanol("train")[: short.pool], bundled_ethanol("test")[:5])
    for kind in ("bald", "diversity"):
        Run(short, kind, 1, frames, tmp_path / "work", tmp_path, "cpu").go("abc")
        own = json.loads((tmp_path / "runs" / f"{kind}-1.json").read_text())
        config = short.config(1).to_dict()
        values = {
            "start_labels": 4,
            "per_round": 4,
            "rounds": 2,
            "select": {"kind": kind, "apart": 0.0},  # rounds.py does not compare frames
            "resample": asdict(short.warm_start(initial=0.5, decay="linear")),
            "sample": {name: value for name, value in config.items() if name != "network"},
        }
        values["sample"]["network"] = {"num_features": 4, "num_layers": 1, "radial_mlp_width": 4}
        inputs = Inputs(frames.pool, None, frames.test)
        settings = learn_config("quick", "small", values)
        Learner(settings, inputs, PoolLabeller(frames.pool), tmp_path / f"learn-{kind}", say=lambda _: None).run()
        rows = rows_of(tmp_path / f"learn-{kind}")
        assert [row["labels"] for row in rows] == [row["labels"] for row in own["rounds"]] == [4, 8, 12]
        for key in ("force_mae", "force_rmse", "force_sigma"):
            assert [row[key] for row in rows] == pytest.approx([row["test"][key] for row in own["rounds"]], rel=1e-12)
    assert own["provenance"]["commit"] == "abc"


def test_label_efficiency_goes_on_and_reports_from_its_small_files(tmp_path: Path) -> None:
    short = replace(QUICK, pool=30, start_labels=4, per_round=4, first=6, warm=3, rounds=1)
    frames = Frames(bundled_ethanol("train")[: short.pool], bundled_ethanol("test")[:5])
    run(short, [0], frames, tmp_path / "work", tmp_path / "out", "cpu", None)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out" / "runs").glob("*")}
    assert set(before) == {"bald-0.json", "diversity-0.json", "random-0.json"}
    record = tmp_path / "out" / "runs" / "random-0.json"
    cut = json.loads(record.read_text())
    cut["rounds"].pop()
    record.write_text(json.dumps(cut))
    with pytest.raises(InputError, match="no seed is done"):
        conclude(tmp_path / "out")
    run(short, [0], frames, tmp_path / "work", tmp_path / "out", "cpu", None)
    again = json.loads(record.read_text())["rounds"]
    assert [row["test"] for row in again] == [row["test"] for row in json.loads(before[record.name])["rounds"]]
    shutil.rmtree(tmp_path / "work")  # posteriors stay where they were made
    run_study("label_efficiency", "--report", "--output", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["curves"]["bald"]["labels"] == [4, 8]
    assert (tmp_path / "out" / "curves.png").exists()
    with pytest.raises(InputError, match="other settings"):
        run(replace(short, warm=4), [0], frames, tmp_path / "work", tmp_path / "out", "cpu", None)


def test_labels_needed_are_read_off_straight_lines() -> None:
    labels, errors = np.array([50.0, 100, 150]), np.array([10.0, 6, 4])
    assert labels_needed(labels, errors, 5.0) == pytest.approx(125)
    assert labels_needed(labels, errors, 12.0) == 50
    assert labels_needed(labels, errors, 3.9) is None


@pytest.mark.slow
def test_one_or_many_on_a_bare_machine(tmp_path: Path) -> None:
    words: list[str | Path] = ["--quick", "--folder", tmp_path / "work", "--output", tmp_path / "out"]
    words += ["--commit", "abc", "--case", "many", "one", "temperature-0"]
    run_study("one_or_many", *words, bare=True)
    found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")}
    many, one = found["many"], found["one"]
    assert {name: len(views) for name, views in many["views"].items()} == {"1x4": 2, "2x2": 1, "all": 1}
    assert [views[0]["raw"]["k"] for views in many["views"].values()] == [4, 4, 8]
    assert (one["chains"], list(one["views"]), one["burn_in_steps"]) == (1, ["1x4"], many["burn_in_steps"])
    equal = one["equal"]
    ratio = equal["seconds_a_step_of_many"] / equal["seconds_a_step_of_one"]
    assert equal["steps_ratio"] == pytest.approx(max(1.0, ratio), rel=1e-4)
    assert one["total_steps"] == pytest.approx(equal["steps_ratio"] * many["total_steps"], abs=14), "whole epochs"
    assert many["agreement"]["spread_of_chain_means"] > many["agreement"]["spread_within_chains"] > 0
    assert found["temperature-0"]["config"]["sampler"]["temperature"] == 0
    assert many["provenance"]["commit"] == "abc"
    assert run_study("one_or_many", *words, bare=True).count("already done") == 3
    told = run_study("one_or_many.report", tmp_path / "out")
    assert "3 cases, missing: one-stretched" in told
    text = (tmp_path / "out" / "README.md").read_text()
    assert "one, equal seconds" in text
    assert "![Temperature 1 against colder](temperature.png)" in text
    assert not (tmp_path / "out" / "burn-in.png").exists()
    assert (tmp_path / "out" / "chains.png").exists()


@pytest.mark.slow
def test_paper_chain_is_drawn_from_what_a_run_left(tmp_path: Path) -> None:
    kept = ("metrics.jsonl", "config.yaml", "log.txt")
    for name in kept:
        shutil.copy(ROOT / "results/speed/ethanol-paper-chain" / name, tmp_path / name)
    told = run_study("paper_chain", tmp_path, "--commit", "abc", "--hardware", "a GPU")
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert f"{last['step']:,}".replace(",", " ") in told.splitlines()[-1]
    assert "a GPU, precision mixed, commit abc" in " ".join((tmp_path / "README.md").read_text().split())
    assert (tmp_path / "history.png").exists()
    run_study("paper_chain", tmp_path)
    assert "commit abc" in " ".join((tmp_path / "README.md").read_text().split()), "what was said before is kept"
