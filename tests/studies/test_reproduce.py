"""The command that runs all studies on a GPU: which there are, what waits for what, and that it stops in time."""

import subprocess
import sys
import time

import pytest

from studies.reproduce import lanes
from studies.reproduce.jobs import Job, Pace
from studies.reproduce.lanes import Lanes
from tests.studies.running import ROOT


def job(name: str, code: str, after: str | None = None) -> Job:
    return Job(name, (sys.executable, "-c", code), after)


def test_names_of_studies_and_their_modules() -> None:
    words = ["--list", "--only", "chain*", "rmd17-*", "--set", "burn_in.steps=99"]
    command = [sys.executable, "-m", "studies.reproduce", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines[:3]] == ["chain", "chain-test", "rmd17-ethanol-many"], "in the order of --only"
    assert len(lines) == 2 + 2 * 6
    for line in lines[1:]:
        assert (ROOT / line[3].replace(".", "/") / "__main__.py").is_file()
    assert all("burn_in.steps=99" in line for line in lines[2:])
    bad = subprocess.run([*command, "--only", "nonsense"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert bad.returncode == 1
    assert bad.stderr == "--only nonsense: no study has this name; see --list\n"


def test_what_waits_for_another(tmp_path):
    """A job begins when the one that it needs is done, not if that failed; the others go on."""
    note = f"import sys; open({str(tmp_path / 'order')!r}, 'a').write(sys.argv[0] or 'x')"
    jobs = [
        job("second", note, after="first"),
        job("first", "import time; time.sleep(0.3); " + note),
        job("never", note, after="failing"),
        job("failing", "raise SystemExit(3)"),
        job("alone", "print('said')", after="not among those chosen"),
    ]
    ended = Lanes(jobs, tmp_path, time.monotonic() + 60).run(2)
    assert ended == {"first": 0, "second": 0, "failing": 3, "alone": 0}
    assert list(ended).index("second") > list(ended).index("first")
    assert (tmp_path / "alone.log").read_text() == "said\n"


def test_it_stops_in_time(tmp_path):
    """Jobs get SIGTERM, with time to write what they have; later ones are not begun."""
    patient = (
        "import signal, time, pathlib\n"
        "def stop(*_): pathlib.Path({!r}).write_text('kept'); raise SystemExit(130)\n"
        "signal.signal(signal.SIGTERM, stop)\ntime.sleep(60)"
    ).format(str(tmp_path / "checkpoint"))
    jobs = [job("long", patient), job("later", "pass")]
    began = time.monotonic()
    ended = Lanes(jobs, tmp_path, began + 1.5).run(1)
    assert ended == {"long": 130}
    assert (tmp_path / "checkpoint").read_text() == "kept"
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_others_stop_where_the_longest_would_be_late(tmp_path, monkeypatch):
    """It is begun first; the other counts hardly on while it is too slow, and is let go when it has ended."""
    for name, value in {"LOOK_S": 0.1, "WINDOW_S": 1.0, "SPARE_S": 0.0}.items():
        monkeypatch.setattr(lanes, name, value)
    metrics, counted = tmp_path / "metrics.jsonl", tmp_path / "counted"
    counted.write_text("0")  # it may be stopped before it counts at all
    chain = f"""
import json, time
with open({str(metrics)!r}, "w") as file:
    for step in range(1, 31):
        time.sleep(0.1)
        print(json.dumps({{"step": step}}), file=file, flush=True)
"""
    other = f"""
import pathlib, time
while not pathlib.Path({str(metrics)!r}).exists():  # however long the chain takes to begin
    time.sleep(0.01)
for step in range(40):
    time.sleep(0.1)
    pathlib.Path({str(counted)!r}).write_text(str(step))
"""
    jobs = [
        job("other", other),
        Job("chain", (sys.executable, "-c", chain), pace=Pace(metrics, 10**6)),
        job("last", f"print(open({str(counted)!r}).read())", after="chain"),
    ]
    ended = Lanes(jobs, tmp_path, time.monotonic() + 60).run(2)
    assert ended == {"chain": 0, "last": 0, "other": 0}
    assert int((tmp_path / "last.log").read_text().strip() or 0) < 15, "stopped while the chain ran its three seconds"
    assert counted.read_text() == "39"
