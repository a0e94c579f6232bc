"""`equibayes learn` as a program: one line for a mistake, and a run that is killed goes on where it was."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from equibayes.cli.learn import study_config
from equibayes.cli.main import main, parse
from equibayes.learning.settings import learn_config
from tests.cli import program

# two rounds after the first; a checkpoint every fourth step
LINE = (
    "learn bundled:ethanol@0:16 -o study --test bundled:ethanol@30:34 --network tiny --chains 2 --samples 2 --threads 1 "
    "--start-labels 5 --per-round 3 --rounds 2 sample.burn_in.steps=24 sample.burn_in.batch_size=4 resample.burn_in=0.5 "
    "sample.guard.interval=4 sample.output.checkpoint_seconds=0"
)
RUN = LINE.split()
FILES = ("chosen.xyz", "choice.json", "data.xyz", "round.posterior", "measured.json")


def results(folder: Path) -> dict[str, bytes]:
    paths = [folder / "study" / f"round-00{r}" / name for r in range(3) for name in FILES]
    paths += [folder / "study/round-001/survey.json", folder / "study/learning.csv", folder / "study/learning.svg"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def newest(folder: Path) -> int:
    """How many files there are, as a measure of how far it came."""
    return sum(1 for path in folder.glob("study/round-*/**/*") if not path.name.startswith("."))


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """kill -9 five times within one study, on a slow disk so that most kills hit a write; then the same files, byte
    for byte."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    status, out, err = program.run(RUN, whole)
    assert (status, err) == (0, ""), out
    assert "ended: 2 rounds are done" in out
    assert re.search("round +labels +MAE-F", out)
    rng, seen, rounds = random.Random(1), -1, set()
    for _ in range(5):
        program.killed(RUN, broken, lambda: newest(broken), seen, rng.uniform(0.0, 0.6), slow_disk=0.03)
        seen = newest(broken)
        rounds.add(len(list(broken.glob("study/round-*"))))
    assert len(rounds) > 1, "kills in several rounds"
    status, out, err = program.run([*RUN, "--resume"], broken)
    assert (status, err) == (0, ""), out
    assert results(broken) == results(whole)
    assert not list(broken.glob("study/**/.*")), "nothing half written stays behind"


def test_a_real_engine_and_a_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything from a file; ASE's EMT labels what dynamics proposes."""
    monkeypatch.chdir(tmp_path)
    values = {
        "pool": ["bundled:ethanol@0:2"],
        "output": "study",
        "propose": "md",
        "labeller": "emt",
        "start_labels": 5,
        "rounds": 1,
        "per_round": 2,
        "md": {"starts": 1, "steps": 4, "every": 1, "temperature": 50},
        "sample": {
            "chains": 1,
            "samples": 1,
            "burn_in": {"steps": 10, "batch_size": 4},
        },
    }
    Path("study.yaml").write_text(yaml.safe_dump(values))
    assert main(["learn", "study.yaml", "--network", "tiny", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "7" in out.splitlines()[-3].split(), "5 + 2 labels"
    assert "trajectory 0: " in out
    assert Path("study/round-001/md/trajectory-00.xyz").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no folder for the rounds: name one with -o"),
        ("-o x", "no structures to select from: name a file with them"),
        (
            "bundled:ethanol@0:9 -o x --select bold",
            "select.kind=bold: must be one of sigma, bald, stress, diversity, novelty, random",
        ),
        ("bundled:ethanol@0:9 -o x --per-round 0", "per_round=0: must be at least 1"),
        ("bundled:ethanol@0:9 -o x --propose md", "propose=md: new structures have no label in a pool"),
        ("bundled:ethanol@0:9 -o x --labeller gfn2xtb", "gfn2xtb: no such engine; did you mean 'gfn2-xtb'?"),
        ("bundled:ethanol@0:9 -o x --trust-lo 3x", "select.trust_lo=3x: a multiple of the error on held-back frames"),
        ("bundled:ethanol@0:9 -o x selct.kind=bald", "selct: no such setting; did you mean 'select'?"),
        ("nowhere.xyz -o x", "nowhere.xyz"),
        ("bare.xyz -o x", "labeller pool: no frame of the pool has an energy and forces"),
        ("bundled:ethanol@0:9 -o x --resume", "x: contains no study to resume; leave --resume out to begin one"),
        ("bundled:ethanol@0:9 -o bare.xyz", "bare.xyz: is a file; name a folder with -o"),
    ],
)
def test_mistakes(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bare.xyz").write_text("2\n\nH 0 0 0\nH 0 0 0.74\n")
    assert main(["learn", *words.split()]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not Path("x").exists(), "nothing is written for a mistake"


def test_template(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["template", "learn", "--preset", "standard"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert learn_config("quick", "small", values) == learn_config("standard")
    assert learn_config().sample.data.validation == 0


@pytest.mark.parametrize(
    ("values", "words", "message"),
    [
        ({"labeller": "trap:Trap"}, "", "study.yaml: labeller for the engine trap:Trap can make this machine run any"),
        ({"labeller": "orca"}, "", "study.yaml: labeller for the engine orca"),
        (
            {"labeller_settings": {"command": "touch sprung"}},
            "--labeller nwchem",
            "study.yaml: labeller_settings for the engine nwchem",
        ),
        ({"labeller_settings": {"command": "touch sprung"}}, "labeller=nwchem", "labeller_settings for the engine"),
        ({"labeller": "trap:Trap"}, "more.yaml", "study.yaml: labeller for the engine trap:Trap"),
    ],
)
def test_a_settings_file_runs_no_code(
    values: dict[str, Any],
    words: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("trap.py").write_text("import pathlib\npathlib.Path('sprung').touch()\n")
    Path("study.yaml").write_text(yaml.safe_dump({"pool": ["bundled:ethanol@0:9"], "output": "x", **values}))
    Path("more.yaml").write_text("rounds: 1\n")
    assert main(["learn", "study.yaml", *words.split()]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "--allow-code" in err
    assert err.count("\n") == 1
    assert not Path("sprung").exists()
    assert not Path("x").exists()


def test_code_that_the_user_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the flag, or by naming the engine oneself; formulas need neither."""
    monkeypatch.chdir(tmp_path)
    engine = "tests.labelling.shifted_emt:ShiftedEmt"
    Path("study.yaml").write_text(f"labeller: {engine}\nlabeller_settings: {{zero: 1}}\n")
    Path("plain.yaml").write_text("labeller: emt\nlabeller_settings: {asap_cutoff: true}\n")
    Path("engine.yaml").write_text("labeller: orca\n")
    for words in (
        ["study.yaml", "--allow-code"],
        ["plain.yaml"],
        ["--labeller", engine, "labeller_settings.zero=1"],
        ["engine.yaml", "--labeller", engine],
        ["engine.yaml", f"labeller={engine}"],
        ["engine.yaml", "plain.yaml"],
    ):
        config = study_config(parse(["learn", *words]))
        assert config.labeller in (engine, "emt")
