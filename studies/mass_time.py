"""What the matrix mass costs: processor time of a whole step of the compiled engine, beside the diagonal mass.

    python -m studies.mass_time                    small, medium and paper network; results/mass/time.json
    python -m studies.mass_time --network small --rounds 3 --output build/mass     to see that it runs

One chain, one thread, batches of 4 frames of ethanol; both masses turn by turn, best and median of all rounds.  While
the mass adapts (nine tenths of a burn-in) gradients are gathered and the basis follows them as often as after 1000
steps; later it is constant.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data import bundled_ethanol
from equibayes.engine.native.module import load
from equibayes.engine.native.steps import NativeStepper
from equibayes.run.prepare import prepare
from equibayes.run.settings import sample_config
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stretch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan
from studies.shared.options import add_commit, parser_of, start
from studies.shared.results import provenance, save_json

BATCH, BEFORE = 4, 1000
STEPS = {"small": 50, "medium": 20, "paper": 5}
MASSES: tuple[sghmc.Mass, ...] = ("diagonal", "matrix")


def stretches(network: str) -> dict[str, Callable[[], Any]]:
    """Calls that make STEPS steps each: both masses, while they adapt and when they are frozen."""
    data = bundled_ethanol("train")[:100]
    prepared = prepare(data, sample_config("quick", network, {"data": {"validation": 0}}))
    potential = Potential(prepared.model, prepared.resident(prepared.train, "cpu"), StandardNormal())
    module, key = load(potential.model, steps=True), NoiseKey(0, [0])
    count = STEPS[network]
    indices = torch.from_numpy(np.random.default_rng(0).integers(0, len(data), (count, 1, BATCH)))
    rates = torch.full((count, 1), 1e-8, dtype=torch.float64)  # so small that the weights stay where they are
    calls: dict[str, Callable[[], Any]] = {}
    for mass in MASSES:
        config = sghmc.SGHMCConfig(mass=mass)
        state = sghmc.init(potential.model.layout.start(1, 0), blocks=config.blocks(potential.model.layout.shapes))
        stepper = NativeStepper(potential, state, key, config, module=module)

        def call(frozen: bool, stepper: NativeStepper = stepper, state: sghmc.State = state) -> None:
            if not frozen:
                state.mass.updates.fill_(BEFORE)
            plans = [StepPlan(1e-8, 1.0, "burn_in", i, -1, frozen, False) for i in range(count)]
            stepper.advance(Stretch(0, plans, indices), rates)

        calls[f"{mass}, adapting"] = partial(call, False)
        calls[f"{mass}, frozen"] = partial(call, True)
    return calls


def measure(network: str, rounds: int) -> dict[str, Any]:
    """ms per step, and the ratio of the masses from the best times."""
    calls = stretches(network)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            began = time.process_time()
            call()
            if number:  # the first is warm-up
                times[name].append(1e3 * (time.process_time() - began) / STEPS[network])
    rows = {name: {"best": min(found), "median": median(found)} for name, found in times.items()}
    ratios = {
        phase: rows[f"matrix, {phase}"]["best"] / rows[f"diagonal, {phase}"]["best"] for phase in ("adapting", "frozen")
    }
    print(network, {name: round(row["best"], 4) for name, row in rows.items()}, ratios, flush=True)
    return {"ms_per_step": rows, "matrix_over_diagonal": ratios}


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--network", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--rounds", type=int, default=40, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("results/mass"), help="folder (default: %(default)s)")
    add_commit(parser)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    networks = {name: measure(name, given.rounds) for name in given.network}
    about = {"batch": BATCH, "rounds": given.rounds, "provenance": provenance(given.commit)}
    save_json(given.output / "time.json", {"networks": networks, **about})


if __name__ == "__main__":
    start(lambda: main())
