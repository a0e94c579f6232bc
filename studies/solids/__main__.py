"""Stress, energies and properties of solids: alloys of EMT, crystals of SevenNet-0, and Si, Li, Mo of mlearn.

    python -m studies.solids Cu --seed 1                  samples, refines, judges; OUTPUT/Cu-1.json
    python -m studies.solids Cu-Au --tune --name r6 --set network.r_max=6      settings, on frames of their own
    python -m studies.solids --table                      results/solids/TABLES.md from all cases of OUTPUT
    python -m studies.solids Cu --quick                   some seconds: shows that it runs

A finished case is not repeated.  Properties are computed with every member and, by the same procedure, with the engine.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data import Dataset
from equibayes.errors import InputError
from equibayes.evaluation.evaluated import evaluate
from equibayes.evaluation.tables import measure
from equibayes.posterior.calibrate import calibrate
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.predict import predict
from equibayes.posterior.sample import sample_prepared
from equibayes.posterior.tangent import refine
from equibayes.run import Run
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.settings import SampleConfig
from equibayes.solids.properties import Properties, properties
from studies.presets.frames import FOLDER
from studies.shared.options import add_commit, add_quick, parser_of, start
from studies.shared.results import provenance, save_json
from studies.solids.cases import ELEMENTS, Case, case
from studies.solids.settings import LARGE_CELLS, PERIODIC, config

ELEMENTS_OF_MLEARN = {"burn_in": {"steps": 3000}}
QUICK = {"burn_in": {"steps": 100}, "cycles": {"length": 20}, "output": {"validations": 1}}
ASKED = ("lattice", "eos", "elastic")
DRAWS = 2
KEPT = (
    "force_mae", "force_rmse", "force_mll", "force_auc", "force_sharpness", "force_coverage_68", "force_coverage_95",
    "energy_mae", "energy_coverage_68", "energy_coverage_95", "stress_coverage_68", "stress_coverage_95",
)  # fmt: skip
KEPT_GPA = ("stress_mae", "stress_rmse", "stress_sharpness")


def config_of(name: str, seed: int, overrides: Sequence[str], network: str | None, quick: bool) -> SampleConfig:
    large = (LARGE_CELLS, ELEMENTS_OF_MLEARN) if name in ELEMENTS else ()
    own = {"seed": seed, "output": {"validations": 8}}
    return config(network, overrides, PERIODIC, *large, own, QUICK if quick else {})


def run(which: Case, config: SampleConfig, file: Path, *, refined: bool = True) -> dict[str, Any]:
    """Everything that is reported about one case; the posterior is kept in `file`."""
    config = replace(config, data=replace(config.data, validation=which.held_back))
    seconds: dict[str, float] = {}
    prepared = prepare(which.learn, config)
    if file.exists():
        posterior = load(file)
    else:
        began = time.process_time()
        posterior = sample_prepared(prepared, which.learn, Run(device="cpu"))
        seconds["sample"] = time.process_time() - began
        posterior.save(file)
    views = {"sampled": posterior}
    if refined:
        began = time.process_time()
        views["refined"] = refine(posterior, prepared.train, prepared.validation, draws=DRAWS, seed=config.seed)
        seconds["refine"] = time.process_time() - began
        calibrated = calibrate(views["refined"], prepared.validation, device="cpu")
    engine = which.known or _values(_properties(which.engine, which) if which.engine is not None else {})
    found: dict[str, Any] = {"seconds": seconds, "views": {}, "engine": engine}
    for name, view in views.items():
        judged = {"held_back": prepared.validation, "test": which.test}
        found["views"][name] = {place: errors(view, frames) for place, frames in judged.items()}
        found["views"][name]["properties"] = _values(_properties(view, which))
        found["views"][name]["tangent"] = view.verdict.get("tangent")
    if refined:
        found["calibrated"] = {"test": errors(calibrated, which.test), "intervals": intervals(calibrated, which.test)}
    return found | {"frames": _counts(prepared, which), "verdict": posterior.verdict.get("warnings")}


def errors(posterior: Posterior, frames: Dataset) -> dict[str, Any]:
    """Not recalibrated; energies also per atom, stress in GPa."""
    values = measure(evaluate(posterior, frames, device="cpu"))
    own = {key: values.get(key) for key in KEPT} | {key: values.get("gpa", {}).get(key) for key in KEPT_GPA}
    return own | {f"{key}_per_atom": value for key, value in values["per_atom"].items() if key.startswith("energy")}


def intervals(posterior: Posterior, frames: Dataset) -> dict[str, float]:
    """Share of the labels of the frames inside the conformal intervals of 68 and 95 %."""
    predictions = list(predict(posterior, frames, device="cpu"))
    upper, found = np.triu_indices(3), {}
    for level in (0.68, 0.95):
        pairs = [(p, s) for p, s in zip(predictions, frames, strict=True) if s.stress_label is not None]
        stress = [(abs(p.stress - s.stress) <= p.stress_interval(level))[upper] for p, s in pairs]
        forces = [(abs(p.forces - s.forces) <= p.interval(level)[1]).ravel() for p, s in zip(predictions, frames)]
        found[f"forces_{100 * level:g}"] = float(np.concatenate(forces).mean())
        if stress:
            found[f"stress_{100 * level:g}"] = float(np.concatenate(stress).mean())
    return found


def _properties(potential: Any, which: Case) -> dict[str, Properties]:
    try:
        return {name: properties(potential, atoms, only=ASKED) for name, atoms in which.crystals.items()}
    except InputError as cause:
        print(f"no properties: {cause}", flush=True)
        return {}


def _values(found: dict[str, Properties]) -> dict[str, Any]:
    """crystal → property → name → {value, sigma, unit, members}"""
    return {
        crystal: {group: {name: each.to_dict() for name, each in own.items()} for group, own in one.numbers.items()}
        for crystal, one in found.items()
    }


def _counts(prepared: Prepared, which: Case) -> dict[str, int]:
    return {"learned": len(prepared.train), "held_back": len(prepared.validation), "test": len(which.test)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "system", nargs="*", help="Cu, Cu-Au, … (EMT), 7net-Al, 7net-Si, 7net-MgO, Si, Li or Mo (mlearn)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of frames and chains (default: %(default)s)")
    parser.add_argument("--count", type=int, default=100, help="frames of EMT to learn from (default: %(default)s)")
    parser.add_argument("--name", default="", help="of other settings; part of the file name")
    parser.add_argument("--tune", action="store_true", help="judge by frames on which settings may be chosen")
    parser.add_argument("--no-refine", action="store_true", help="the sampled posterior alone")
    parser.add_argument("--network", help="named network (default: that of the preset quick)")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings to change")
    parser.add_argument("--table", action="store_true", help="make the tables from finished cases")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the data (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/solids/cases"), help="(default: %(default)s)")
    parser.add_argument("--posteriors", type=Path, default=Path("build/solids"), help="folder (default: %(default)s)")
    add_quick(parser, "some seconds")
    add_commit(parser)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    given.posteriors.mkdir(parents=True, exist_ok=True)
    for system in given.system:
        stem = "-".join(part for part in (system, given.name, "tune" if given.tune else "", str(given.seed)) if part)
        target = given.output / f"{stem}.json"
        if target.exists():
            print(f"{target}: already there")
            continue
        which = case(system, given.seed, given.folder, count=given.count, tune=given.tune, quick=given.quick)
        settings = config_of(system, given.seed, given.set, given.network, given.quick)
        found = run(which, settings, given.posteriors / f"{stem}.posterior", refined=not given.no_refine)
        about = {"system": system, "name": given.name, "seed": given.seed, "count": given.count, "set": given.set}
        about["tune"] = given.tune
        about |= {"network": given.network, "config": settings.to_dict()}
        save_json(target, about | found | {"provenance": provenance(given.commit)}, indent=None)
        print(stem, _line(found), flush=True)
    if given.table:
        from studies.solids.tables import write

        write(given.output)


def _line(found: dict[str, Any]) -> str:
    """In short: errors of every view on the frames judged by."""
    words = [f"{name} {value:.0f} s" for name, value in found["seconds"].items()]
    for name, view in found["views"].items():
        test = view["test"]
        stress = (
            f"stress {test['stress_mae']:.3f} GPa in68 {test['stress_coverage_68']:.2f}" if test["stress_mae"] else ""
        )
        words.append(
            f"{name}: F {1e3 * test['force_mae']:.2f} meV/Å in68 {test['force_coverage_68']:.2f} "
            f"E/atom {1e3 * test['energy_mae_per_atom']:.3f} meV {stress}"
        )
    return "; ".join(words)


if __name__ == "__main__":
    start(main)
