"""Relax an EDOT oligomer and run the paper's molecular dynamics with GFN2-xTB; a killed run continues.

    python -m studies.pedot 8 --folder pedot-runs          # one process per length: 8, 12 and 16
    python -m studies.pedot 8 --folder pedot-runs --temperature 400 --steps 4000

Needs `pip install equibayes[pedot]`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import cpu_model
from equibayes.labelling.blas import preload_environment
from equibayes.labelling.calculator import LabellerCalculator
from equibayes.labelling.labellers import Labeller
from studies.pedot import trajectory
from studies.shared.options import parser_of
from studies.shared.results import save_json


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("units", type=int, help="EDOT units in the chain")
    parser.add_argument("--folder", type=Path, default=Path("pedot-runs"), help="folder for frames and checkpoints")
    parser.add_argument("--temperature", type=float, default=300.0, help="K; 300 by default")
    parser.add_argument("--steps", type=int, default=trajectory.STEPS, help="steps of 0.5 fs; 2000 by default")
    parser.add_argument("--seed", type=int, default=0, help="seed of start geometry, velocities and thermostat")
    given = parser.parse_args()
    # an hour, so that a paused machine does not end the run
    with Labeller("gfn2-xtb", {"accuracy": 1.0}, follow=True, time_limit_s=3600.0) as labeller:
        calculator = LabellerCalculator(labeller)
        record = trajectory.run(given.units, given.folder, calculator, given.temperature, given.steps, given.seed)
        origin = provenance(labeller, record, given)
    save_json(given.folder / f"pedot_{given.units}.json", origin)


def provenance(labeller: Labeller, record: trajectory.Record, given: argparse.Namespace) -> dict[str, Any]:
    """Engine, versions and settings of the run."""
    return {
        **labeller.provenance,
        "linear_algebra": "MKL, sequential" if preload_environment() else "as in the wheel of tblite",
        "packages": {name: importlib.metadata.version(name) for name in ("ase", "rdkit", "numpy")},
        "units": given.units,
        "temperature_K": given.temperature,
        "steps": given.steps,
        "time_step_fs": trajectory.TIME_STEP_FS,
        "thermostat": "stochastic velocity rescaling (Bussi)",
        "thermostat_time_fs": trajectory.THERMOSTAT_TIME_FS,
        "relaxed_below_eV_per_A": trajectory.LARGEST_FORCE_EV_A,
        "seed": given.seed,
        "relaxed_energy_eV": float(record.energies[0]),
        "median_wall_seconds_per_step": round(float(np.median(record.wall_seconds[1:])), 3),
        "hardware": f"one core of {cpu_model()}, shared with other work",
    }


if __name__ == "__main__":
    main()
