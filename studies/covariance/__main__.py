"""Covariances of forces: isotropic noise, a covariance per atom, and one between atoms.

    python -m studies.covariance ethanol --covariance pair --seed 0 --output OUT      # one posterior
    python -m studies.covariance --speed --keep POSTERIORS --output OUT               # time of a step
    python -m studies.covariance --scaling --output OUT                               # up to 10 000 atoms
    python -m studies.covariance --collect OUT                                        # tables; gain.png beside OUT

Each command writes JSON files below OUT and leaves out those that exist.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from equibayes.bayes.covariance import COVARIANCES
from equibayes.files import make_folder
from equibayes.posterior.calibrate import calibrate
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.predict import predict
from equibayes.posterior.sample import sample_prepared
from equibayes.run import Run
from equibayes.run.prepare import prepare
from equibayes.run.settings import sample_config
from studies.covariance.cases import CASES, frames
from studies.covariance.figure import draw
from studies.covariance.measures import measured
from studies.covariance.speed import scaling, speed
from studies.covariance.tables import runs_in, tables
from studies.shared.options import add_commit, parser_of, start
from studies.shared.results import provenance, save_json


def run_one(name: str, covariance: str, seed: int, steps: int | None, keep: Path | None, quick: bool) -> dict[str, Any]:
    """One posterior, raw and recalibrated on the frames that it held back."""
    values = CASES[name].config(30 if quick else steps) | {"seed": seed, "likelihood": {"covariance": covariance}}
    config = sample_config("quick", None, values)
    learned, judged = frames(name)
    if quick:
        judged = judged.subset(range(3))
    prepared = prepare(learned, config)
    begin = time.process_time(), time.monotonic()
    posterior = replace(sample_prepared(prepared, learned, Run(device="cpu")), novelty=None)
    cost = time.process_time() - begin[0], time.monotonic() - begin[1]
    found: dict[str, Any] = {
        "set": name,
        "covariance": covariance,
        "seed": seed,
        "config": prepared.config.to_dict(),
        "engine": posterior.engine,
        "cpu_seconds": cost[0],
        "wall_seconds": cost[1],
        "frames": len(prepared.train),
        "judged": len(judged),
    }
    calibrated = calibrate(posterior, prepared.validation, device="cpu")
    if keep is not None:
        calibrated.save(make_folder(keep) / f"{name}-{covariance}-{seed}.posterior")
    assert calibrated.calibration is not None
    forces = Calibration.from_dict(calibrated.calibration).forces
    width = forces.quantile(0.68, len(posterior))
    found["calibration"] = {"method": forces.method, "factor": forces.choice.get("factor"), "width": width}
    raw, recalibrated = (
        list(predict(each, judged.structures, covariance=True, device="cpu")) for each in (posterior, calibrated)
    )
    found["raw"], found["intervals"] = measured(judged, raw), measured(judged, raw, width)
    found["calibrated"] = measured(judged, recalibrated)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("set", nargs="?", choices=tuple(CASES))
    parser.add_argument("--covariance", choices=COVARIANCES, default="isotropic")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="of the burn-in (default: of the set)")
    parser.add_argument("--output", type=Path, default=Path("results/covariance/runs"))
    parser.add_argument("--keep", type=Path, help="folder of posteriors (default: they are not kept)")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--speed", action="store_true", help="time of a step, all forms interleaved")
    parser.add_argument("--scaling", action="store_true", help="time of a step up to 10 000 atoms")
    parser.add_argument("--collect", type=Path, help="tables of a folder")
    add_commit(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    about = provenance(options.commit)
    if options.collect:
        print(tables(options.collect))
        draw(runs_in(options.collect), options.collect.parent / "gain.png")
    elif options.speed or options.scaling:
        name = "speed" if options.speed else "scaling"
        found = speed(options.keep or Path(), options.quick) if options.speed else scaling(options.quick)
        save_json(options.output / f"{name}.json", {"provenance": about, **found})
    elif options.set:
        path = options.output / f"{options.set}-{options.covariance}-{options.seed}.json"
        if not path.is_file():
            found = run_one(options.set, options.covariance, options.seed, options.steps, options.keep, options.quick)
            save_json(path, {"provenance": about, **found})
    else:
        parser.error("name a set, or --speed, --scaling or --collect")


if __name__ == "__main__":
    start(main)
