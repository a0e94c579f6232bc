"""Runs that are killed: whatever the moment, `--resume` ends in the same file, byte for byte."""

import json
import os
import random
import re
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.cli import program

OUTPUT = "a.posterior"
# 24 frames to learn from, looks and checkpoints every second step: most of the time is spent in writing
RUN = (
    f"sample bundled:ethanol@0:30 -o {OUTPUT} --network tiny --chains 2 --samples 6 --threads 1 data.validation=6 "
    "burn_in.steps=240 burn_in.batch_size=4 cycles.length=24 cycles.batch_size=4 guard.interval=2 "
    "output.checkpoint_seconds=0 output.validations=10"
).split()
STEPS = 288
CHECKPOINT = "a.run/checkpoint-{:010d}.safetensors"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody disturbed."""
    return program.completed(RUN, tmp_path_factory.mktemp("whole"))


def assert_same_result(folder: Path, uninterrupted: Path) -> None:
    """Byte for byte; and a log in which every record stands once, whole."""
    assert (folder / OUTPUT).read_bytes() == (uninterrupted / OUTPUT).read_bytes()
    logs = [(place / "a.run/metrics.jsonl").read_text().splitlines() for place in (folder, uninterrupted)]
    ours, theirs = ([json.loads(line) for line in lines] for lines in logs)
    assert [record["step"] for record in ours] == list(range(2, STEPS + 1, 2))
    seconds = [record.pop("seconds") for record in ours]
    assert seconds == sorted(seconds), "the clock goes on over all the stops"
    assert ours == [{name: value for name, value in record.items() if name != "seconds"} for record in theirs]


def test_plain_lines_in_a_file(uninterrupted: Path) -> None:
    """Not a terminal: no table, no colours; numbers with units, and the time left."""
    out = (uninterrupted / "out.txt").read_text()
    assert "\x1b" not in out
    lines = [line for line in out.splitlines() if line.startswith("step ")]
    assert lines[-1].startswith(f"step {STEPS}/{STEPS}  phase cycle 2  γ ")
    assert lines[-1].endswith("left 0:00:00")
    assert re.search(
        r"force error \d+\.\d meV/Å  σ \d+\.\d meV/Å  temperature \d\.\d\d  held-back error \d+\.\d meV/Å", lines[-1]
    )
    assert "2 chains, 288 steps (240 burn-in), 6 samples; 24 frames to learn from, 6 held back" in out


def newest_step(folder: Path) -> int:
    names = sorted(path.name for path in (folder / "a.run").glob("checkpoint-*.safetensors"))
    return int(names[-1].removeprefix("checkpoint-").split(".")[0]) if names else -1


def test_killed_at_random_moments(tmp_path: Path, uninterrupted: Path) -> None:
    """kill -9, 26 times within one run: once before anything is there, then each at a random moment after a new
    checkpoint.

    Checkpoints are written every second step, on a disk that takes 50 ms to flush a file, so that most moments lie
    within a write: before or after the new file takes its name.  The moments are seeded; what they hit depends on the
    machine.
    """
    rng = random.Random(3)
    steps, hits = [-1], 0
    for kill in range(26):
        argv = [*RUN, "--resume"] if steps[-1] >= 0 else RUN
        process = program.start(argv, tmp_path, slow_disk=0.05)
        if kill:  # something new, so that the run as a whole goes on
            wait_for_progress(tmp_path, steps[-1], process)
        time.sleep(rng.uniform(0.0, 0.25))
        process.kill()
        assert program.finish(process) == -signal.SIGKILL, "the run must still be going: make it longer"
        steps.append(newest_step(tmp_path))
        hits += bool(list((tmp_path / "a.run").glob(".checkpoint-*.tmp")))
    assert steps[2:] == sorted(set(steps[2:])), "every start got further"
    assert 40 <= steps[-1] < STEPS
    assert hits >= 3, "some kills must hit a checkpoint that is being written"
    status, out, err = program.run([*RUN, "--resume"], tmp_path)
    assert (status, err) == (0, ""), out
    assert_same_result(tmp_path, uninterrupted)
    assert [path.name for path in tmp_path.rglob(".*")] == [], "nothing half written stays behind"


def wait_for_progress(folder: Path, before: int, process: BaseProcess) -> None:
    end = time.monotonic() + 60
    while newest_step(folder) <= before:
        assert time.monotonic() < end, "no new checkpoint came"
        assert process.is_alive(), "the run ended by itself: make it longer"
        time.sleep(0.001)


SHORT = [*RUN, "burn_in.steps=60", "output.checkpoint_seconds=1000"]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the shorter run writes; it has no checkpoints but at the start and the end."""
    folder = tmp_path_factory.mktemp("short")
    assert program.run(SHORT, folder)[0] == 0
    return (folder / OUTPUT).read_bytes()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_asked_to_stop(tmp_path: Path, short: bytes, number: int, status: int) -> None:
    """SIGINT, SIGTERM and SIGHUP: a checkpoint, how to go on, the customary status; then the same result."""
    process = program.start(SHORT, tmp_path)
    log = tmp_path / "a.run/metrics.jsonl"
    program.wait_for(log, process)
    while not log.read_text():
        time.sleep(0.001)
    assert process.pid is not None
    os.kill(process.pid, number)
    assert program.finish(process) == status
    step = newest_step(tmp_path)
    assert 0 < step < 108
    last = (tmp_path / "out.txt").read_text().splitlines()[-1]
    again = "equibayes sample --resume -o a.posterior"
    assert last == f"stopped at step {step}; continue with the same command and --resume, or: {again}"
    assert (tmp_path / "err.txt").read_text() == ""
    code, _, err = program.run([*SHORT, "--resume"], tmp_path)
    assert (code, err) == (0, "")
    assert (tmp_path / OUTPUT).read_bytes() == short
