"""Every study in `results/` that needs a GPU, by one command that stops in time and goes on where it stopped.

    python examples/reproduce.py --list                                            names and commands
    python examples/reproduce.py --data DATA --work work                           all of them, one H200: some hours
    python examples/reproduce.py --data DATA --work work --only 'rmd17-*' chain    some, by name or pattern, in this order
    python examples/reproduce.py --data DATA --work work --seconds 1500 --lanes 4  stop after 25 minutes; four at a time

The paper's chain is begun first, and the others are stopped for a while whenever it would not end in time.

DATA holds rmd17/ (rmd17_MOLECULE.npz, splits_MOLECULE.npz) and alkanes/ (c04.npz …).  Small networks leave most of a GPU idle, so that
several studies share it (NVIDIA's MPS is started where it is installed); seconds in the results are then those of a shared GPU.  WORK
keeps unfinished runs, and WORK/logs what each study prints; results go to --results.  What is finished there is not done again.
"""

import argparse
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOLECULES = ("ethanol", "aspirin", "malonaldehyde", "toluene", "benzene", "azobenzene")
FEW = ("ethanol", "aspirin")
LONG = ("ethanol", "malonaldehyde", "aspirin")
LONG_BURN_IN = "burn_in.steps=98000"
"""Four times the preset's, for the question what more steps bring."""
COMPACT = ("ethanol", "aspirin")
"""Molecules whose posteriors the documentation offers."""
HERE = Path(__file__).resolve().parent
CHAIN_STEPS = 1_350_300
"""Of the preset paper-rmd17 with 970 frames."""
OTHERS_PERCENT = "70"
"""Of the processors of a GPU, which the others may use beside it, so that it always finds some free."""
LOOK_S, WINDOW_S, SPARE_S = 5.0, 30.0, 60.0
"""Between two looks at the longest study; over which its speed is taken; that it should have left at the end."""


@dataclass(frozen=True)
class Pace:
    """How far a study has come: the metrics.jsonl that it writes, and its last step."""

    metrics: Path
    steps: int

    def step(self) -> int:
        try:
            lines = self.metrics.read_bytes().splitlines()
        except OSError:
            return 0
        for line in reversed(lines[-3:]):  # the last may be half written
            try:
                return int(json.loads(line)["step"])
            except ValueError:
                continue
        return 0


@dataclass(frozen=True)
class Job:
    """A study that may be stopped by SIGTERM and goes on with the same command.

    after: the job that has to be finished first;  pace: it is the longest, is begun first, and the others stop where it would be late.
    """

    name: str
    command: tuple[str, ...]
    after: str | None = None
    pace: Pace | None = None


def all_jobs(given: argparse.Namespace) -> list[Job]:
    """The most wanted first."""
    data, work, results = given.data, given.work, given.results
    commit = ["--commit", given.commit] if given.commit else []
    steps = ["--set", *given.set] if given.set else []

    def script(name: str, *arguments: object) -> tuple[str, ...]:
        return (sys.executable, str(HERE / name), *(str(a) for a in arguments), *commit)

    def rmd17(name: str, molecule: str, *arguments: object, study: str = "rmd17", after: str | None = None) -> Job:
        places = (
            "--data",
            data / "rmd17" / f"rmd17_{molecule}.npz",
            "--folder",
            work / study,
            "--output",
            results / study,
        )
        return Job(name, script("rmd17/study.py", molecule, *places, "--device", given.device, *arguments), after)

    jobs = [Job("selftest", (sys.executable, "-m", "equibayes.selftest"))]
    for molecule in MOLECULES:
        compact = ["--keep-compact"] if molecule in COMPACT else []
        jobs += [
            rmd17(f"rmd17-{molecule}-many", molecule, "--methods", "bayes,ensemble", *steps, *compact),
            rmd17(f"rmd17-{molecule}-one", molecule, "--methods", "single,dropout,point", *steps),
        ]
    jobs += [
        rmd17(f"few-{molecule}-{frames}", molecule, "--train", frames, *steps)
        for molecule in FEW
        for frames in (50, 200)
    ]
    for molecule in LONG:
        for part, methods in (("bayes", "bayes"), ("ensemble", "ensemble"), ("one", "single,dropout,point")):
            arguments = ["--methods", methods, "--set", *given.set, LONG_BURN_IN]
            arguments += ["--keep-compact"] if part == "bayes" and molecule in COMPACT else []
            jobs.append(rmd17(f"long-{molecule}-{part}", molecule, *arguments, study="rmd17-long"))
    for case in ("3bpa", "pedot", "alkanes"):
        places = ["--folder", work / "domain-shift", "--output", results / "domain-shift", "--device", given.device]
        places += ["--data", data / "alkanes"] if case == "alkanes" else []
        for part, methods in (("bayes", ["bayes"]), ("rivals", ["ensemble", "dropout"])):
            study = script("domain_shift/study.py", case, *places, "--methods", *methods, *steps)
            jobs.append(Job(f"shift-{case}-{part}", study))
    places = ["--folder", work / "one-or-many", "--output", results / "one-or-many", "--device", given.device]
    jobs.append(Job("one-or-many", script("one_or_many.py", *places)))
    chain = work / "chain.posterior"
    sample = ["-m", "equibayes", "sample", "bundled:ethanol@train", "-o", str(chain), "--preset", "paper-rmd17"]
    resume = ["--resume"] if chain.with_suffix(".run").exists() else []
    if not chain.exists():
        pace = Pace(chain.with_suffix(".run") / "metrics.jsonl", CHAIN_STEPS)
        jobs.append(Job("chain", (sys.executable, *sample, *resume, "--device", given.device), pace=pace))
    jobs += [
        rmd17("chain-test", "ethanol", "--paper-chain", chain, after="chain"),
        Job(
            "standard", script("standard_preset.py", "--device", given.device, "--output", results / "standard-preset")
        ),
        Job("precision", script("precision.py", "--output", results / "precision")),
    ]
    return jobs


def chosen(jobs: Sequence[Job], patterns: Sequence[str]) -> list[Job]:
    """Those that a pattern names, in the order of the patterns."""
    found: dict[str, Job] = {}
    for pattern in patterns:
        matching = {job.name: job for job in jobs if fnmatch.fnmatch(job.name, pattern)}
        if not matching:
            raise SystemExit(f"--only {pattern}: no study is named so; see --list")
        found |= {name: job for name, job in matching.items() if name not in found}
    return list(found.values())


class Lanes:
    """Runs jobs, several at a time, until all are done or time is over; then every one is asked to stop and waited for."""

    def __init__(self, jobs: Sequence[Job], logs: Path, deadline: float) -> None:
        self.waiting = sorted(jobs, key=lambda job: job.pace is None)
        self.logs, self.deadline = logs, deadline
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ended: dict[str, int] = {}
        self.known = {job.name for job in jobs}
        self.paced = any(job.pace for job in jobs)
        self.lock = threading.Lock()

    def run(self, lanes: int) -> dict[str, int]:
        """Exit codes by name; a job that was not begun has none."""
        threads = [threading.Thread(target=self._lane) for _ in range(lanes)]
        threads += [threading.Thread(target=self._keep_pace, args=(job, job.pace)) for job in self.waiting if job.pace]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.ended

    def _lane(self) -> None:
        while time.monotonic() < self.deadline:
            job = self._next()
            if job:
                self._carry_out(job)
            elif not self.waiting:
                return
            else:
                time.sleep(0.5)  # what is left waits for another

    def _next(self) -> Job | None:
        with self.lock:
            for job in self.waiting:
                first = job.after if job.after in self.known else None
                if first is None or self.ended.get(first) == 0:
                    self.waiting.remove(job)
                    return job
                if first in self.ended:  # and failed: there is nothing to go on with
                    self.waiting.remove(job)
                    return None
        return None

    def _carry_out(self, job: Job) -> None:
        began = time.monotonic()
        print(f"{job.name}: begins", flush=True)
        with (self.logs / f"{job.name}.log").open("a") as log:
            environment = os.environ | {"CUDA_MPS_CLIENT_PRIORITY": "0" if job.pace else "1"}
            if self.paced and not job.pace:
                environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = OTHERS_PERCENT
            process = subprocess.Popen(job.command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            with self.lock:
                self.running[job.name] = process
            try:
                code = process.wait(max(0.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)  # a study then writes a checkpoint
                process.send_signal(signal.SIGCONT)  # if it was stopped
                process.wait()
                code = 130
        outcome = {0: "done", 130: "stopped, to go on"}.get(code, f"FAILED with {code}, see its log")
        with self.lock:
            del self.running[job.name]
            self.ended[job.name] = code
        print(f"{job.name}: {outcome}, {time.monotonic() - began:.0f} s", flush=True)

    def _keep_pace(self, job: Job, pace: Pace) -> None:
        """While a study runs, stop the others whenever it would end too late, and let them go on when it would not."""
        seen: list[tuple[float, int]] = []
        while job.name not in self.ended and time.monotonic() < self.deadline:
            now = time.monotonic()
            seen = [*(look for look in seen if now - look[0] < WINDOW_S), (now, pace.step())]
            (since, before), (_, step) = seen[0], seen[-1]
            left = self.deadline - SPARE_S - now
            late = step > before and (pace.steps - step) * (now - since) > left * (step - before)
            self._signal_others(job, signal.SIGSTOP if late else signal.SIGCONT)
            time.sleep(LOOK_S)
        self._signal_others(job, signal.SIGCONT)

    def _signal_others(self, job: Job, sent: signal.Signals) -> None:
        with self.lock:
            for name, process in self.running.items():
                if name != job.name:
                    process.send_signal(sent)


def share_the_gpu(folder: Path) -> None:
    """Start NVIDIA's MPS, with which kernels of several processes run side by side; without it they take turns."""
    daemon = shutil.which("nvidia-cuda-mps-control")
    if daemon is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        return
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([daemon, "-d"], check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with rmd17/ and alkanes/")
    parser.add_argument(
        "--work", type=Path, default=Path("build/studies"), help="for unfinished runs, posteriors and logs"
    )
    parser.add_argument(
        "--results", type=Path, default=HERE.parent / "results", help="default: those of the repository"
    )
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help="names or patterns, see --list")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which everything is stopped")
    parser.add_argument("--lanes", type=int, default=4, help="studies at a time (default 4)")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="settings of rMD17 and domain shift: burn_in.steps=12000",
    )
    parser.add_argument("--device", default="cuda", help="cuda (default) or cpu, which takes weeks")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--list", action="store_true", help="print names and commands and stop")
    given = parser.parse_args()
    jobs = chosen(all_jobs(given), given.only)
    if given.list:
        for job in jobs:
            print(f"{job.name:24s} {' '.join(job.command)}")
        return 0
    deadline = time.monotonic() + given.seconds
    logs = given.work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    if given.device == "cuda" and given.lanes > 1:
        share_the_gpu(given.work / "mps")
    ended = Lanes(jobs, logs, deadline).run(given.lanes)
    return max(ended.values(), default=0)


if __name__ == "__main__":
    sys.exit(main())
