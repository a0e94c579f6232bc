"""Domain shift: sample and test one case; the numbers of each method are written as soon as they are known.

    python -m studies.domain_shift pedot   --device cuda --folder work --output results/domain-shift
    python -m studies.domain_shift alkanes --device cuda --folder work --output results/domain-shift --data ALKANES
    python -m studies.domain_shift 3bpa    --device cuda --folder work --output results/domain-shift
    python -m studies.domain_shift pedot   --quick --folder work --output out      half a minute on a CPU

A killed run continues with the same command; finished methods are not repeated.  Needs torch, numpy, safetensors and
vesin only.  `python -m studies.domain_shift.tables` makes tables and figures of the results.
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from equibayes.baselines.contestants import METHODS, Contestant
from equibayes.config import parse_overrides
from equibayes.errors import InputError
from equibayes.evaluation.evaluated import Evaluated, evaluate_each, recalibrated
from equibayes.files import make_folder
from equibayes.posterior.calibrate import calibrate
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.file import Posterior
from equibayes.run.progress import PlainDisplay
from equibayes.run.settings import SampleConfig, sample_config
from studies.domain_shift.cases import CASES, INSIDE, Case, small
from studies.domain_shift.measures import TIMES_INSIDE, curves, detection, inside_error, measured
from studies.shared.options import add_commit, add_device, add_folders, add_quick, add_settings, parser_of, start
from studies.shared.results import provenance, read_json, save_json
from studies.shared.runs import contestant as contestant_of

DEFAULT_METHODS = ("bayes", "dropout", "ensemble")
MEMBERS = 8
"""k of tables and figures."""


def settings(case: Case, options: argparse.Namespace) -> SampleConfig:
    """The preset `standard`, the settings of the case, those of the user; the case gives the validation frames."""
    own: dict[str, Any] = {"seed": options.seed, "data": {"validation": 0}, "output": {"checkpoint_seconds": 20.0}}
    network = None if options.quick else options.network
    return sample_config("standard", network, own, case.settings, parse_overrides(options.set))


def settings_of(method: str, case: Case, config: SampleConfig) -> SampleConfig:
    """An ensemble has as many networks as there are chains, each with the steps of a chain including its cycles."""
    if method != "ensemble":
        return config
    steps = config.schedule(len(case.train)).total_steps
    return replace(config, samples=config.chains, burn_in=replace(config.burn_in, steps=steps))


def latest_first(posterior: Posterior) -> Posterior:
    """The last sample of every chain first, so that the first k samples are the latest ones of k chains."""
    keys = zip((-posterior.step).tolist(), posterior.chain.tolist())
    order = [index for _, index in sorted((key, index) for index, key in enumerate(keys))]
    return replace(
        posterior, samples=posterior.samples[order], chain=posterior.chain[order], step=posterior.step[order]
    )


def report(case: Case, contestant: Contestant, device: str) -> dict[str, Any]:
    """All numbers of one method."""
    posterior = latest_first(contestant.posterior)
    ks = [k for k in case.ks if k <= len(posterior)]
    main = max(k for k in ks if k <= MEMBERS)
    began = time.monotonic()
    results = {
        name: dict(zip(ks, evaluate_each(posterior, frames, ks, device=device)))
        for name, (_, frames) in case.tests.items()
    }
    calibrated = calibrate(posterior, case.validation, device=device)
    evaluating = time.monotonic() - began
    assert calibrated.calibration is not None
    calibration = Calibration.from_dict(calibrated.calibration)
    kinds = {name: kind for name, (kind, _) in case.tests.items()}
    threshold = TIMES_INSIDE * inside_error([by_k[main] for name, by_k in results.items() if kinds[name] == INSIDE])
    fresh = {name: recalibrated(by_k[main], calibration) for name, by_k in results.items()}
    with ThreadPoolExecutor() as pool:  # numpy sorts in several threads, so that the GPU does not wait
        jobs = {
            name: {
                "raw": {str(k): pool.submit(measured, result, threshold) for k, result in by_k.items()},
                "recalibrated": {str(main): pool.submit(measured, fresh[name], threshold)},
                "curves": {
                    "raw": pool.submit(curves, by_k[main], threshold),
                    "recalibrated": pool.submit(curves, fresh[name], threshold),
                },
            }
            for name, by_k in results.items()
        }
        sets = {
            name: {"kind": kinds[name]}
            | {part: {key: job.result() for key, job in each.items()} for part, each in parts.items()}
            for name, parts in jobs.items()
        }
    return {
        "k": main,
        "networks": contestant.networks,
        "steps": contestant.steps,
        "sampling_seconds": contestant.seconds,
        "evaluation_seconds": evaluating,
        "config": posterior.config,
        "verdict": posterior.verdict,
        "history": [
            {"step": row["step"], "validation_force_mae_of_mean": row["validation_force_mae_of_mean"]}
            for row in posterior.history
            if "validation_force_mae_of_mean" in row
        ],
        "calibration": {
            part: {"method": found.method, "choice": found.choice}
            for part, found in (("forces", calibration.forces), ("energy", calibration.energy))
        },
        "sets": sets,
        "detection": {
            "raw": detect(kinds, {name: by_k[main] for name, by_k in results.items()}),
            "recalibrated": detect(kinds, fresh),
        },
    }


def detect(kinds: dict[str, str], results: dict[str, Evaluated]) -> dict[str, Any]:
    inside = [result for name, result in results.items() if kinds[name] == INSIDE]
    return detection(inside, {name: result for name, result in results.items() if kinds[name] != INSIDE})


def run(case: Case, options: argparse.Namespace) -> None:
    """Sample or train, test and write every method."""
    config = settings(case, options)
    folder, output = make_folder(options.folder / case.name), make_folder(options.output / case.name)
    for method in options.methods:
        file = output / f"{method}.json"
        own = settings_of(method, case, config)
        key = {"settings": json.loads(json.dumps(own.to_dict())), "data": case.fingerprints()}
        there = read_json(file)
        if there is not None:
            if any(there.get(name) != value for name, value in key.items()):
                raise InputError(f"{file}: was made with other data or settings; choose another --output")
            print(f"{case.name} {method}: already done", flush=True)
            continue
        contestant = contestant_of(
            method, case.train, own, folder, validation=case.validation, device=options.device, display=PlainDisplay()
        )
        found = {
            "case": case.name,
            "method": method,
            **key,
            "seed": options.seed,
            "provenance": provenance(options.commit),
            "precision": own.precision if options.device.startswith("cuda") else "float32",
            **report(case, contestant, options.device),
        }
        save_json(file, found, indent=None)
        print(f"{case.name} {method}: {said(found)}", flush=True)


def said(found: dict[str, Any]) -> str:
    """Errors and σ of every test set in one line."""
    k = str(found["k"])
    values = [(name, each["raw"][k]) for name, each in found["sets"].items()]
    words = [f"{name} {1e3 * v['force_rmse']:.1f} (σ {1e3 * v['rms_sigma']:.1f})" for name, v in values]
    return f"RMS errors of forces, meV/Å: {', '.join(words)}; {found['sampling_seconds'] or 0:.0f} s"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("case", choices=CASES, help="data set")
    parser.add_argument("--data", type=Path, help="folder of its npz files (default: where the repository has them)")
    add_device(parser, "cuda" if torch.cuda.is_available() else "cpu")
    add_folders(parser, "domain-shift")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=DEFAULT_METHODS, help="bayes dropout ensemble by default"
    )
    add_settings(parser)
    parser.add_argument("--network", help="network preset (default: paper)")
    parser.add_argument("--seed", type=int, default=0, help="seed of splits, chains and minibatches (default 0)")
    add_commit(parser)
    add_quick(parser, "a tiny network and few frames")
    options = parser.parse_args()
    make, place = CASES[options.case]
    case = make(options.data or place, options.seed)
    run(small(case) if options.quick else case, options)


if __name__ == "__main__":
    start(main)
