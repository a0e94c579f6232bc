"""Does SGHMC draw from the posterior?  Its predictions against those of full-batch HMC on a small real problem.

A tiny NequIP with both σ heads, 50 frames of rMD17 ethanol, float64.  The package's burn-in finds a point c; the
posterior under the prior N(c, 0.1²) is then sampled twice:

    reference  HMC with a dense mass matrix and Metropolis correction (`hmc.py`): no minibatches, no step-size error
    subject    the package's `sghmc.step` with its schedule, reshuffled minibatches and the mass frozen by the burn-in

The two are compared on unseen frames (`comparison.py`).  The subject starts where the reference ended.  The same test
is applied to a subject at temperature 0.5, to one with too much gradient noise, and to two halves of the reference.
Finished stages are kept in --work, so that an interrupted study continues.

    python -m studies.convergence            about 26 minutes on one core
    python -m studies.convergence --quick    a minute or two, to see that it runs
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.bayes.prior import CentredNormal
from equibayes.sampling.diagnostics import convergence
from studies.convergence.comparison import compare
from studies.convergence.figures import plot
from studies.convergence.problem import NETWORK, QUICK, SEED, Problem, Study, burn_in, metric, starts
from studies.convergence.samplers import RUNS, run_hmc, run_sghmc
from studies.shared.options import add_quick, parser_of
from studies.shared.results import provenance, save_json


def stage(work: Path, name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The result of `make`, computed once and stored with its processor time."""
    path = work / f"{name}.npz"
    if not path.exists():
        started = time.process_time()
        result = make()
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, cpu_seconds=np.array(time.process_time() - started), **result)  # type: ignore[arg-type]
        partial.replace(path)
    with np.load(path) as file:
        result = dict(file)
    print(f"{name}: {float(result['cpu_seconds']):.0f} s of processor time", flush=True)
    return result


def mixing(draws: np.ndarray, parts: dict[str, slice]) -> dict[str, Any]:
    """R-hat and bulk effective sample size of up to 60 quantities of each kind."""
    result = {}
    for name, part in parts.items():
        own = draws[:, :, part]
        chosen = np.linspace(0, own.shape[2] - 1, min(60, own.shape[2])).astype(int)
        found = convergence(own[:, :, chosen])
        result[name] = {
            "r_hat_median": float(np.median(found.r_hat)),
            "r_hat_max": float(found.r_hat.max()),
            "ess_median": float(np.median(found.ess)),
            "ess_min": float(found.ess.min()),
        }
    return result


def judge(reference: np.ndarray, subject: np.ndarray, parts: dict[str, slice]) -> dict[str, Any]:
    return {name: compare(reference[:, :, part], subject[:, :, part]) for name, part in parts.items()}


def show(title: str, verdict: dict[str, Any]) -> None:
    print(f"\n{title}")
    for name, row in verdict.items():
        print(
            f"  {name:17s} rms z: means {row['rms_z_mean']:5.2f} (p {row['p_mean']:.3f}), sds {row['rms_z_sd']:5.2f} "
            f"(p {row['p_sd']:.3f});  sd ratio {row['sd_ratio']:.3f} ± {row['sd_ratio_error']:.3f};  "
            f"shift {row['shift_in_sd']:.3f} sd (expected by chance: {row['monte_carlo_error_in_sd']:.3f})"
        )


def run(study: Study, work: Path) -> tuple[Problem, dict[str, dict[str, np.ndarray]]]:
    """All stages."""
    problem = Problem(study)
    found = stage(work, "burn_in", lambda: burn_in(problem))
    center, mass = torch.from_numpy(found["center"]), torch.from_numpy(found["mass"])
    potential = problem.potential(CentredNormal(center, torch.tensor(study.width, dtype=torch.float64)))

    def subject(file: str, start: torch.Tensor, name: str, cycles: tuple[int, int]) -> dict[str, np.ndarray]:
        return stage(work, file, lambda: run_sghmc(problem, potential, start, mass, RUNS[name], cycles))

    results = {"peak 3e-3, batch 10": subject("noisy", starts(center, study, 1.0), "peak 3e-3, batch 10", study.noisy)}
    factor = stage(work, "metric", lambda: metric(potential, center, study))["factor"]
    results["HMC"] = stage(work, "hmc", lambda: run_hmc(problem, potential, center, factor))
    reached = torch.from_numpy(results["HMC"]["position"])
    results["SGHMC"] = subject("subject", reached, "SGHMC", study.subject)
    results["temperature 0.5"] = subject("cold", reached, "temperature 0.5", study.cold)
    return problem, results


def main(arguments: Iterable[str] | None = None) -> None:
    parser = parser_of(__doc__)
    add_quick(parser, "a minute or two")
    parser.add_argument("--work", type=Path, help="folder for stages (default: build/convergence)")
    parser.add_argument("--output", type=Path, help="folder for report and plot (default: results/convergence)")
    options = parser.parse_args(None if arguments is None else list(arguments))
    torch.set_num_threads(1)
    study = QUICK if options.quick else Study()
    work = options.work or Path("build/convergence-quick" if options.quick else "build/convergence")
    output = options.output or (work if options.quick else Path("results/convergence"))
    work.mkdir(parents=True, exist_ok=True)

    problem, results = run(study, work)
    parts, reference = problem.parts(), results["HMC"]["draws"]
    verdicts = {name: judge(reference, results[name]["draws"], parts) for name in RUNS}
    half = study.chains // 2
    verdicts["null: two halves of HMC"] = judge(reference[:half], reference[half:], parts)
    for name, verdict in verdicts.items():
        show(name, verdict)
    report = {
        "study": asdict(study),
        "seed": SEED,
        "network": {**asdict(NETWORK), "parameters": problem.prepared.model.layout.size},
        "samplers": {name: asdict(sampler) for name, sampler in RUNS.items()},
        "acceptance": float(results["HMC"]["acceptance"]),
        "hmc_step_size": float(results["HMC"]["step_size"]),
        "kinetic_temperature": {n: float(r["kinetic"].mean()) for n, r in results.items() if "kinetic" in r},
        "mixing": {name: mixing(results[name]["draws"], parts) for name in ("HMC", *RUNS)},
        "comparison": verdicts,
        "cpu_seconds": {name: float(result["cpu_seconds"]) for name, result in results.items()},
        "provenance": provenance(),
    }
    save_json(output / "report.json", report)
    plot(reference, {n: results[n]["draws"] for n in RUNS}, parts["forces"], output / "forces.png")
    print("\nacceptance", report["acceptance"], "\nmixing", json.dumps(report["mixing"], indent=1))


if __name__ == "__main__":
    main()
