"""Are energies learned or taken for noise?  Posteriors beside a point estimate with the same number of steps.

    python -m studies.energies ethanol --seed 0           OUTPUT/ethanol-0.json
    python -m studies.energies --list                     the data sets
    python -m studies.energies --table                    results/energies/TABLES.md from all cases of OUTPUT
    python -m studies.energies ethanol --quick            some seconds: shows that it runs

Methods: `plain`, the likelihood throughout (burn_in.balance=0); `balanced`, with the balance of the presets; `point`,
one network and NequIP's loss; all with the network `small`, the matrix mass and 2750 steps.  A finished method is not
repeated.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.baselines.train import train
from equibayes.data import Dataset
from equibayes.evaluation.evaluated import evaluate
from equibayes.evaluation.tables import measure
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import predict
from equibayes.posterior.sample import sample
from equibayes.run import Run
from equibayes.run.settings import SampleConfig
from studies.energies.frames import HELD_BACK, PERIODIC_SETS, SETS, frames
from studies.presets.frames import FOLDER
from studies.shared.options import add_commit, add_quick, parser_of, start
from studies.shared.results import provenance, read_json, save_json
from studies.solids.settings import BALANCE, LARGE_CELLS, PERIODIC, config

METHODS = {"plain": 0.0, "balanced": BALANCE, "point": 0.0}
STEPS = {"burn_in": {"steps": 2500}, "cycles": {"length": 250}}
QUICK = {"burn_in": {"steps": 60}, "cycles": {"length": 10}}


def config_of(name: str, seed: int, balance: float, overrides: Sequence[str], quick: bool) -> SampleConfig:
    large = (PERIODIC, LARGE_CELLS) if name in PERIODIC_SETS else ()
    own = {
        "seed": seed,
        "data": {"validation": HELD_BACK},
        "burn_in": {"balance": balance},
        "output": {"validations": 0},
    }
    return config(None, overrides, STEPS, *large, own, QUICK if quick else {})


def run(method: str, config: SampleConfig, sets: tuple[Dataset, Dataset, Dataset]) -> dict[str, Any]:
    """Errors of one method: of the mean, and of its members one by one."""
    began = time.process_time()
    learn, tune, test = sets
    posterior = train("point", learn, config, run=Run()) if method == "point" else sample(learn, config, run=Run())
    seconds = time.process_time() - began
    judged = {"tune": tune, "test": test}
    return {"seconds": seconds, **{place: errors(posterior, data) for place, data in judged.items()}}


def errors(posterior: Posterior, data: Dataset) -> dict[str, Any]:
    """meV and meV/Å."""
    values = measure(evaluate(posterior, data, device="cpu"))
    alone = [each.members["energy"] for each in predict(posterior, data, members=True, device="cpu") if each.members]
    truth = np.array([structure.energy for structure in data])
    return {
        "energy": 1e3 * values["energy_mae"],
        "energy_per_atom": 1e3 * values["per_atom"]["energy_mae"],
        "energy_sigma": 1e3 * values["energy_sharpness"],
        "energy_in_68": values["energy_coverage_68"],
        "energy_of_members": (1e3 * np.abs(np.array(alone) - truth[:, None]).mean(0)).tolist() if alone else None,
        "force": 1e3 * values["force_mae"],
        "force_in_68": values["force_coverage_68"],
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("set", nargs="*", metavar="SET", help=f"one of {', '.join(SETS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--name", default="", help="of other settings; part of the file name")
    parser.add_argument("--set", dest="changes", nargs="+", default=[], metavar="KEY=VALUE", help="settings to change")
    parser.add_argument("--list", action="store_true", help="list the data sets")
    parser.add_argument("--table", action="store_true", help="make the tables from finished cases")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the data (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/energies/cases"), help="(default: %(default)s)")
    add_quick(parser, "some seconds")
    add_commit(parser)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    if given.list:
        print("\n".join(SETS))
    for name in given.set:
        stem = "-".join(part for part in (name, given.name, str(given.seed)) if part)
        path = given.output / f"{stem}.json"
        found = read_json(path) or {"set": name, "name": given.name, "seed": given.seed, "methods": {}}
        sets = frames(name, given.folder)
        for method in given.method:
            if method in found["methods"]:
                continue
            settings = config_of(name, given.seed, METHODS[method], given.changes, given.quick)
            found["methods"][method] = run(method, settings, sets)
            found["config"] = settings.to_dict()
            save_json(path, found | {"provenance": provenance(given.commit)}, indent=None)
            own = found["methods"][method]["test"]
            print(f"{stem} {method}: energy {own['energy']:.2f} meV, force {own['force']:.2f} meV/Å", flush=True)
    if given.table:
        from studies.energies.tables import write

        write(given.output)


if __name__ == "__main__":
    start(main)
