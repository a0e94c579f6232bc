"""--engine, which every verb has that computes a network."""

import os

import pytest

from equibayes.cli.device import chosen_device
from equibayes.cli.main import main, parse
from equibayes.engine.select import VARIABLE, wanted


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    """The variable as it was, whatever a test does."""
    monkeypatch.setenv(VARIABLE, "auto")


VERBS = {
    "sample": "sample a.xyz -o a.posterior",
    "predict": "predict a.posterior a.xyz -o b.xyz",
    "evaluate": "evaluate a.posterior a.xyz",
    "md": "md a.posterior a.xyz -o b.xyz --steps 1 --temperature 300",
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_engine_is_that_of_the_process_and_of_those_that_it_starts(verb):
    assert chosen_device(parse([*VERBS[verb].split(), "--device", "cpu", "--engine", "reference"])) == "cpu"
    assert wanted() == "reference"
    assert os.environ[VARIABLE] == "reference"
    chosen_device(parse([*VERBS[verb].split(), "--device", "cpu"]))
    assert wanted() == "reference", "without the option the variable counts"


def test_unknown_engines_are_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main([*VERBS["sample"].split(), "--engine", "numpy"]) == 2
    assert "--engine" in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, "numpy")
    assert main(["sample", "bundled:ethanol@0:8", "-o", "a.posterior", "--network", "tiny", "data.validation=2"]) == 2
    assert list(tmp_path.iterdir()) == [], "before anything is written"
    assert "engine numpy: is unknown; use one of auto, reference, native, triton" in capsys.readouterr().err
