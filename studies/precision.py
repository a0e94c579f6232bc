"""Does the precision of matrix products on a GPU change the posterior?  The same run in each precision.

    python -m studies.precision                        results/precision/report.json; some minutes on one H200

For each precision: sample ethanol (preset `standard` with a shorter burn-in), then force error, likelihood and outlier
detection on unseen frames, for all samples and for each chain alone, whose scatter gives the error of a difference.
With the float32 posterior also the energy along NVE dynamics with forces computed in each precision.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data import Dataset, bundled_ethanol
from equibayes.data.graph import graph_of
from equibayes.data.structures import Structure
from equibayes.engine.triton.dynamics import TritonDynamics
from equibayes.evaluation.evaluated import evaluate_each
from equibayes.evaluation.metrics import OUTLIER_THRESHOLD
from equibayes.evaluation.tables import measure
from equibayes.posterior.file import Posterior
from equibayes.run.settings import sample_config
from studies.shared.options import add_commit, parser_of
from studies.shared.results import provenance, save_json
from studies.shared.runs import sampled

# float32 last: its posterior is the one used for the dynamics
PRECISIONS = ("mixed", "bf16x3", "tf32x3", "float32")
MASSES = {1: 1.008, 6: 12.011, 8: 15.999}  # u
FORCE_TO_ACCELERATION = 9.648533e-3  # Å/fs² of 1 eV/Å and 1 u
COMPARED = ("force_mae", "force_mll", "force_auc", "energy_mae", "energy_mll")
STEP_FS, STEPS, SKIN = 0.25, 4000, 2.0


def nve(posterior: Posterior, frame: Structure, precision: str, temperature: float = 300.0) -> dict[str, float]:
    """Velocity Verlet: drift of the total energy (slope of a line) and scatter about that line, per atom."""
    model, config = posterior.model, posterior.network
    samples = posterior.samples[:8].cuda()
    # in so short a time no pair leaves the skin
    graph = graph_of(frame, r_max=config.r_max + SKIN, species_of=posterior.species_of).to("cuda")
    system = TritonDynamics(model, model.layout.forward_weights(samples), graph, precision)
    system.load(graph, frame.positions)
    mass = np.array([MASSES[int(z)] for z in frame.numbers])[:, None]
    rng = np.random.default_rng(0)
    velocity = rng.normal(size=frame.positions.shape) * np.sqrt(8.314463e-7 * temperature / mass)  # Å/fs
    velocity -= (mass * velocity).sum(0) / mass.sum()
    position = frame.positions.copy()
    moment = system(position)
    energies = []
    for _ in range(STEPS):
        velocity += 0.5 * STEP_FS * FORCE_TO_ACCELERATION * moment.forces.mean(0) / mass
        position = position + STEP_FS * velocity
        moment = system(position)
        velocity += 0.5 * STEP_FS * FORCE_TO_ACCELERATION * moment.forces.mean(0) / mass
        kinetic = 0.5 * float((mass * velocity**2).sum()) / FORCE_TO_ACCELERATION
        energies.append(moment.energy.mean() + kinetic)
    times = np.arange(STEPS) * STEP_FS * 1e-3  # ps
    slope, offset = np.polyfit(times, energies, 1)
    rest = np.array(energies) - slope * times - offset
    atoms = len(frame)
    # rounding adds scatter from step to step; the slow part belongs to the integrator
    rounding = float(np.std(np.diff(rest, 2))) / np.sqrt(6)
    return {
        "drift_meV_per_atom_and_ps": float(slope) * 1e3 / atoms,
        "scatter_meV_per_atom": float(rest.std()) * 1e3 / atoms,
        "rounding_ueV": rounding * 1e6,
        "picoseconds": STEPS * STEP_FS * 1e-3,
    }


def chain_by_chain(posterior: Posterior, test: Dataset) -> dict[str, Any]:
    """The last sample of each chain alone: chains are independent, so their scatter gives the error of every mean."""
    last = [int((posterior.chain == chain).nonzero()[-1]) for chain in posterior.chain.unique()]
    rows = []
    for i in last:
        own = slice(i, i + 1)
        alone = replace(posterior, samples=posterior.samples[own], chain=posterior.chain[own], step=posterior.step[own])
        (result,) = evaluate_each(alone, test, [1], device="cuda")
        rows.append({name: value for name, value in measure(result, OUTLIER_THRESHOLD).items() if name in COMPARED})
    columns = {name: np.array([row[name] for row in rows]) for name in COMPARED}
    return {
        name: {
            "mean": float(x.mean()),
            "error": float(x.std(ddof=1) / np.sqrt(len(x))),
            "chains": [float(v) for v in x],
        }
        for name, x in columns.items()
    }


def differences(runs: dict[str, Any]) -> dict[str, Any]:
    """Difference of each precision from float32, also in units of its standard error."""
    exact = runs["float32"]["chain_by_chain"]
    found: dict[str, Any] = {}
    for precision, run in runs.items():
        for name, own in run["chain_by_chain"].items():
            error = float(np.hypot(own["error"], exact[name]["error"]))
            by = own["mean"] - exact[name]["mean"]
            found.setdefault(precision, {})[name] = {"difference": by, "error": error, "z": by / error}
    return {precision: found[precision] for precision in found if precision != "float32"}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--precisions",
        default=",".join(PRECISIONS),
        help="precisions to sample with, including float32 (default: %(default)s); dynamics runs in all",
    )
    parser.add_argument("--burn-in", type=int, default=8_000, help="steps of the burn-in (default 8000)")
    parser.add_argument("--output", type=Path, default=Path("results/precision"))
    add_commit(parser)
    given = parser.parse_args()
    asked = [precision for precision in PRECISIONS if precision in given.precisions.split(",")]
    if "float32" not in asked:
        parser.error("--precisions: float32 is missing; the others are compared with it")
    report: dict[str, Any] = {
        "command": f"python -m studies.precision --precisions {','.join(asked)} --burn-in {given.burn_in}",
        "provenance": provenance(given.commit),
        "runs": {},
        "nve": {},
    }

    def save() -> None:
        save_json(given.output / "report.json", report)

    train, test = bundled_ethanol("train"), bundled_ethanol("test")
    posterior: Posterior | None = None
    for precision in asked:
        config = sample_config("standard", None, {"precision": precision, "burn_in": {"steps": given.burn_in}})
        began = time.monotonic()
        posterior = sampled(train, config, device="cuda")
        seconds = time.monotonic() - began
        (result,) = evaluate_each(posterior, test, [len(posterior)], device="cuda")
        report["runs"][precision] = {
            "sampling_seconds": seconds,
            "metrics": measure(result, OUTLIER_THRESHOLD),
            "chain_by_chain": chain_by_chain(posterior, test),
        }
        report |= {"config": posterior.config, "seed": config.seed}
        print(precision, round(seconds), "s", json.dumps(report["runs"][precision]["chain_by_chain"]), flush=True)
        save()
    assert posterior is not None
    report["differences_from_float32"] = differences(report["runs"])
    for precision in PRECISIONS:
        report["nve"][precision] = nve(posterior, test[0], precision)
        print(precision, report["nve"][precision], flush=True)
        save()


if __name__ == "__main__":
    main()
