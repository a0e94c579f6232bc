"""Why per-species energy shifts are sampled for large structures: energies of PEDOT with and without them.

    python -m studies.energy_shift                    results/energy-shift/report.json; ten minutes on one core

The energy of 106 or 158 atoms is a sum that every step of the weights changes by many eV while steps are large.  The
energy σ then grows until energies hardly count, and they recover slowly.  Per-species shifts bring them back soon.
Network of 5 layers with l ≤ 1; one chain, one seed.
"""

import json
from pathlib import Path
from typing import Any

import torch

from equibayes.bayes.model import ModelOutput
from equibayes.bayes.potential import Potential
from equibayes.data.graph import Graph
from equibayes.data.read import read
from equibayes.data.resident import Labels
from equibayes.run.chains import make_chains
from equibayes.run.loop import run
from equibayes.run.prepare import prepare
from equibayes.run.settings import sample_config
from studies.shared.options import parser_of
from studies.shared.results import provenance, save_json

DATA = Path(__file__).resolve().parent / "pedot" / "data" / "pedot.npz"
NETWORK: dict[str, Any] = {"num_features": 64, "num_layers": 5, "l_max": 1}
HIGH = 3
"""eV.  Energies of the frames have a spread of 0.5 to 0.7 eV."""
SIZES: dict[str, Any] = {"burn_in": {"batch_size": 1}, "cycles": {"length": 50, "batch_size": 1}}


def learn(trainable: bool, steps: int, every: int) -> list[dict[str, float]]:
    """Minibatch errors and energy σ, recorded every `every` steps."""
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
    run(
        make_chains(
            prepare(data, config),
            data,
            "cpu",
            potential=lambda ready, frames, prior: Watched(ready.model, frames, prior),
        )
    )
    return seen


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=1200, help="steps of the burn-in (default 1200)")
    parser.add_argument("--every", type=int, default=50, help="steps between two records (default 50)")
    parser.add_argument("--output", type=Path, default=Path("results/energy-shift"), help="folder for the report")
    given = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {
        "command": "python -m studies.energy_shift",
        "seed": 0,
        "network": NETWORK,
        "steps": given.steps,
    }
    report |= provenance()
    for name, trainable in (("without", False), ("with", True)):
        report[name] = learn(trainable, given.steps, given.every)
        high = [row["step"] for row in report[name] if row["energy_sigma_eV"] > HIGH]
        report[f"{name}_last_step_with_sigma_above_{HIGH}_eV"] = max(high, default=0)
        save_json(given.output / "report.json", report)


if __name__ == "__main__":
    main()
