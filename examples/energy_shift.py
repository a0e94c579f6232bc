"""Why an energy of each species is sampled with large structures: energies of PEDOT while forces are learned, with and without.

    python examples/energy_shift.py                    results/energy-shift/report.json; ten minutes on one core

The energy of 106 or 158 atoms is a sum that every step of the weights moves by many eV as long as steps are large.  σ of energies then
grows to hold that, energies hardly count any more, and only a number of their own brings them back soon.  A network of 5 layers with
l ≤ 1 shows it; one chain, one seed.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.provenance import provenance, write_json
from equibayes.bayes.model import ModelOutput
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data.graph import Graph
from equibayes.data.read import read
from equibayes.data.resident import Labels
from equibayes.posterior.sample import make_runner
from equibayes.run.prepare import prepare
from equibayes.run.progress import Silent
from equibayes.run.settings import sample_config

DATA = Path(__file__).resolve().parent / "pedot" / "data" / "pedot.npz"
NETWORK: dict[str, Any] = {"num_features": 64, "num_layers": 5, "l_max": 1}
HIGH = 3
"""eV.  Energies of the frames scatter by 0.5 to 0.7 eV."""
SIZES: dict[str, Any] = {"burn_in": {"batch_size": 1}, "cycles": {"length": 50, "batch_size": 1}}


def learn(trainable: bool, steps: int, every: int) -> list[dict[str, float]]:
    """Errors of the minibatch and σ of its energies, every so many steps."""
    seen: list[dict[str, float]] = []
    count = 0

    class Watched(Potential):
        def log_likelihood(self, output: ModelOutput, graph: Graph, labels: Labels) -> torch.Tensor:
            nonlocal count
            count += 1
            if count % every == 0:
                energy, forces = (output.energy - labels.energy).detach(), (output.forces - labels.forces).detach()
                seen.append(
                    {
                        "step": count,
                        "energy_error_eV_per_atom": float((energy.abs() / graph.num_atoms).mean()),
                        "energy_sigma_eV": float(output.log_sigma_energy.detach().exp().mean()),
                        "force_mae_meV_per_A": 1e3 * float(forces.abs().mean()),
                    }
                )
                print(trainable, json.dumps(seen[-1]), flush=True)
            return super().log_likelihood(output, graph, labels)

    own = {"network": {**NETWORK, "per_type_energy_shifts_trainable": trainable}, "chains": 1, "samples": 1}
    told = {"data": {"validation": 0, "energy_reference": "lstsq"}, "burn_in": {"steps": steps}}
    data, config = read(f"{DATA}@train"), sample_config("standard", "small", SIZES, own, told)
    make_runner(
        prepare(data, config),
        data,
        torch.device("cpu"),
        Silent(),
        make_potential=lambda prepared, resident: Watched(prepared.model, resident, StandardNormal()),
    ).run()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200, help="of the burn-in (default 1200)")
    parser.add_argument("--every", type=int, default=50, help="steps from one look to the next")
    parser.add_argument("--output", type=Path, default=Path("results/energy-shift"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {
        "command": "python examples/energy_shift.py",
        "seed": 0,
        "network": NETWORK,
        "steps": given.steps,
    }
    report |= provenance()
    for name, trainable in (("without", False), ("with", True)):
        report[name] = learn(trainable, given.steps, given.every)
        high = [row["step"] for row in report[name] if row["energy_sigma_eV"] > HIGH]
        report[f"{name}_last_step_with_sigma_above_{HIGH}_eV"] = max(high, default=0)
        write_json(given.output / "report.json", report)


if __name__ == "__main__":
    main()
