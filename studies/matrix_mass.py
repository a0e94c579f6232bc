"""Error against steps for a diagonal and a matrix mass, without noise and prior.

    python -m studies.matrix_mass               results/mass/report.json and curves.png; five minutes on one core

Two networks per seed learn from 970 frames of bundled ethanol, with the learning rate decaying linearly to 0.3 % of its
start; errors are those of single networks on every tenth unseen frame.  Nothing is chosen on these frames.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import Flat
from equibayes.data.read import read
from equibayes.data.resident import ResidentData
from equibayes.engine.select import reference_stepper
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.settings import sample_config
from equibayes.run.validation import evaluation_of, in_parts
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Batches, Course, looks
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule
from studies.shared.options import parser_of
from studies.shared.results import provenance, save_json

MASSES: tuple[sghmc.Mass, ...] = ("diagonal", "matrix")
CHAINS, BATCH, START, END = 2, 4, 3e-2, 1e-4
LOOKS = 5


def force_errors(prepared: Prepared, position: torch.Tensor, data: ResidentData) -> list[float]:
    """Mean absolute error of each network, meV/Å."""
    with torch.no_grad():
        output = in_parts(evaluation_of(prepared.model, position, "reference"), len(position), data)
        labels = data.batch(torch.arange(len(data))[None])[1]
    return [1e3 * float(error) for error in (output.forces - labels.forces).abs().mean((1, 2))]


def learn(mass: sghmc.Mass, network: str, steps: int, seed: int) -> list[dict[str, Any]]:
    """Errors at several steps."""
    prepared = prepare(read("bundled:ethanol@train"), sample_config("quick", network, {"seed": seed}))
    unseen = prepared.resident(read("bundled:ethanol@test").subset(range(0, 1000, 10)), "cpu")
    potential = Potential(prepared.model, prepared.resident(prepared.train, "cpu"), Flat())
    layout, sampler = prepared.model.layout, sghmc.SGHMCConfig(mass=mass, temperature=0.0)
    key = NoiseKey(seed, range(CHAINS))
    state = sghmc.init(layout.start(CHAINS, seed), blocks=sampler.blocks(layout.shapes))
    schedule = Schedule(BurnIn(steps, START, END, "linear", noise_free_fraction=1.0), Cycles(count=0))
    course = Course(schedule, Batches(potential.data_size, BATCH, BATCH), key, max(1, steps // LOOKS))
    stepper, found = reference_stepper(potential, state, key, sampler), []
    for _ in looks(stepper, course, 0, lambda planned: planned[:, None].expand(-1, CHAINS)):
        found.append({"step": int(state.step), "force_mae": force_errors(prepared, state.position, unseen)})
        print(mass, network, "seed", seed, found[-1], flush=True)
    return found


def plot(curves: dict[str, list[list[dict[str, Any]]]], path: Path) -> None:
    """Mean over seeds and networks against steps."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(4.5, 3.2), layout="constrained")
    for mass, runs in curves.items():
        steps = [row["step"] for row in runs[0]]
        axes.plot(steps, [np.mean([run[i]["force_mae"] for run in runs]) for i in range(len(steps))], "o-", label=mass)
    axes.set(xlabel="steps", ylabel="force error of one network, meV/Å", yscale="log")
    axes.legend(title="mass")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=1500, help="steps of each run (default 1500)")
    parser.add_argument("--network", default="small", help="named network (default small)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default 0 1 2")
    parser.add_argument("--output", type=Path, default=Path("results/mass"), help="folder for the report")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    report: dict[str, Any] = {
        "command": "python -m studies.matrix_mass",
        "steps": given.steps,
        "network": given.network,
    }
    report |= {"seeds": given.seeds} | provenance()
    curves = {mass: [learn(mass, given.network, given.steps, seed) for seed in given.seeds] for mass in MASSES}
    last = {mass: [error for run in runs for error in run[-1]["force_mae"]] for mass, runs in curves.items()}
    report |= {"curves": curves, "force_mae": {mass: float(np.mean(errors)) for mass, errors in last.items()}}
    save_json(given.output / "report.json", report)
    plot(curves, given.output / "curves.png")
    print({mass: round(error, 1) for mass, error in report["force_mae"].items()})


if __name__ == "__main__":
    main()
