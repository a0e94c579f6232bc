"""Dynamics of ethanol that calls GFN2-xTB only for uncertain frames; these are labelled and learned at once.

A first posterior is sampled from a few frames labelled by the engine; then a trajectory runs on the fly.  Afterwards
the engine labels 200 random frames of it.  Reported are the errors of the forces that drove the trajectory, of the last
posterior and of the first one.

    python -m studies.on_the_fly --flight small    about five minutes on one core; continues after a kill
    python -m studies.on_the_fly --quick           a minute, to see that it runs
"""

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data import Dataset, bundled_ethanol
from equibayes.data.extxyz import read_exact, write_exact
from equibayes.data.structures import Structure
from equibayes.labelling.labellers import Label, Labeller
from equibayes.learning.on_the_fly import LearnOnTheFly
from equibayes.learning.propose import bare
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import predict
from equibayes.run.progress import PlainDisplay
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.frames import read_frames
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.log import describe_step
from equibayes.simulate.md import MdResult, run_md
from equibayes.simulate.trust import Deviation, Trust
from equibayes.simulate.watch import Watch
from studies.shared.labels import labelled
from studies.shared.options import add_quick, parser_of
from studies.shared.results import LABELLING_PACKAGES, provenance, save_json
from studies.shared.runs import SmallNetwork, sampled

ENGINE = "gfn2-xtb"


@dataclass(frozen=True)
class Flight(SmallNetwork):
    """A trajectory.  Trust levels in eV/Å, temperature in K.

    warm      steps per chain after each label
    trust_lo  0: `level` times the median over the training frames of the first posterior's largest deviation
    checked   frames of the trajectory that the engine labels afterwards
    """

    warm: int = 400
    seed: int = 0
    start_labels: int = 30
    steps: int = 4000
    temperature: float = 300.0
    trust_lo: float = 0.0
    level: float = 1.3
    trust_hi: float = 3.0
    gap: int = 10
    every: int = 5
    checked: int = 200


FLIGHTS = {
    "16": Flight(),
    "small": Flight(start_labels=60, first=10_000, warm=1000, level=1.0, features=32, layers=3, radial_depth=2),
    "medium": Flight(
        start_labels=60, first=6000, warm=600, level=1.0, network="medium", features=32, layers=3, radial_depth=2, radial_width=64,
    ),
}  # fmt: skip
"""16: 16 channels, two layers."""
# a poor network drives the molecule apart, so the quick run has few steps
QUICK = Flight(
    start_labels=8, first=300, warm=10, chains=2, features=8, layers=1, steps=30, temperature=100.0, trust_lo=0.3, trust_hi=50.0,
    checked=5,
)  # fmt: skip


def begin(flight: Flight, labeller: Labeller, work: Path) -> tuple[Dataset, Posterior]:
    """A few frames labelled by the engine, and the first posterior."""
    frames = work / "start.xyz"
    if not frames.exists():
        # far apart in the trajectory that the bundled frames are drawn from
        origin = [bare(s) for s in bundled_ethanol("train")[: flight.start_labels]]
        write_exact(frames, labelled(labeller, origin))
    data = read_exact(frames)
    return data, sampled(data, flight.config(flight.seed), work / "start.posterior")


def usual_level(flight: Flight, first: Posterior, data: Dataset) -> float:
    """Lower trust level in eV/Å: frames less certain than the training frames are labelled."""
    return flight.level * float(np.median([Deviation.of(p.forces_std).largest for p in predict(first, data)]))


def fly(
    flight: Flight, data: Dataset, first: Posterior, labeller: Labeller, work: Path
) -> tuple[MdResult, LearnOnTheFly]:
    trust = Trust(flight.trust_lo or usual_level(flight, first, data), flight.trust_hi)
    oracle = LearnOnTheFly(labeller, first, data, flight.config(flight.seed), flight.warm_start())
    result = run_md(
        Calculator(first, device="cpu"),
        bare(bundled_ethanol("test")[0]).to_atoms(),
        Conditions("langevin", flight.temperature, seed=flight.seed),
        flight.steps,
        work / "fly.xyz",
        watch=Watch(trust, "label", every=flight.every, candidate_gap=flight.gap),
        resume=(work / "fly-md" / "state.safetensors").exists(),
        display=PlainDisplay(describe=describe_step),
        oracle=oracle,
    )
    return result, oracle


def check(flight: Flight, first: Posterior, last: Posterior, labeller: Labeller, work: Path) -> dict[str, Any]:
    """Errors on random frames: of the forces that drove the trajectory, and of the last and the first posterior."""
    frames = [atoms for atoms in read_frames(work / "fly.xyz") if atoms.info["step"]]
    rng = np.random.default_rng(flight.seed)
    chosen = sorted(rng.choice(len(frames), min(flight.checked, len(frames)), replace=False))
    own = [bare(Structure.from_atoms(frames[i])) for i in chosen]
    truth = [answer.forces for answer in map(labeller.label, own) if isinstance(answer, Label)]
    if len(truth) < len(own):
        raise SystemExit(f"the engine refused {len(own) - len(truth)} of {len(own)} frames")
    said = {"as it was driven": [(frames[i].get_forces(), frames[i].arrays["forces_std"]) for i in chosen]}
    for name, posterior in (("the last posterior", last), ("the first posterior", first)):
        said[name] = [(p.forces, p.forces_std) for p in predict(posterior, own)]
    found: dict[str, Any] = {"frames": len(own), "rms_force": _rms(np.array(truth))}
    for name, pairs in said.items():
        errors = np.array([forces for forces, _ in pairs]) - np.array(truth)
        found[name] = {
            "force_mae": float(np.abs(errors).mean()),
            "force_rmse": _rms(errors),
            "stated_sigma_rms": _rms(np.array([sigma for _, sigma in pairs])),
            "largest_error_of_an_atom": float(np.linalg.norm(errors, axis=2).max()),
        }
    return found


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).mean()))


def main() -> None:
    parser = parser_of(__doc__)
    add_quick(parser, "a minute")
    parser.add_argument("--flight", choices=list(FLIGHTS), default="small", help="network (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="folder for posteriors and trajectory (default: build/on-the-fly)")
    parser.add_argument("--output", type=Path, help="folder for the report (default: results/on-the-fly)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    name = f"{options.flight}-{options.seed}"
    flight = QUICK if options.quick else replace(FLIGHTS[options.flight], seed=options.seed)
    work = options.work or Path("build/on-the-fly-quick" if options.quick else f"build/on-the-fly/{name}")
    output = options.output or (work if options.quick else Path("results/on-the-fly"))
    work.mkdir(parents=True, exist_ok=True)
    begun = time.process_time()
    with Labeller(ENGINE) as labeller:
        data, first = begin(flight, labeller, work)
        result, oracle = fly(flight, data, first, labeller, work)
        checked = check(flight, first, oracle.posterior, labeller, work)
        engine = labeller.provenance
    report = {
        "flight": asdict(flight),
        "engine": engine,
        "trust_lo": flight.trust_lo or usual_level(flight, first, data),
        "steps_done": result.step,
        "ended": result.ended,
        "asked": result.asked,
        "share_of_steps_that_called_the_labeller": result.asked / max(1, result.step),
        "asked_at": [asdict(each) for each in oracle.asked],
        "labels_learned_from": len(oracle.data),
        "checked": checked,
        "cpu_seconds_of_this_call": time.process_time() - begun,
        "provenance": provenance(packages=LABELLING_PACKAGES),
    }
    save_json(output / ("report.json" if options.quick else f"{name}.json"), report)
    print(json.dumps({name: report[name] for name in ("steps_done", "ended", "asked", "checked")}, indent=1))


if __name__ == "__main__":
    main()
