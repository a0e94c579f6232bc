"""Error against steps for a diagonal and a matrix mass, without noise and prior, by the engine of the run.

    python -m studies.matrix_mass --case small-ethanol       one network on one system; results/mass/cases
    python -m studies.matrix_mass --report                   results/mass/report.json, README table and curves.png
    python -m studies.matrix_mass --quick --case small-ethanol --output build/mass     to see that it runs

Three networks from different random weights learn at once, each with its own minibatches, and are judged one by one.
The learning rate decays linearly to 0.3 % of its start, so every number of steps is a run of its own.  How many fewer
steps the matrix mass needs is read off at each of its errors: where the error of the diagonal mass, interpolated
between its runs in log(steps) and log(error), is the same.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import Flat
from equibayes.data.dataset import Dataset
from equibayes.run.chains import make_chains
from equibayes.run.loop import run as run_chains
from equibayes.run.prepare import lay_out
from equibayes.run.progress import Silent
from equibayes.run.settings import sample_config
from equibayes.sampling import sghmc
from studies.presets.frames import FOLDER, frames
from studies.shared.options import add_commit, add_device, parser_of, start
from studies.shared.results import provenance, read_json, save_figure, save_json

MASSES: tuple[sghmc.Mass, ...] = ("diagonal", "matrix")
CHAINS, BATCH, DECAY = 3, 4, 1 / 300
RATES = {"small": 3e-2, "medium": 3e-2, "paper": 1e-2}
"""γ at the start.  The paper's network loses chains at 3e-2 with a diagonal mass."""
SYSTEMS = ("ethanol", "malonaldehyde", "aspirin", "silicon")
CASES = [f"{network}-{system}" for network in RATES for system in SYSTEMS]
STEPS = {"diagonal": (1250, 2500, 5000, 10_000, 20_000), "matrix": (1250, 2500, 5000)}
FEWER = {"small-silicon": 0.5, "medium-aspirin": 0.5, "medium-silicon": 0.25}
"""Share of these steps for systems that take longer on a CPU."""


class Clock(Silent):
    """Processor and wall time per step, once everything is compiled."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float, float]] = []

    def advance(self, step: int) -> None:
        self.seen.append((step, time.process_time(), time.monotonic()))

    def per_step(self) -> dict[str, float]:
        first, last = self.seen[min(2, len(self.seen) - 2)], self.seen[-1]
        steps = max(1, last[0] - first[0])
        return {"cpu_ms": 1e3 * (last[1] - first[1]) / steps, "wall_ms": 1e3 * (last[2] - first[2]) / steps}


def learn(
    mass: str, network: str, steps: int, seed: int, data: tuple[Dataset, Dataset], device: str, rate: float
) -> dict[str, Any]:
    """Errors of the networks at the end of a run with so many steps, meV/Å, on frames that nothing is learned from."""
    values = {
        "seed": seed,
        "chains": CHAINS,
        "samples": CHAINS,
        "sampler": {"mass": mass, "temperature": 0.0},
        "burn_in": {
            "steps": steps, "epochs": None, "batch_size": BATCH, "initial": rate, "final": rate * DECAY,
            "freeze_mass": 1.0, "noise_free": 0.0,
        },
        "output": {"validations": 1, "records": 1},
    }  # fmt: skip
    config = sample_config("quick", network, values)
    prepared = lay_out(*data, config)
    chains = make_chains(
        prepared, data[0], device, potential=lambda each, train, _: Potential(each.model, train, Flat())
    )
    clock = Clock()
    state = run_chains(chains, display=clock)
    errors = [1e3 * value for value in state.history[-1]["validation_force_mae"]]
    found = {"steps": state.step, "force_mae": errors, "engine": state.engine, **clock.per_step()}
    print(mass, network, data[0].name, found, state.events[:1], flush=True)
    return found | {"events": state.events}


def case(name: str, given: Any) -> None:
    """All runs of a network on a system, each kept as soon as it is done."""
    path = given.output / "cases" / f"{name}.json"
    network, system = name.split("-")
    learned, judged = frames(system, None, given.folder)
    data = learned, thinned(judged)
    rate = given.rate or RATES[network]
    found = read_json(path) or {"case": name, "rate": rate, "seed": given.seed, "frames": len(learned), "runs": {}}
    share = 0.01 if given.quick else FEWER.get(name, 1.0)
    for mass in MASSES[::-1]:
        for steps in STEPS[mass]:
            count = round(share * steps)
            rows = found["runs"].setdefault(mass, {})
            if str(count) not in rows:
                rows[str(count)] = learn(mass, network, count, given.seed, data, given.device, rate)
                found["provenance"] = provenance(given.commit)
                save_json(path, found)


def thinned(data: Dataset) -> Dataset:
    """At most 200 frames: those that nothing is learned from are evaluated at the end of every run."""
    return data.subset(range(0, len(data), max(1, len(data) // 200)))


def fewer_steps(runs: dict[str, dict[str, Any]]) -> list[dict[str, float]]:
    """For every run with the matrix mass: its error, and how many times as many steps the diagonal mass needs.

    `at_least` where the longest run of the diagonal mass has not come so far.
    """
    curves = {
        mass: sorted((row["steps"], float(np.median(row["force_mae"]))) for row in rows.values())
        for mass, rows in runs.items()
    }
    steps, errors = map(np.array, zip(*curves["diagonal"]))
    lowest = np.minimum.accumulate(errors)
    found = []
    for count, error in curves["matrix"]:
        if error < lowest[-1]:
            ratio, bound = steps[-1] / count, True
        else:
            ratio, bound = np.exp(np.interp(-np.log(error), -np.log(lowest), np.log(steps))) / count, False
        found.append({"steps": count, "error": error, "ratio": float(ratio), "at_least": bound})
    return found


def report(output: Path) -> None:
    """One file, one table and one figure from all cases."""
    cases = [found for name in CASES if (found := read_json(output / "cases" / f"{name}.json"))]
    rows = {found["case"]: fewer_steps(found["runs"]) for found in cases}
    content = {
        found["case"]: {
            "fewer_steps": rows[found["case"]],
            "errors": {
                mass: {steps: run["force_mae"] for steps, run in runs.items()} for mass, runs in found["runs"].items()
            },
            "ms_per_step": {
                mass: min(run["cpu_ms" if "native" in run["engine"] else "wall_ms"] for run in runs.values())
                for mass, runs in found["runs"].items()
            },
            "engine": next(iter(found["runs"]["matrix"].values()))["engine"],
            "rate": found["rate"],
            "frames": found["frames"],
            "provenance": found["provenance"],
        }
        for found in cases
    }
    save_json(output / "report.json", {"command": "python -m studies.matrix_mass", "cases": content})
    print("| network | system | steps | error, matrix | diagonal, equal steps | fewer steps | ms per step |")
    print("|---|---|---|---|---|---|---|")
    for name, found in content.items():
        network, system = name.split("-")
        last = found["fewer_steps"][-1]
        plain = np.median(found["errors"]["diagonal"].get(str(nearest(found["errors"]["diagonal"], last["steps"]))))
        bound = "> " if last["at_least"] else ""
        time_ = ", ".join(f"{mass} {value:.2f}" for mass, value in found["ms_per_step"].items())
        print(
            f"| {network} | {system} | {last['steps']} | {last['error']:.1f} | {plain:.1f} | {bound}{last['ratio']:.1f} | {time_} |"
        )
    plot(content, output / "curves.png")


def nearest(runs: dict[str, Any], steps: int) -> str:
    return min(runs, key=lambda count: abs(np.log(int(count) / steps)))


def plot(cases: dict[str, Any], path: Path) -> None:
    """Median error of three networks against steps, one panel per network and system."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    networks = [name for name in RATES if any(case.startswith(name) for case in cases)]
    systems = [name for name in SYSTEMS if any(case.endswith(name) for case in cases)]
    size = 3 * len(systems), 2.4 * len(networks)
    figure, panels = pyplot.subplots(len(networks), len(systems), figsize=size, squeeze=False, layout="constrained")
    for row, network in zip(panels, networks):
        for panel, system in zip(row, systems):
            panel.set_title(f"{network}, {system}", fontsize=9)
            for mass, runs in cases.get(f"{network}-{system}", {}).get("errors", {}).items():
                steps = sorted(map(int, runs))
                panel.loglog(steps, [np.median(runs[str(count)]) for count in steps], "o-", ms=3, label=mass)
    panels[0][0].legend(title="mass", fontsize=8)
    figure.supxlabel("steps")
    figure.supylabel("force error of one network, meV/Å")
    save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--case", nargs="+", choices=CASES, default=[], help="networks and systems")
    parser.add_argument("--report", action="store_true", help="table and figure from all cases that are there")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, help=f"γ at the start (default {RATES})")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the steps: shows that it runs")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the data (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/mass"), help="folder (default: %(default)s)")
    add_device(parser)
    add_commit(parser)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    for name in given.case:
        case(name, given)
    if given.report:
        report(given.output)


if __name__ == "__main__":
    start(lambda: main())
