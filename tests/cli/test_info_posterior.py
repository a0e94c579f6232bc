"""`equibayes info FILE.posterior`: a chemist reads it, a program parses it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from equibayes.cli.main import main
from equibayes.posterior.file import VERSION, Posterior, load
from equibayes.posterior.sample import sample
from equibayes.posterior.summary import last_validation
from tests.runs import ethanol_frames, small_config


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("info") / "ethanol.posterior"
    config = small_config({"prior": {"group_widths": {"readout": 0.5}}, "output": {"half_precision": True}})
    sample(ethanol_frames(), config, output=path, device="cpu")
    return path


def explained(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["info", str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def changed(file: Path, **changes: object) -> Path:
    """The same file with another verdict, history, …"""
    path = file.with_name("changed.posterior")
    replace(load(file), **changes).save(path)  # type: ignore[arg-type]
    return path


def test_in_words(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = explained(file, capsys).splitlines()
    words = {line.split()[0]: line for line in lines}
    assert "ethanol.posterior" in words["posterior"]
    assert f"kB, format {VERSION}, written by equibayes" in words["posterior"]
    assert "bundled:ethanol@0:20: 16 frames with 144 atoms to learn from, 4 held back" in words["data"]
    assert "fingerprint" in lines[2]
    assert "species H, C, O" in lines[2]
    assert "2 layers, l ≤ 1, both parities, 4 features, cutoff 4 Å: 1866 weights (float32)" in words["network"]
    assert "2, seed 0; 64 steps: burn-in 40 (batch 4, mass frozen at 36), then 1 × 24 (rise_and_fall" in words["chains"]
    assert (
        "SGHMC (baoa, diagonal mass) at temperature 1; prior normal around 0, width 1, readout 0.5" in words["sampler"]
    )
    assert "4 from 2 chains, taken between steps 40 and 64, stored as float16" in words["samples"]
    assert "meV/Å on held-back frames" in words["force"]
    assert "R-hat undefined (3 draws per chain are too few" in words["convergence"]
    assert "of the momenta (1 is right); minibatches add at most" in words["temperature"]
    assert "reference lstsq: H -" in words["energy"]
    assert words["units"].endswith("energy eV, length Å, force eV/Å, stress eV/Å³")
    assert "none: σ as predicted by the model" in words["calibration"]


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(file), "--json"]) == 0

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    values = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert values["format"] == "equibayes-posterior"
    assert values["samples"] == 4
    assert values["parameters"] == 1866
    assert values["chain_of_sample"] == [0, 1, 0, 1]
    assert values["step_of_sample"] == [39, 39, 63, 63]
    assert values["stored_as"] == "float16"
    assert values["size_bytes"] == file.stat().st_size
    assert values["species"] == ["H", "C", "O"]
    assert values["config"]["burn_in"]["steps"] == 40
    assert len(values["data"]["fingerprint"]) == 64
    assert values["last_validation"]["step"] == 64
    assert len(values["last_validation"]["validation_force_mae"]) == 2


def test_errors_are_those_of_the_last_validation_in_mev(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The smallest and the largest of the chains, and the mean over chains."""
    last = last_validation(load(file))
    assert last is not None
    low, high = (f"{1000 * each(last['validation_force_mae']):.1f}" for each in (min, max))
    out = explained(file, capsys)
    assert f"force error  {1000 * last['validation_force_mae_of_mean']:.1f} meV/Å on held-back frames" in out
    assert f"single chains {low} to {high} meV/Å; their own σ" in out
    low, high = (f"{1000 * each(last['validation_energy_mae']):.1f}" for each in (min, max))
    assert f"energies of single chains: error {low} to {high} meV\n" in out


def test_verdicts_in_words(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdict = load(file).verdict
    good = {
        **verdict,
        "draws_per_chain": 40,
        "r_hat_forces": 1.02,
        "ess_forces": 123.4,
        "warnings": [],
        "events": ["chain 1 was rolled back"],
    }
    out = explained(changed(file, verdict=good), capsys)
    assert "R-hat of predicted forces 1.02 (1 is agreement; here the chains agree), effective sample size 123" in out
    assert "guard        acted 1 time, first: chain 1 was rolled back" in out
    assert "note" not in out
    out = explained(changed(file, verdict={**good, "r_hat_forces": 2.5}), capsys)
    assert "2.50 (1 is agreement; here the chains stay apart)" in out
    why = "8 draws per chain are too few for R-hat and ESS: at least 20 are needed"
    few = {**good, "r_hat_forces": None, "draws_per_chain": 8, "convergence_undefined_because": why}
    out = explained(changed(file, verdict=few), capsys)
    assert f"convergence  R-hat undefined ({why})\n" in out


def test_whether_the_chains_descend(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too few draws here; a verdict of an earlier version says nothing."""
    out = explained(file, capsys)
    assert "still descending cannot be told: 2 of at least 3 draws per chain; raise samples" in out
    verdict = {name: value for name, value in load(file).verdict.items() if name != "stationarity"}
    out = explained(changed(file, verdict=verdict), capsys)
    assert "cannot be told: u at the ends of cycles was not recorded by the version that sampled it" in out
    measured = {
        "potential_drift": -630.0,
        "potential_drift_error": 9.0,
        "potential_scatter": 148.0,
        "moving": ["potential"],
    }
    moves = {**verdict, "stationarity": measured, "warnings": ["more cycles would tell", "lower cycles.peak"]}
    out = explained(changed(file, verdict=moves), capsys)
    assert out.endswith("note         more cycles would tell\n             lower cycles.peak\n")
    assert "u falls by 630 nats per cycle, 4.3 times its equilibrium scatter: the chains are still descending" in out


def test_a_senseless_calibration(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that makes sense is shown in test_calibrate.py."""
    text = explained(changed(file, calibration={"factor": 1.2}), capsys)
    assert "the calibration in this posterior file makes no sense" in text
    assert "network      NequIP" in text, "the rest is explained"


def test_one_that_knows_little_of_itself(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Made by a program, without a run; or with settings of another version."""
    out = explained(changed(file, config={}, data={}, history=[], verdict={}), capsys)
    assert "data         unknown" in out
    assert "not known: no frames were held back" in out
    out = explained(changed(file, config={"a setting of tomorrow": 3}), capsys)
    assert "chains       " not in out


def test_recognised_by_content(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = file.with_name("model.bin")
    other.write_bytes(file.read_bytes())
    assert "1866 weights" in explained(other, capsys)


def test_table_on_a_terminal(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "│" in explained(file, capsys)


def test_damaged(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file.with_name("damaged.posterior")
    path.write_bytes(file.read_bytes()[:-1])
    assert main(["info", str(path)]) == 2
    err = capsys.readouterr().err
    assert "damaged.posterior: not a posterior file, or a damaged one" in err
    assert err.count("\n") == 1


def test_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(tmp_path / "none.posterior")]) == 2
    assert "none.posterior: no such file; name a posterior file" in capsys.readouterr().err


def test_one_chain_says_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first: Posterior = load(file).subset(1)
    assert "1 from 1 chain: its uncertainty is that of one solution, taken after step 40" in explained(
        changed(file, samples=first.samples, chain=first.chain, step=first.step), capsys
    )
