"""The linearised posterior against Hamiltonian Monte Carlo, on the small real posterior of studies/convergence.

    python -m studies.tangent.hmc -o results/tangent            one core, about five minutes
    python -m studies.tangent.hmc -o /tmp/tangent --quick       a minute

Prior N(c, 0.1²) of all weights; c is where the package's burn-in ends.  The linearised posterior has the same prior of
the weights that forces and energies depend on, and the σ that the heads have at c.  Means and standard deviations of
predicted forces and energies on unseen frames are compared with those of HMC; the two halves of the HMC chains show
what differs by chance.  Writes hmc.json.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.bayes.prior import CentredNormal
from equibayes.posterior.jacobian import ENERGY, FORCES, Rows, Sight, rows_of
from equibayes.posterior.linear_regression import FewLabels
from equibayes.posterior.subspace import Subspace
from studies.convergence.problem import QUICK, SEED, Problem, Study, burn_in, metric
from studies.convergence.samplers import run_hmc
from studies.shared.options import add_quick, parser_of
from studies.shared.results import provenance, save_json

DRAWS = 400


def linearised(problem: Problem, center: torch.Tensor, width: float) -> tuple[np.ndarray, Rows]:
    """Draws [n, Q] of the labels of the unseen frames, and these labels."""
    model, prepared = problem.prepared.model, problem.prepared
    space = Subspace.of(model, model.layout.size, 0)
    known = rows_of(model, center, Sight(problem.train), space)
    unseen = rows_of(model, center, Sight(prepared.resident(problem.unseen, "cpu")), space)
    labels = FewLabels(known.jacobian, known.residual, known.variance / width**2)
    random = torch.Generator().manual_seed(SEED)
    normal, of_labels = (
        torch.randn(DRAWS, n, generator=random, dtype=torch.float64) for n in (space.size, len(labels))
    )
    (found,) = labels.solve([1.0], normal, of_labels)
    moves = found.mean + width / found.scale**0.5 * found.deviations
    return (unseen.value + moves @ unseen.jacobian.mT).numpy(), unseen


def compared(draws: np.ndarray, reference: np.ndarray, before: np.ndarray, label: np.ndarray) -> dict[str, float]:
    """draws [n, Q] and reference [m, Q];  before: predictions at c;  label: the truth.

    shift     RMS difference of the means in units of the reference's standard deviation
    moved     the same of the means and the predictions at c: what there is to be found
    explained  1 − the ratio of both, squared
    sd_ratio  geometric mean of the ratio of standard deviations;  sd_scatter: of its logarithm
    """
    sd, mean = reference.std(0, ddof=1), reference.mean(0)
    shift, moved = (float(np.sqrt(np.mean(np.square((each - mean) / sd)))) for each in (draws.mean(0), before))
    ratio = np.log(draws.std(0, ddof=1) / sd)
    return {
        "shift": shift,
        "moved": moved,
        "explained": 1 - (shift / moved) ** 2,
        "sd_ratio": float(np.exp(ratio.mean())),
        "sd_scatter": float(ratio.std()),
        "mae": float(np.abs(draws.mean(0) - label).mean()),
        "mae_reference": float(np.abs(mean - label).mean()),
        "mae_before": float(np.abs(before - label).mean()),
    }


def main() -> None:
    parser = parser_of(__doc__)
    add_quick(parser, "a minute")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for hmc.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    study = replace(QUICK, hmc=(2, 4)) if options.quick else replace(Study(), chains=8, hmc=(8, 18))
    problem, seconds = Problem(study), dict[str, float]()
    begun = time.process_time()
    center = torch.from_numpy(burn_in(problem)["center"])
    potential = problem.potential(CentredNormal(center, torch.tensor(study.width, dtype=torch.float64)))
    seconds["burn-in"] = time.process_time() - begun
    draws, unseen = linearised(problem, center, study.width)
    seconds["linearised"] = time.process_time() - begun - sum(seconds.values())
    found = run_hmc(problem, potential, center, metric(potential, center, study)["factor"])
    seconds["HMC"] = time.process_time() - begun - sum(seconds.values())
    chains = found["draws"].reshape(study.chains, -1, found["draws"].shape[-1])
    result: dict[str, Any] = {"study": vars(study), "seed": SEED, "seconds": seconds, "provenance": provenance()}
    result["acceptance"] = float(found["acceptance"])
    for name, kind in (("forces", FORCES), ("energy", ENERGY)):
        own = (unseen.kind == kind).numpy()
        part = chains[:, :, problem.parts()[name]]
        of_all, label, before = part.reshape(-1, part.shape[-1]), unseen.label.numpy()[own], unseen.value.numpy()[own]
        half = study.chains // 2
        result[name] = {
            "linearised": compared(draws[:, own], of_all, before, label),
            "half of HMC against the other": compared(
                *(each.reshape(-1, part.shape[-1]) for each in (part[:half], part[half:])), before, label
            ),
        }
        print(name, result[name])
    save_json(options.output / "hmc.json", result)


if __name__ == "__main__":
    main()
