"""A benchmark of doubt: does a model know where it does not know?

    python -m studies.doubt ethanol 3bpa silicon --folder work/doubt --output results/doubt
    python -m studies.doubt malonaldehyde --data RMD17 --folder work/doubt --output results/doubt
    python -m studies.doubt ethanol --quick --folder work/quick --output out          a minute

Every method learns the same frames with the network `small` and the settings of the preset `quick`, and predicts
frames in distribution and far from it (`cases.py`, `probes.py`), whose labels come from the engine of the training
frames.  Labels and networks are kept in FOLDER; OUTPUT/CASE/METHOD.json is written as soon as a method is tested.  A
killed run continues with the same command.
`python -m studies.doubt.tables OUTPUT` makes the tables.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from equibayes.config import parse_overrides
from equibayes.errors import InputError
from equibayes.files import make_folder
from equibayes.run.settings import SampleConfig, sample_config
from studies.domain_shift.cases import evenly
from studies.doubt.cases import CASES, INSIDE, Case, make_case
from studies.doubt.measures import Usual, by_frame, measured
from studies.doubt.methods import METHODS, PRIORS, make
from studies.shared.options import add_commit, add_folders, add_quick, add_settings, parser_of, start
from studies.shared.results import provenance, read_json, save_json


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("cases", nargs="+", choices=CASES, metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--data", type=Path, help="folder with rmd17_malonaldehyde.npz and its splits")
    parser.add_argument(
        "--methods", nargs="+", choices=(*METHODS, *PRIORS), default=METHODS, help="default: all but those with a prior"
    )
    add_folders(parser, "doubt")
    parser.add_argument("--labels", type=Path, help="folder with the labels, if not FOLDER/labels")
    add_settings(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of networks and of the held-back frames (default 0)")
    add_commit(parser)
    add_quick(parser, "a tiny network and few frames")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.cases:
        case = make_case(name, make_folder(options.labels or options.folder / "labels"), options.data)
        run(small(case) if options.quick else case, options)


def run(case: Case, options: argparse.Namespace) -> None:
    """Every method on one case."""
    config = settings(case, options)
    key = {"settings": json.loads(json.dumps(config.to_dict())), "data": case.fingerprints()}
    for name in options.methods:
        file = options.output / case.name / f"{name}.json"
        there = read_json(file)
        if there is not None:
            if any(there.get(part) != value for part, value in key.items()):
                raise InputError(f"{file}: was made with other data or settings; choose another --output")
            print(f"{case.name} {name}: already done", flush=True)
            continue
        folder = make_folder(options.folder / ("quick" if options.quick else "networks") / case.name)
        method = make(name, case.data, config, folder)
        results = {kind: method.predict(frames) for kind, frames in case.probes.items()}
        usual = Usual.of(results[INSIDE])
        sets = {kind: measured(result, usual) for kind, result in results.items()}
        same = method.plain is method.predict
        plain = results if same else {kind: method.plain(frames) for kind, frames in case.probes.items()}
        own = Usual.of(plain[INSIDE])
        alone = {kind: measured(result, own) for kind, result in plain.items()}
        about = {"case": case.name, "method": name, **key, "seed": options.seed, "made": method.about}
        if name == "bayes":
            about["frames"] = {kind: by_frame(result) for kind, result in results.items()}
        save_json(file, {**about, "provenance": provenance(options.commit), "sets": sets, "without_floor": alone})
        print(f"{case.name} {name}: {said(sets)}", flush=True)


def settings(case: Case, options: argparse.Namespace) -> SampleConfig:
    own: dict[str, Any] = {"seed": options.seed}
    if case.name == "silicon":
        own["network"] = {"r_max": 5.0}
    if options.quick:
        own |= {"burn_in": {"steps": 40}, "cycles": {"length": 10}, "data": {"validation": 10}}
    return sample_config("quick", "tiny" if options.quick else "small", own, parse_overrides(options.set))


def small(case: Case) -> Case:
    """A few frames of each set."""
    probes = {kind: evenly(frames, 4) for kind, frames in case.probes.items()}
    return Case(case.name, evenly(case.data, 40), probes)


def said(sets: dict[str, dict[str, Any]]) -> str:
    """What is trusted although it is wrong."""
    bad = sum(each["bad"] for each in sets.values())
    words = [f"{sum(each[key] for each in sets.values())}" for key in ("bad_trusted_by_sigma", "bad_trusted")]
    alarms = sets[INSIDE]["novel"]
    return f"of {bad} bad frames {words[0]} trusted by σ, {words[1]} by σ and novelty; false alarms {alarms}"


if __name__ == "__main__":
    start(main)
