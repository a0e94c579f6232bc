"""What a cold start saves: held-back force error against steps, frames and processor time, for several burn-ins.

The paper's outlook proposes less injected noise and smaller batches early in the burn-in.  The settings are
`burn_in.noise_free` (the first part of the burn-in has neither noise nor prior: the likelihood alone is maximised, from
weights drawn from the prior) and `burn_in.early` with `early_batch_size` (the first part has smaller batches).  One
variant keeps the prior in the part without noise, to show why it must be left out.  `burn_in.decay` lets the learning
rate γ fall linearly instead of exponentially, so that it stays large for longer.  All variants start from the same
weights and use the same noise, chain by chain, on the bundled ethanol frames, with the `small` network and the learning
rates of `quick`.

    python -m studies.fast_burn_in                about 20 minutes on one core
    python -m studies.fast_burn_in --steps 100    to see that it runs
    python -m studies.fast_burn_in --weights      two minutes: Σθ²/P along burn-ins of 1200 steps
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data import Dataset, bundled_ethanol, read
from equibayes.network.config import preset
from equibayes.run.chains import Chains
from equibayes.run.checkpoint import Checkpoint
from equibayes.run.loop import run as run_chains
from equibayes.run.prepare import prepare
from equibayes.run.progress import Silent
from equibayes.run.settings import BurnInSettings, OutputSettings, SampleConfig
from equibayes.run.store import Store
from equibayes.sampling.chain import Course
from equibayes.sampling.schedule import Schedule, StepPlan
from studies.shared.options import parser_of
from studies.shared.results import provenance, save_figure, save_json

CHAINS, SEED, BATCH = 4, 0, 4
RATES = {"initial": 3e-2, "final": 1e-4}
EARLY = {"early": 0.5, "early_batch_size": 2}
WAYS: dict[str, dict[str, Any]] = {
    "no option": {"noise_free": 0.0},
    "cold tenth": {"noise_free": 0.1},
    "cold half": {"noise_free": 0.5},
    "cold 0.8": {"noise_free": 0.8},
    "cold half, with the prior": {"noise_free": 0.5, "keep_prior": True},
    # half of the steps use half the batch, so the same number of frames allows a third more steps
    "cold half, batch 2 early, as many frames": {"noise_free": 0.5, **EARLY, "stretch": 4 / 3},
    "cold half, γ ten times as large at the end": {"noise_free": 0.5, "final": 1e-3},
    "cold half, γ falls linearly": {"noise_free": 0.5, "decay": "linear"},
    "cold 0.9, γ falls linearly": {"noise_free": 0.9, "decay": "linear"},
}
THRESHOLDS = (0.2, 0.15, 0.12, 0.1, 0.08, 0.07, 0.06)  # eV/Å


class WithPrior(Schedule):
    """Keeps the prior also where there is no noise."""

    def at(self, step: int) -> StepPlan:
        return super().at(step)._replace(prior_weight=1.0)


class KeepPrior(Chains):
    """Chains with that schedule."""

    @property
    def course(self) -> Course:
        usual = super().course
        plan = usual.schedule
        return replace(usual, schedule=WithPrior(plan.burn_in, plan.cycles, plan.temperature, plan.steps_per_epoch))


class Noted(Store):
    """Notes the mean square weight whenever a state is saved, which is at every look."""

    def __init__(self) -> None:
        self.squares: dict[int, float] = {}

    def save(self, step: int, state: Checkpoint) -> None:
        self.squares[step] = float(state.tensors["sampler.position"].square().mean())


class Clock(Silent):
    """Records the processor time of every validation."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.begun = time.process_time()

    def show(self, record: dict[str, Any]) -> None:
        if "validation_force_mae" in record:
            self.rows.append(
                {
                    "step": record["step"],
                    "cpu_seconds": round(time.process_time() - self.begun, 2),
                    "force_mae": record["validation_force_mae"],
                    "force_sigma": record["validation_force_sigma"],
                }
            )


def run(way: dict[str, Any], steps: int, data: Dataset, seed: int = SEED) -> dict[str, Any]:
    """One burn-in, with the held-back force errors (eV/Å) of every chain along it."""
    options = {key: value for key, value in way.items() if key not in ("stretch", "keep_prior")}
    burn_in = BurnInSettings(steps=round(steps * way.get("stretch", 1)), batch_size=BATCH, **(RATES | options))
    config = SampleConfig(
        chains=CHAINS,
        samples=CHAINS,
        seed=seed,
        network=preset("small"),
        burn_in=burn_in,
        output=OutputSettings(validations=40, records=40, checkpoint_seconds=0),
    )
    prepared = prepare(data, config)
    potential = Potential(prepared.model, prepared.resident(prepared.train, "cpu"), StandardNormal())
    clock, noted = Clock(), Noted()
    kind = KeepPrior if way.get("keep_prior") else Chains
    chains = kind.of(
        potential,
        replace(config, guard=replace(config.guard, interval=25)),
        validation=prepared.resident(prepared.validation, "cpu"),
    )
    state = run_chains(chains, noted, clock)
    early = chains.course.batches.early_steps
    for row in clock.rows:
        small = min(row["step"], early)
        row["frames"] = small * burn_in.early_batch_size + (row["step"] - small) * BATCH
    return {"options": way, "events": state.events, "curve": clock.rows, "failed": int(state.failed.sum()),
            "mean_square_weight": {row["step"]: noted.squares[row["step"]] for row in clock.rows}}  # fmt: skip


def first_below(curve: list[dict[str, Any]], threshold: float) -> dict[str, Any] | None:
    """Where the mean error over chains first falls below the threshold."""
    for row in curve:
        if np.mean(row["force_mae"]) < threshold:
            return {key: row[key] for key in ("step", "frames", "cpu_seconds")}
    return None


def summary(result: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Final errors, compared chain by chain with the burn-in without options, and where the thresholds are crossed."""
    final, before = (np.array(r["curve"][-1]["force_mae"]) for r in (result, plain))
    difference = final - before
    return {
        "final_force_mae": final.tolist(),
        "final_mean": float(final.mean()),
        "difference_to_no_option": float(difference.mean()),
        "difference_error": float(difference.std(ddof=1) / np.sqrt(len(difference))),
        "final_force_sigma": float(np.mean(result["curve"][-1]["force_sigma"])),
        "first_below": {str(limit): first_below(result["curve"], limit) for limit in THRESHOLDS},
    }


def plot(results: dict[str, Any], path: Path) -> None:
    """Mean error of the chains (meV/Å) against steps, frames and processor time; the band spans the chains."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = {"step": "steps", "frames": "frames per chain", "cpu_seconds": "processor time (s)"}
    figure, panels = pyplot.subplots(1, 3, figsize=(15, 4.6), sharey=True, layout="constrained")
    for panel, (key, label) in zip(panels, axes.items()):
        for name, result in results.items():
            x = [row[key] for row in result["curve"]]
            errors = 1000 * np.array([row["force_mae"] for row in result["curve"]])
            panel.plot(x, errors.mean(1), label=name, lw=1.2)
            panel.fill_between(x, errors.min(1), errors.max(1), alpha=0.1)
        panel.set(xlabel=label, yscale="log")
    panels[0].set_ylabel("held-back force MAE (meV/Å)")
    panels[0].legend(fontsize=8)
    save_figure(figure, path)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=3000, help="steps of each burn-in (default 3000)")
    parser.add_argument("--output", type=Path, default=Path("results/fast-burn-in"), help="folder for report and plot")
    parser.add_argument(
        "--weights", action="store_true", help="only print the mean square of the weights along the burn-in"
    )
    parser.add_argument(
        "--data", help="other frames, such as rmd17_malonaldehyde.npz@train_01 (default: bundled ethanol)"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="variants besides `no option` (default: all)")
    options = parser.parse_args()
    data = read(options.data) if options.data else bundled_ethanol("train")
    ways = [name for name in WAYS if not options.ways or name in ("no option", *options.ways)]
    torch.set_num_threads(1)
    if options.weights:
        for name in ("no option", "cold half", "cold half, with the prior"):
            squares = run(WAYS[name], 1200, data, options.seed)["mean_square_weight"]
            print(f"{name:32s}", "  ".join(f"{step}: {square:.2f}" for step, square in list(squares.items())[::6]))
        return
    results: dict[str, Any] = {}
    for name in ways:
        way = WAYS[name]
        results[name] = run(way, options.steps, data, options.seed)
        last = results[name]["curve"][-1]
        errors = ", ".join(f"{1000 * error:.1f}" for error in last["force_mae"])
        print(f"{name:32s} {last['step']} steps, {last['cpu_seconds']:.0f} s: {errors} meV/Å", flush=True)
    report = {
        "chains": CHAINS,
        "seed": options.seed,
        "data": data.name,
        "batch_size": BATCH,
        "steps": options.steps,
        "summary": {name: summary(result, results["no option"]) for name, result in results.items()},
        "runs": results,
        "provenance": provenance(),
    }
    save_json(options.output / "report.json", report, indent=None)
    plot(results, options.output / "curves.png")


if __name__ == "__main__":
    main()
