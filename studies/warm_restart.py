"""How chains should go on when labels are added: error after several rounds of new frames, for several warm restarts.

    python -m studies.warm_restart --data ethanol            five minutes on one core
    python -m studies.warm_restart --data ethanol --quick --output build/warm      to see that it runs

A posterior of 60 frames; then six rounds of 8 more frames each, after each of which the chains go on for a sixth of
their first steps.  For comparison, chains from random weights with all frames and the steps of all rounds together.
Errors are those on held-back frames.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from equibayes.config import parse_overrides
from equibayes.data import Dataset
from equibayes.learning.resample import ResampleSettings
from equibayes.posterior.file import Posterior
from equibayes.run.settings import SampleConfig, sample_config
from studies.presets.frames import FOLDER, frames
from studies.presets.trial import judged_by
from studies.shared.options import add_commit, add_device, parser_of, start
from studies.shared.results import provenance, save_json
from studies.shared.runs import resampled, sampled_all

BEGIN, MORE, ROUNDS = 60, 8, 6
LENGTH = 1 / 6
"""Of a warm restart, in units of the first burn-in."""
WAYS = {
    "exponential, noise": ResampleSettings(burn_in=LENGTH),
    "linear, noise": ResampleSettings(burn_in=LENGTH, decay="linear"),
    "linear, half cold": ResampleSettings(burn_in=LENGTH, decay="linear", noise_free=0.5, freeze_mass=0.75),
    "linear, cold 0.9": ResampleSettings(burn_in=LENGTH, decay="linear", noise_free=0.9, freeze_mass=0.9),
    "linear, cold 0.9, γ × 0.1": ResampleSettings(
        burn_in=LENGTH, decay="linear", noise_free=0.9, freeze_mass=0.9, initial=0.1
    ),
    "linear, cold 0.9, γ × 1": ResampleSettings(
        burn_in=LENGTH, decay="linear", noise_free=0.9, freeze_mass=0.9, initial=1.0
    ),
}


def rounds(way: ResampleSettings, config: SampleConfig, first: Posterior, data: Dataset, judge: Any) -> list[Any]:
    """What the posterior is worth after each round."""
    found, posterior = [], first
    for number in range(1, ROUNDS + 1):
        seen, more = data[: BEGIN + MORE * (number - 1)], data[: BEGIN + MORE * number]
        posterior = resampled(posterior, more, config, way, seen=seen)
        found.append(judge(posterior))
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", default="ethanol", help="molecule of rMD17 or crystal (default: %(default)s)")
    parser.add_argument("--network", default="medium", help="named network (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=6000, help="first steps of each chain (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings to change")
    parser.add_argument("--quick", action="store_true", help="60 steps: shows that it runs")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the data (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/presets"), help="default: %(default)s")
    add_device(parser)
    add_commit(parser)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    values: dict[str, Any] = {
        "seed": given.seed,
        "chains": 4,
        "samples": 4,
        "data": {"validation": 0},
        "sampler": {"mass": "matrix"},
        "burn_in": {"steps": 60 if given.quick else given.steps, "epochs": None, "initial": 3e-2, "final": 1e-4},
        "output": {"validations": 0},
    }
    config = sample_config("quick", given.network, values, parse_overrides(given.set))
    data, judged = frames(given.data, None, given.folder)

    def judge(posterior: Posterior) -> dict[str, float]:
        found = judged_by(posterior, judged, given.device)
        return {key: found[key] for key in ("mae", "rmse", "sigma", "mll", "in_68")}

    first = sampled_all(data[:BEGIN], data[:0], config, device=given.device)
    report: dict[str, Any] = {"data": given.data, "config": config.to_dict(), "first": judge(first), "ways": {}}
    print("first", report["first"], flush=True)
    longer = replace(config, burn_in=replace(config.burn_in, steps=round((1 + ROUNDS * LENGTH) * config.burn_in.steps)))
    last = data[: BEGIN + MORE * ROUNDS]
    report["from random weights"] = judge(sampled_all(last, data[:0], longer, device=given.device))
    print("from random weights", report["from random weights"], flush=True)
    for name, way in WAYS.items():
        report["ways"][name] = rounds(way, config, first, data, judge)
        print(name, report["ways"][name][-1], flush=True)
        save_json(given.output / f"warm-{given.data}.json", report | {"provenance": provenance(given.commit)})


if __name__ == "__main__":
    start(lambda: main())
