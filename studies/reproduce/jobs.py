"""The studies that need a GPU, as commands."""

import argparse
import fnmatch
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOLECULES = ("ethanol", "aspirin", "malonaldehyde", "toluene", "benzene", "azobenzene")
FEW = ("ethanol", "aspirin")
LONG = ("ethanol", "malonaldehyde", "aspirin")
LONG_BURN_IN = "burn_in.steps=98000"
"""Four times that of the preset, to see the effect of more steps."""
COMPACT = ("ethanol", "aspirin")
"""Molecules whose posteriors are in the repository."""
CHAIN_STEPS = 1_350_300
"""Steps of the preset paper-rmd17 with 970 frames."""


@dataclass(frozen=True)
class Pace:
    """Progress of a study: the metrics.jsonl that it writes, and its number of steps."""

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
    """A study that SIGTERM stops and the same command continues.

    after: the job that must finish first;  pace: given for the longest job, which starts first and has priority
    """

    name: str
    command: tuple[str, ...]
    after: str | None = None
    pace: Pace | None = None


def all_jobs(given: argparse.Namespace) -> list[Job]:
    """In order of priority."""
    data, work, results = given.data, given.work, given.results
    commit = ["--commit", given.commit] if given.commit else []
    steps = ["--set", *given.set] if given.set else []

    def module(name: str, *arguments: object) -> tuple[str, ...]:
        return (sys.executable, "-m", f"studies.{name}", *(str(a) for a in arguments), *commit)

    def rmd17(name: str, molecule: str, *arguments: object, study: str = "rmd17", after: str | None = None) -> Job:
        places = (
            "--data",
            data / "rmd17" / f"rmd17_{molecule}.npz",
            "--folder",
            work / study,
            "--output",
            results / study,
        )
        return Job(name, module("rmd17", molecule, *places, "--device", given.device, *arguments), after)

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
            study = module("domain_shift", case, *places, "--methods", *methods, *steps)
            jobs.append(Job(f"shift-{case}-{part}", study))
    places = ["--folder", work / "one-or-many", "--output", results / "one-or-many", "--device", given.device]
    jobs.append(Job("one-or-many", module("one_or_many", *places)))
    chain = work / "chain.posterior"
    sample = ["-m", "equibayes", "sample", "bundled:ethanol@train", "-o", str(chain), "--preset", "paper-rmd17"]
    resume = ["--resume"] if chain.with_suffix(".run").exists() else []
    if not chain.exists():
        pace = Pace(chain.with_suffix(".run") / "metrics.jsonl", CHAIN_STEPS)
        jobs.append(Job("chain", (sys.executable, *sample, *resume, "--device", given.device), pace=pace))
    jobs += [
        rmd17("chain-test", "ethanol", "--paper-chain", chain, after="chain"),
        Job("precision", module("precision", "--output", results / "precision")),
    ]
    return jobs


def chosen(jobs: Sequence[Job], patterns: Sequence[str]) -> list[Job]:
    """The jobs that match a pattern, in the order of the patterns."""
    found: dict[str, Job] = {}
    for pattern in patterns:
        matching = {job.name: job for job in jobs if fnmatch.fnmatch(job.name, pattern)}
        if not matching:
            raise SystemExit(f"--only {pattern}: no study has this name; see --list")
        found |= {name: job for name, job in matching.items() if name not in found}
    return list(found.values())
