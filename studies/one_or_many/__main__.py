"""One chain or many?  And which steps matter?  On ethanol, with the network `small`; each case takes seconds on a GPU.

    python -m studies.one_or_many --list                                the cases, their question and number of steps
    python -m studies.one_or_many --device cuda --compile               once, before several processes start
    python -m studies.one_or_many --device cuda --case many one         some cases; without --case all but the long ones
    python -m studies.one_or_many --quick                               half a minute on one core, to see that it runs
    python -m studies.one_or_many.report                                tables and figures of finished cases

A case samples 8 chains (or 1), 8 draws from each, and predicts with k = 8 samples: 8 draws of one chain, the last 4 of
2 chains, the last 2 of 4 chains, or the last draw of 8 chains.  Cases `one…` are a single chain at the cost of `many`:
equal seconds, from the speed of both measured in the same call, or equal network evaluations.  Nothing is tuned on the
test frames; recalibration uses the 30 held-back frames.

Every finished case is OUTPUT/CASE.json and is not repeated; an interrupted one continues.  Needs torch, numpy,
safetensors and vesin only.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data import bundled_ethanol
from equibayes.files import make_folder
from equibayes.posterior.file import Posterior
from equibayes.run.prepare import hold_back
from equibayes.run.progress import Silent
from equibayes.run.settings import SampleConfig
from studies.one_or_many.plan import CASES, QUICK, Case, Plan, about
from studies.one_or_many.views import Frames, subset
from studies.shared.options import add_commit, add_device, add_folders, add_quick, parser_of, start
from studies.shared.results import provenance, read_json, save_json
from studies.shared.runs import sampled


class Pace(Silent):
    """Seconds per step, once kernels are compiled and recorded."""

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
            print(f"{name}: already done", flush=True)
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
            "provenance": provenance(self.commit),
        }
        save_json(target, rounded(found), indent=None)
        print(f"{name}: {summary(found)}", flush=True)

    def pace(self, name: str, case: Case) -> dict[str, Any]:
        """Steps of one chain that take as long as one step of the many; measured once, since the settings depend on
        it."""
        note = self.folder / f"{name}.pace.json"
        known: dict[str, Any] | None = read_json(note)
        if known is not None:
            return known
        config = self.plan.config(case)
        seconds = {chains: self.pilot(config, chains) for chains in (self.plan.chains, 1)}
        ratio = seconds[self.plan.chains] / seconds[1]
        found = {
            "seconds_a_step_of_many": seconds[self.plan.chains],
            "seconds_a_step_of_one": seconds[1],
            "steps_ratio": float(self.plan.chains) if case.equal == "work" else max(1.0, ratio),
        }
        save_json(note, found)
        return found

    def pilot(self, config: SampleConfig, chains: int) -> float:
        """Seconds per step of `chains` chains together."""
        clock = Pace()
        short = replace(
            config,
            chains=chains,
            samples=chains,
            burn_in=replace(config.burn_in, steps=self.plan.pilot),
            guard=replace(config.guard, interval=max(1, self.plan.pilot // 20)),
            output=replace(config.output, validations=0),
        )
        sampled(self.data, short, device=self.device, display=clock)
        return clock.seconds

    def sampled(self, name: str, config: SampleConfig) -> tuple[Posterior, float | None]:
        """The posterior of a case and seconds per step; loaded if complete, continued if interrupted."""
        path, clock = self.folder / f"{name}.posterior", Pace()
        note = self.folder / f"{name}.step.json"
        posterior = sampled(self.data, config, path, device=self.device, display=clock)
        if len(clock.seen) > 1:
            save_json(note, {"seconds_a_step": clock.seconds})
        return posterior, (read_json(note) or {}).get("seconds_a_step")

    def frames(self, posterior: Posterior) -> Frames:
        _, held_back = hold_back(self.data, self.plan.held_back, posterior.config["seed"])
        return Frames(held_back, self.test, posterior, self.device)

    def compile_kernels(self) -> None:
        """Compile the kernels for all sizes of the study; Triton keeps them on disk."""
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
            posterior = sampled(self.data, short, device=self.device)
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
    """Floats with six digits, more than the study can resolve."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")
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


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--case",
        nargs="+",
        choices=list(CASES),
        metavar="NAME",
        help="cases of --list (default: all but the long ones)",
    )
    parser.add_argument("--list", action="store_true", help="list the cases")
    add_device(parser)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the steps of all cases")
    add_quick(parser, "a tiny network and few steps")
    parser.add_argument("--compile", action="store_true", help="only compile the GPU kernels")
    add_folders(parser, "one-or-many")
    add_commit(parser)
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
    start(main)
