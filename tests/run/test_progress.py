"""What a person sees of a run: plain lines in a pipe, a live table on a terminal, metrics and events in files."""

import fcntl
import json
import math
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
import types
from pathlib import Path
from typing import Any

import pytest

from equibayes.cli.sample import announce
from equibayes.data import Dataset
from equibayes.errors import InputError
from equibayes.posterior.sample import sample
from equibayes.run import records
from equibayes.run.progress import Clock, LiveDisplay, PlainDisplay, choose_display, describe
from equibayes.run.settings import sample_config
from tests.runs import ethanol_frames, runner_of, small_config

RECORD: dict[str, Any] = {
    "step": 50,
    "phase": "cycle",
    "cycle": 1,
    "learning_rate": [1e-3, 3e-3],
    "log_posterior": [-1000.0, -3000.0],
    "force_mae": [0.1, 0.2],
    "force_sigma": [0.2, 0.4],
    "kinetic_temperature": [0.9, None],
    "validation_force_mae": [0.15, 0.25],
}


def test_numbers_with_units() -> None:
    """Means over chains; a chain without a number is left out."""
    assert describe(RECORD) == {
        "phase": "cycle 2",
        "γ": "2.0e-03",
        "ln posterior": "-2000",
        "force error": "150.0 meV/Å",
        "σ": "300.0 meV/Å",
        "temperature": "0.90",
        "held-back error": "200.0 meV/Å",
    }
    assert describe({**RECORD, "r_hat": 1.25, "draws_per_chain": 20})["R-hat"] == "1.25"
    assert describe({**RECORD, "r_hat": None, "draws_per_chain": 8})["R-hat"] == "undefined (8 of 20 draws)"
    assert "R-hat" not in describe({**RECORD, "r_hat": None, "draws_per_chain": None}), "no cycle yet"
    assert describe({**RECORD, "phase": "burn_in", "kinetic_temperature": [None]})["phase"] == "burn-in"


def test_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock(total_steps=1000, first_step=200)
    assert clock.left(200) == "?"
    now[0] += 50.0
    assert clock.left(300) == "0:05:50", "100 steps of this session took 50 s, 700 are left"
    now[0] += 36_000.0
    assert clock.left(400) == "30:02:30"


def test_plain_lines_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ten seconds, and the last one always."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    display = PlainDisplay()
    display.start(100, 0)
    for step in range(10, 101, 10):
        now[0] += 4.0
        display.show({**RECORD, "step": step})
    display.say("chain 1 was diverging")
    display.stop()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:-1]] == ["10/100", "40/100", "70/100", "100/100"]
    assert lines[-1] == "chain 1 was diverging"
    for part in ("force error 150.0 meV/Å", "σ 300.0 meV/Å", "temperature 0.90", "γ 2.0e-03", "left 0:00:24"):
        assert part in lines[1]


def test_time_left_before_the_first_record(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    display = PlainDisplay()
    display.start(1000, 0)
    for step in (10, 20, 30):
        now[0] += 6.0
        display.advance(step)
    assert capsys.readouterr().out == "step 20/1000  left 0:09:48\n", "once, after ten seconds"


def test_length_of_a_run_is_told_before_it_starts(capsys: pytest.CaptureFixture[str]) -> None:
    frame = ethanol_frames(1)[0]
    announce(Dataset([frame] * 1000, "few"), None, sample_config("quick"))
    assert capsys.readouterr().out.splitlines() == [
        "4 chains, 30008 steps (30008 burn-in), 4 samples; 970 frames to learn from, 30 held back",
        "30008 steps instead of 30000: phases are rounded up to whole epochs",
    ]
    announce(Dataset([frame] * 270_030, "many"), None, sample_config("quick"))
    assert capsys.readouterr().out.splitlines() == [
        "4 chains, 30000 steps (30000 burn-in), 4 samples; 270000 frames to learn from, 30 held back",
        "note: the burn-in is shorter than an epoch of 67500 steps and sees 44 % of the frames; raise burn_in.steps to "
        "use all",
    ]


def test_one_display_for_several_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The first record of each run is shown, and there is one bar, that of the present run."""
    plain, live = PlainDisplay(), LiveDisplay()
    for display in (plain, live):
        for total in (100, 200):
            display.start(total, 0)
            display.show({**RECORD, "step": 10})
            display.stop()
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[:2]] == ["10/100", "10/200"]
    assert [task.total for task in live.progress.tasks] == [200]


def test_choice_of_display(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_display(), PlainDisplay)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert isinstance(choose_display(), LiveDisplay)


COMMAND = (
    "sample bundled:ethanol@0:20 -o a.posterior --network tiny --chains 2 --samples 4 --threads 1 data.validation=4 burn_in.steps=40 "
    "cycles.length=20 burn_in.batch_size=4 cycles.batch_size=4 guard.interval=2"
)


def on_a_terminal(folder: Path) -> tuple[int, str, list[Any], list[Any]]:
    """Run the command on a pseudo-terminal: exit status, what it drew, and the terminal's settings before and after."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    before = termios.tcgetattr(slave)
    environment = {**os.environ, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):  # they would overrule the terminal
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "equibayes", *COMMAND.split()],
        cwd=folder,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
    )
    drawn = b""
    os.set_blocking(master, False)
    while True:
        ended = process.poll() is not None  # asked first, so that nothing drawn before the end is missed
        try:
            drawn += os.read(master, 1 << 16)
        except OSError:  # nothing new
            if ended:
                break
            time.sleep(0.01)
    after = termios.tcgetattr(slave)
    os.close(slave)
    os.close(master)
    return process.returncode, drawn.decode(errors="replace"), before, after


def test_live_on_a_terminal(tmp_path: Path) -> None:
    """A bar and a table that are drawn over each other; at the end the cursor is back and the terminal as it was."""
    status, drawn, before, after = on_a_terminal(tmp_path)
    assert status == 0, drawn
    assert "━" in drawn, "the bar"
    assert "64/64" in drawn
    for heading in ("phase", "γ", "ln posterior", "force error", "σ", "temperature", "held-back error"):
        assert heading in drawn
    assert re.search(r"\d\.\d meV/Å", drawn)
    assert "\x1b[1A" in drawn, "drawn over, not below each other"
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h") == 1, "the cursor is hidden and shown again"
    assert drawn.rindex("\x1b[?25h") < drawn.index("4 samples written to a.posterior")
    assert after == before


def test_an_error_restores_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """The display is stopped however the run ends."""

    class Fault(Exception):
        pass

    display = LiveDisplay()
    runner = runner_of(ethanol_frames(), small_config(), display=display)

    def fail(*arguments: object) -> None:
        raise Fault

    runner.watch(fail)
    with pytest.raises(Fault):
        runner.run()
    assert not display.live.is_started


def test_messages_stand_above_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """Also with brackets, which are no markup."""
    display = LiveDisplay()
    display.start(10, 0)
    display.say("chains [1] and [bold] were rolled back")
    display.stop()
    assert "chains [1] and [bold] were rolled back" in capsys.readouterr().out


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    sample(ethanol_frames(), small_config({"output": {"records": 3}}), output=folder / "a.posterior", device="cpu")
    return folder / "a.run"


def test_metrics_are_json_lines(run_folder: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    lines = (run_folder / "metrics.jsonl").read_text().splitlines()
    entries = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [entry["step"] for entry in entries] == [20, 40, 60, 64], "every second look, and where samples are taken"
    assert [entry["phase"] for entry in entries] == ["burn_in", "burn_in", "cycle", "cycle"]
    groups = {"embedding", "bessel", "layer0", "layer1", "readout", "force_head", "energy_head"}
    for entry in entries:
        for name in ("learning_rate", "log_posterior", "force_mae", "force_sigma", "kinetic_temperature"):
            assert len(entry[name]) == 2
            assert all(math.isfinite(value) for value in entry[name])
        assert set(entry["kinetic_by_group"]) == groups
        assert "configurational_by_group" not in entry, "one minibatch says nothing about it"
        ends = entry["step"] in (40, 64)
        assert [name in entry for name in ("fixed_potential", "weights_by_group")] == [ends, ends]
        assert set(entry.get("weights_by_group", groups)) == groups
        assert len(entry["temperature_rise_bound"]) == 2
        assert entry["seconds"] >= 0


def test_not_a_number_is_null(tmp_path: Path) -> None:
    assert records.round_significant(math.nan) is None
    assert records.round_significant(-math.inf) is None
    assert records.round_significant(1 / 3) == 0.3333333


def test_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the tensorboard package is not installed"
    )
    config = small_config({"output": {"tensorboard": True}})
    posterior = sample(ethanol_frames(), config, output=tmp_path / "a.posterior", device="cpu")
    events = accumulator.EventAccumulator(str(tmp_path / "a.run/tensorboard"))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {"log_posterior/chain0", "log_posterior/chain1", "force_mae/chain0", "validation_force_mae/chain1"} <= set(
        tags
    )
    written = [(event.step, event.value) for event in events.Scalars("force_mae/chain1")]
    expected = [(record["step"], record["force_mae"][1]) for record in posterior.history]
    assert [step for step, _ in written] == [step for step, _ in expected]
    assert [value for _, value in written] == pytest.approx([value for _, value in expected], rel=1e-6)


def test_tensorboard_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before the first step, with the remedy."""
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    config = small_config({"output": {"tensorboard": True}})
    with pytest.raises(InputError, match=r"the tensorboard package is missing; pip install tensorboard"):
        sample(ethanol_frames(), config, output=tmp_path / "a.posterior", device="cpu")


class FakeWandb(types.ModuleType):
    """What is used of the package, as documented: init, and log and finish of the run."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.inits: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def init(self, **options: Any) -> "FakeWandb":
        self.inits.append(options)
        return self

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished += 1


def test_weights_and_biases_gets_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    config = small_config({"output": {"wandb": "molecules"}})
    for resume in (False, True):
        posterior = sample(ethanol_frames(), config, output=tmp_path / "a.posterior", resume=resume, device="cpu")
        (tmp_path / "a.posterior").unlink()
    first, second = fake.inits
    assert (first["project"], first["name"], first["resume"]) == ("molecules", "a", "allow")
    assert first["config"]["burn_in"]["steps"] == 40
    assert first["id"] == second["id"], "a resumed run continues"
    assert fake.finished == 2
    assert [step for step, _ in fake.logged] == [record["step"] for record in posterior.history]
    assert [v["force_mae/chain1"] for _, v in fake.logged] == [r["force_mae"][1] for r in posterior.history]


def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="the wandb package is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    config = small_config({"output": {"wandb": "molecules"}})
    sample(ethanol_frames(), config, output=tmp_path / "a.posterior", device="cpu")
    (written,) = (tmp_path / "a.run" / "wandb").glob("offline-run-*/*.wandb")
    content = written.read_bytes()
    assert b"force_mae/chain1" in content
    assert b"validation_force_mae/chain0" in content


def test_weights_and_biases_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    config = small_config({"output": {"wandb": "molecules"}})
    with pytest.raises(InputError, match=r"output.wandb: the wandb package is missing; pip install wandb"):
        sample(ethanol_frames(), config, output=tmp_path / "a.posterior", device="cpu")
