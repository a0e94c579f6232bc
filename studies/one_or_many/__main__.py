"""One chain or many?  And which steps matter?  On ethanol, with the network `small`; each case a few seconds of a GPU.

    python examples/one_or_many.py --list                                       the cases, what each asks and how many steps it takes
    python examples/one_or_many.py --device cuda --compile                      once, before several processes begin
    python examples/one_or_many.py --device cuda --case many one                some of them; without --case all but the long ones
    python examples/one_or_many.py --quick                                      half a minute on a core, to see that it runs
    python examples/one_or_many_report.py                                       tables and figures of what is there

A case samples 8 chains (or 1), 8 draws from each, and asks with the same number k = 8 of samples: one chain's 8 draws, 2 chains'
last 4, 4 chains' last 2, or the last draw of 8 chains.  Cases `one…` are a single chain that may cost as much as `many`: as many
seconds, by the pace of both that is measured in the same call, or as many evaluations of a network.  Nothing is tuned on the test
frames; what is recalibrated is so on the 30 frames held back.

Every finished case is OUTPUT/CASE.json; a case that is there is skipped, one that was interrupted goes on.  Needs torch, numpy,
safetensors and vesin only.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data import bundled_ethanol
from equibayes.errors import InputError
from equibayes.files import make_folder, write_text
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.sample import run_folder, sample
from equibayes.run import checkpoint
from equibayes.run.prepare import hold_back
from equibayes.run.progress import Silent
from equibayes.run.settings import SampleConfig, sample_config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from one_or_many_views import Frames, subset

from benchmarks.provenance import provenance

RECORDS = 30
"""Of a run, each with a look at the held-back frames."""


@dataclass(frozen=True)
class Plan:
    """Sizes that all cases share; steps are those of a chain."""

    network: str = "small"
    chains: int = 8
    draws: int = 8
    burn_in: int = 16_000
    cycle: int = 1_000
    pilot: int = 1_000
    train: int = 1_000
    held_back: int = 30
    test: int = 1_000

    def config(self, case: "Case") -> SampleConfig:
        values = {
            "seed": case.seed,
            "chains": self.chains,
            "samples": self.chains * self.draws,
            "data": {"validation": self.held_back},
            "sampler": {"integrator": case.integrator, "temperature": case.temperature},
            "burn_in": {"steps": max(1, round(case.burn_in * self.burn_in)), "initial": case.initial},
            "cycles": {"length": max(1, round(case.cycle * self.cycle))},
            "output": {"records": RECORDS, "validations": RECORDS},
        }
        return sample_config("standard", self.network, values)

    def single(self, case: "Case", pace: float) -> SampleConfig:
        """One chain that may take `pace` times the steps of each of the many, for 8 draws."""
        config = self.config(case)
        many = config.schedule(self.train - self.held_back)
        steps = pace * many.total_steps
        if case.stretched:
            burn_in, cycle = pace * many.burn_in_steps, pace * many.cycle_steps
        else:
            burn_in = min(many.burn_in_steps, steps / 2)
            cycle = (steps - burn_in) / (self.draws - 1)
        return replace(
            config,
            chains=1,
            samples=self.draws,
            burn_in=replace(config.burn_in, steps=round(burn_in)),
            cycles=replace(config.cycles, length=max(1, round(cycle))),
        )


QUICK = Plan("tiny", chains=2, draws=4, burn_in=24, cycle=8, pilot=20, train=24, held_back=10, test=10)


@dataclass(frozen=True)
class Case:
    """One run.  `asks` is the question it belongs to; burn_in and cycle are multiples of the plan's; initial is a learning rate.

    equal      '' for many chains; for a single one what it may have as much of as the many: seconds, or work (evaluations of a network)
    stretched  whether a single chain spends it on a longer burn-in too, or on longer cycles only, as the paper does
    """

    asks: str
    seed: int = 0
    burn_in: float = 1.0
    cycle: float = 1.0
    temperature: float = 1.0
    integrator: str = "baoa"
    initial: float = 3e-2
    equal: str = ""
    stretched: bool = False
    long: bool = False


CASES: dict[str, Case] = {
    "many": Case("chains"),
    "one": Case("chains", equal="seconds"),
    "one-stretched": Case("chains", equal="seconds", stretched=True),
    "one-work": Case("chains", equal="work", stretched=True, long=True),
    "many-seed1": Case("scatter", seed=1),
    "many-seed2": Case("scatter", seed=2),
    "burn-in-16th": Case("burn-in", burn_in=1 / 16),
    "burn-in-8th": Case("burn-in", burn_in=1 / 8),
    "burn-in-4th": Case("burn-in", burn_in=1 / 4),
    "burn-in-half": Case("burn-in", burn_in=1 / 2),
    "burn-in-double": Case("burn-in", burn_in=2),
    "cycle-4th": Case("cycle", cycle=1 / 4),
    "cycle-half": Case("cycle", cycle=1 / 2),
    "cycle-double": Case("cycle", cycle=2),
    "cycle-fourfold": Case("cycle", cycle=4),
    "temperature-0.3": Case("temperature", temperature=0.3),
    "temperature-0.1": Case("temperature", temperature=0.1),
    "temperature-0.01": Case("temperature", temperature=0.01),
    "temperature-0": Case("temperature", temperature=0.0),
    "paper": Case("integrator", integrator="paper"),
    "baoa-slow": Case("integrator", initial=1e-2),
    "paper-slow": Case("integrator", integrator="paper", initial=1e-2),
    "baoa-fast": Case("integrator", initial=6e-2),
    "paper-fast": Case("integrator", integrator="paper", initial=6e-2),
}


class Pace(Silent):
    """How long a step takes, once kernels are compiled and recorded."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    def advance(self, step: int) -> None:
        self.seen.append((step, time.monotonic()))

    @property
    def seconds(self) -> float:
        (first, start), (last, end) = self.seen[min(2, len(self.seen) - 2)], self.seen[-1]
        return (end - start) / (last - first)


class Study:
    """Cases of one plan, on one device."""

    def __init__(self, plan: Plan, folder: Path, output: Path, device: str, commit: str | None) -> None:
        self.plan, self.device, self.commit = plan, device, commit
        self.folder, self.output = make_folder(folder), make_folder(output)
        self.data = bundled_ethanol("train")[: plan.train]
        self.test = bundled_ethanol("test")[: plan.test]

    def run(self, name: str) -> None:
        target, case = self.output / f"{name}.json", CASES[name]
        if target.exists():
            print(f"{name}: is there", flush=True)
            return
        began = time.monotonic()
        speed = self.pace(name, case) if case.equal else {}
        config = self.plan.single(case, speed["steps_ratio"]) if case.equal else self.plan.config(case)
        posterior, pace = self.sampled(name, config)
        sampled = time.monotonic()
        size = self.plan.train - self.plan.held_back
        schedule = config.schedule(size)
        frames = self.frames(posterior)
        found = {
            "case": name,
            **asdict(case),
            "plan": asdict(self.plan),
            "config": posterior.config,
            "precision": config.precision if self.device.startswith("cuda") else "float32",
            "chains": config.chains,
            "burn_in_steps": schedule.burn_in_steps,
            "cycle_steps": schedule.cycle_steps,
            "total_steps": schedule.total_steps,
            "network_evaluations": config.chains * schedule.total_steps,
            "seconds_a_step": pace,
            "sampling_seconds": None if pace is None else pace * schedule.total_steps,
            "equal": speed | {"in": case.equal} if case.equal else None,
            "verdict": posterior.verdict,
            "agreement": frames.agreement(posterior),
            "views": frames.views(posterior, self.plan.draws, thorough=case.asks == "chains"),
            "history": in_short(posterior.history),
            "data": {"train": self.data.fingerprint(), "test": self.test.fingerprint()},
            "wall_seconds": {"sampling": sampled - began, "all": time.monotonic() - began},
            "provenance": {**provenance(), **({"commit": self.commit} if self.commit else {})},
        }
        write_text(target, json.dumps(rounded(found), indent=1, allow_nan=False) + "\n")
        print(f"{name}: {summary(found)}", flush=True)

    def pace(self, name: str, case: Case) -> dict[str, Any]:
        """How many steps of one chain take as long as one of the many; measured once, since the settings of the run follow."""
        note = self.folder / f"{name}.pace.json"
        if note.exists():
            known: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
            return known
        config = self.plan.config(case)
        seconds = {chains: self.pilot(config, chains) for chains in (self.plan.chains, 1)}
        ratio = seconds[self.plan.chains] / seconds[1]
        found = {
            "seconds_a_step_of_many": seconds[self.plan.chains],
            "seconds_a_step_of_one": seconds[1],
            "steps_ratio": float(self.plan.chains) if case.equal == "work" else max(1.0, ratio),
        }
        write_text(note, json.dumps(found))
        return found

    def pilot(self, config: SampleConfig, chains: int) -> float:
        """Seconds of a step of that many chains together."""
        clock = Pace()
        short = replace(
            config,
            chains=chains,
            samples=chains,
            burn_in=replace(config.burn_in, steps=self.plan.pilot),
            guard=replace(config.guard, interval=max(1, self.plan.pilot // 20)),
            output=replace(config.output, validations=0),
        )
        sample(self.data, short, device=self.device, display=clock)
        return clock.seconds

    def sampled(self, name: str, config: SampleConfig) -> tuple[Posterior, float | None]:
        """The posterior of a case, and seconds of a step; loaded or gone on with where there is something."""
        path, clock = self.folder / f"{name}.posterior", Pace()
        note = self.folder / f"{name}.step.json"
        if not path.exists():
            begun = run_folder(path).is_dir() and bool(checkpoint.newest_first(run_folder(path)))
            sample(self.data, config, output=path, resume=begun, device=self.device, display=clock)
            write_text(note, json.dumps(clock.seconds if len(clock.seen) > 1 else None))
        return load(path), json.loads(note.read_text()) if note.exists() else None

    def frames(self, posterior: Posterior) -> Frames:
        _, held_back = hold_back(self.data, self.plan.held_back, posterior.config["seed"])
        return Frames(held_back, self.test, posterior, self.device)

    def compile_kernels(self) -> None:
        """All that the cases need on a GPU, for the sizes that they will have; Triton keeps them on the disk."""
        began = time.monotonic()
        config = self.plan.config(CASES["many"])
        for chains, draws in ((self.plan.chains, self.plan.draws), (1, self.plan.draws)):
            short = replace(
                config,
                chains=chains,
                samples=chains * draws,
                burn_in=replace(config.burn_in, steps=1),
                cycles=replace(config.cycles, length=1),
            )
            posterior = sample(self.data, short, device=self.device)
            for count in (draws, len(posterior)):
                self.frames(posterior).predictions(subset(posterior, list(range(count))))
        print(f"kernels are ready after {time.monotonic() - began:.0f} s", flush=True)


def in_short(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over chains."""
    names = (
        "learning_rate",
        "force_mae",
        "force_sigma",
        "kinetic_temperature",
        "validation_force_mae",
        "validation_force_sigma",
    )
    rows = []
    for record in history:
        row: dict[str, Any] = {"step": record["step"], "phase": record["phase"]}
        for name in names:
            known = [value for value in record.get(name, []) if value is not None]
            row[name] = float(np.mean(known)) if known else None
        row["validation_force_mae_of_mean"] = record.get("validation_force_mae_of_mean")
        rows.append(row)
    return rows


def rounded(value: Any) -> Any:
    """Six digits are more than the study can tell; what is not finite is null."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value


def summary(found: dict[str, Any]) -> str:
    words = [f"{found['chains']} x {found['total_steps']} steps"]
    if found["sampling_seconds"] is not None:
        words.append(f"{found['sampling_seconds']:.1f} s")
    for name, views in found["views"].items():
        if name != "all":
            mae, mll = (np.mean([v["raw"][key] for v in views]) for key in ("force_mae", "force_mll"))
            words.append(f"{name}: {1e3 * mae:.1f} meV/Å, MLL {mll:.3f}")
    return ", ".join(words)


def about(plan: Plan, case: Case) -> str:
    """What a case takes, in words."""
    chains = "1 chain" if case.equal else f"{plan.chains} chains"
    if case.equal == "seconds":
        return f"{chains}, as long as many"
    config = plan.single(case, plan.chains) if case.equal else plan.config(case)
    return f"{chains}, {config.schedule(plan.train - plan.held_back).total_steps} steps{', long' if case.long else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case", nargs="+", choices=list(CASES), metavar="NAME", help="some of --list (default: all that are not long)"
    )
    parser.add_argument("--list", action="store_true", help="name the cases")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the steps of all cases")
    parser.add_argument(
        "--quick", action="store_true", help="a tiny network and few steps, too short to conclude anything"
    )
    parser.add_argument("--compile", action="store_true", help="only compile the kernels of a GPU")
    parser.add_argument("--folder", type=Path, default=Path("build/one-or-many"), help="for posteriors and checkpoints")
    parser.add_argument("--output", type=Path, default=Path("results/one-or-many"), help="for the JSON files")
    parser.add_argument("--commit", help="of the code, where there is no git")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan = QUICK if options.quick else Plan()
    plan = replace(plan, burn_in=round(options.scale * plan.burn_in), cycle=round(options.scale * plan.cycle))
    if options.list:
        for name, case in CASES.items():
            print(f"{name:18s} {case.asks:12s} {about(plan, case)}")
        return
    study = Study(plan, options.folder, options.output, options.device, options.commit)
    if options.compile:
        study.compile_kernels()
        return
    for name in options.case or [name for name, case in CASES.items() if not case.long]:
        study.run(name)


if __name__ == "__main__":
    try:
        main()
    except InputError as mistake:
        raise SystemExit(f"error: {mistake}") from None
