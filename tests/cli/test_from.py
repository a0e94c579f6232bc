"""`--from`: a pretrained network as prior, described, and used as it is."""

import json

import numpy as np
import pytest

from equibayes.cli.main import main
from equibayes.data import read
from equibayes.posterior.file import load

pytest.importorskip(
    "sevenn", reason="the sevenn package is not installed; it brings the checkpoints (pip install sevenn)"
)


class Done:
    def __init__(self, out, err):
        self.stdout, self.stderr = out, err


@pytest.fixture
def equibayes(capsys):
    """The program with some words; what it printed."""

    def run(*words, code=0):
        assert main([str(word) for word in words]) == code
        return Done(*capsys.readouterr())

    return run


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The compiled engine is tested elsewhere; a network of this size compiles for half a minute."""
    monkeypatch.setenv("EQUIBAYES_ENGINE", "reference")


def test_zero_shot_error_is_told_before_sampling_begins(equibayes, tmp_path):
    out = tmp_path / "mine.posterior"
    words = [
        "burn_in.steps=2",
        "burn_in.batch_size=1",
        "cycles.length=2",
        "tangent=off",
        "--chains",
        "1",
        "--samples",
        "1",
    ]
    done = equibayes("sample", "bundled:ethanol@0:3", "-o", out, "--from", "7net-0", *words)
    lines = done.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("7net-0: SevenNet (MDIL-SNU)"))
    assert "MIT licence" in lines[first]
    assert lines[first + 1].startswith("zero-shot error on 3 training frames: forces 2")
    assert lines[first + 2].startswith("prior: each array of weights varies by 0.")
    assert lines[first + 2].endswith("of its RMS")
    assert first < next(i for i, line in enumerate(lines) if "written to" in line)
    posterior = load(out)
    assert posterior.network.type_names == ["H", "C", "O"]
    assert posterior.data["zero_shot"]["center"] == "7net-0"
    limits = ["--labels", "9", "--directions", "64", "--draws", "1"]
    done = equibayes("refine", out, "bundled:ethanol@0:3", "-o", tmp_path / "refined.posterior", *limits)
    assert "64 random directions of" in done.stdout
    assert load(tmp_path / "refined.posterior").tangent.abs().max() > 0
    assert 0.01 < posterior.config["prior"]["width"] < 1
    about = equibayes("info", out).stdout
    assert "around 7net-0, width 0." in about


def test_info(equibayes):
    text = equibayes("info", "7net-0").stdout
    assert "MIT licence" in text
    assert "834312 weights" in text
    found = json.loads(equibayes("info", "7net-l3i5", "--json").stdout)
    assert len(found["network"]["type_names"]) == 89
    assert found["network"]["num_features"] == [128, 64, 32, 32]
    wrong = equibayes("info", "7net-mf-0", code=2)
    assert "7net-mf-0: choose one of its fidelities R2SCAN, PBE, for instance 7net-mf-0:R2SCAN" in wrong.stderr


def test_predictions_claim_no_sigma(equibayes, tmp_path):
    out = tmp_path / "zero.xyz"
    done = equibayes("predict", "--from", "7net-0", "bundled:ethanol@0:2", "-o", out)
    assert "2 frames written" in done.stdout
    assert "MIT licence" in done.stdout
    text = out.read_text()
    assert "std" not in text
    assert "sigma" not in text
    found, truth = read(out, energy_key="energy", forces_key="forces"), read("bundled:ethanol@0:2")
    error = np.abs(found[0].forces - truth[0].forces).mean()
    assert 0.1 < error < 0.5
    wrong = equibayes(
        "predict", "--from", "7net-0", "bundled:ethanol@0:2", "-o", out, "--k", "2", "--overwrite", code=2
    )
    assert "one set of weights has no σ; leave k out" in wrong.stderr


def test_what_cannot_be(equibayes, tmp_path):
    out = tmp_path / "mine.posterior"
    wrong = equibayes("sample", "bundled:ethanol@0:3", "-o", out, "--from", "7net-9", code=2)
    assert "7net-9: no such file, and not one of the known models 7net-0" in wrong.stderr
    wrong = equibayes("sample", "bundled:ethanol@0:3", "-o", out, "--from", "7net-0", "--network", "small", code=2)
    assert "--network small: with --from the network is that of 7net-0" in wrong.stderr
