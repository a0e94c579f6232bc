"""Does SGHMC draw from the posterior?  Its predictions against full-batch HMC with Metropolis correction, on one small real problem.

A tiny NequIP with both deviation heads, 50 frames of rMD17 ethanol, float64.  The package's burn-in finds a point c; the
posterior under the prior N(c, 0.1²) is then sampled twice:

    reference  HMC with a dense mass matrix (`hmc.py`): no minibatches, no step-size error
    subject    the package's `sghmc.step_` with its schedule, reshuffled minibatches and the mass that the burn-in froze

The two are compared on unseen frames (`predictive_comparison.py`).  The subject starts from where the reference ended.  The
same test is made of a subject at temperature 0.5, of one with too much gradient noise, and of two halves of the reference.
Stages are kept in --work, so an interrupted study goes on where it stopped.

    python examples/convergence_study.py            about 26 minutes on one core
    python examples/convergence_study.py --quick    a minute or two; shows that it runs, and little else
"""

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hmc
import numpy as np
import torch
from predictive_comparison import compare, moments, z_scores

from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import CentredNormal, StandardNormal
from equibayes.data import bundled_ethanol
from equibayes.data.resident import ResidentData
from equibayes.network.config import NetworkConfig
from equibayes.run.loop import ChainRunner
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.settings import BurnInSettings, CycleSettings, DataSettings, SampleConfig
from equibayes.sampling import sghmc
from equibayes.sampling.diagnostics import convergence, kinetic_temperature
from equibayes.sampling.minibatch import batch_indices, steps_per_epoch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule
from equibayes.version import __version__

NETWORK = NetworkConfig(
    l_max=1,
    parity=False,
    num_features=[4, 2],
    num_layers=2,
    num_bessels=4,
    radial_mlp_depth=1,
    radial_mlp_width=8,
    model_dtype="float64",
)
SEED = 0
PARTS = ("forces", "energy", "log_sigma_forces", "log_sigma_energy")


@dataclass(frozen=True)
class Study:
    """How much of everything."""

    frames: int = 50
    unseen_frames: int = 20
    burn_in_steps: int = 2500
    width: float = 0.1
    chains: int = 16
    hmc_warm_up: int = 20
    hmc_draws: int = 45
    subject: tuple[int, int] = (10, 80)  # cycles of warm-up, cycles that count
    cold: tuple[int, int] = (5, 10)
    noisy: tuple[int, int] = (120, 80)


QUICK = Study(50, 20, 200, 0.1, 8, 5, 8, (3, 8), (3, 8), (3, 8))


@dataclass(frozen=True)
class Sampler:
    """Settings of one SGHMC run.  length: steps of a cycle, one sample at its end."""

    kind: str = "rise_and_fall"
    length: int = 50
    peak: float = 1e-3
    batch_size: int = 25
    temperature: float = 1.0


RUNS = {
    "SGHMC": Sampler(),
    "temperature 0.5": Sampler(temperature=0.5),
    # three times the step with four times the variance of the minibatch gradient
    "peak 3e-3, batch 10": Sampler(peak=3e-3, batch_size=10),
}


class Problem:
    """Data, model and what is predicted on unseen frames."""

    def __init__(self, study: Study) -> None:
        self.study = study
        data = bundled_ethanol("train")[: study.frames]
        config = SampleConfig(
            chains=study.chains,
            samples=study.chains,
            seed=SEED,
            data=DataSettings(validation=0),
            network=NETWORK,
            burn_in=BurnInSettings(steps=study.burn_in_steps, batch_size=10, final=1e-4, noise_free=0.3),
            cycles=CycleSettings(batch_size=10),
        )
        self.prepared: Prepared = prepare(data, config)
        self.train: ResidentData = self.prepared.resident(self.prepared.train, "cpu")
        unseen = bundled_ethanol("test")[: study.unseen_frames]
        self.graph, self.labels = self.prepared.resident(unseen, "cpu").batch(torch.arange(len(unseen))[None])

    def potential(self, prior: Any) -> Potential:
        return Potential(self.prepared.model, self.train, prior)

    @torch.no_grad()
    def predictions(self, position: torch.Tensor) -> np.ndarray:
        """θ [K, P] → forces (eV/Å), energies (eV), ln σ_F, ln σ_E of the unseen frames, one after the other: [K, Q]."""
        output = self.prepared.model(position, self.graph)
        return torch.cat([getattr(output, name).flatten(1) for name in PARTS], 1).numpy()

    def parts(self) -> dict[str, slice]:
        """Where each kind of prediction lies among the Q."""
        frames, atoms = self.study.unseen_frames, self.labels.forces.shape[1]
        ends = np.cumsum([0, 3 * atoms, frames, atoms, frames])
        return {name: slice(int(a), int(b)) for name, a, b in zip(PARTS, ends, ends[1:])}


def full_target(potential: Potential) -> hmc.Target:
    """u and ∇u over all configurations."""
    everything = torch.arange(potential.data_size)[None]

    def target(position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        evaluation = potential(position, everything)
        return evaluation.potential, evaluation.gradient

    return target


def burn_in(problem: Problem) -> dict[str, np.ndarray]:
    """The package's own burn-in under N(0, I): the best of its chains is the centre c [P], with the mass [P] that it froze."""
    potential = problem.potential(StandardNormal())
    state = ChainRunner(potential, problem.prepared.config).run()
    u, _ = full_target(potential)(state.sampler.position)
    best = int(u.nan_to_num(nan=torch.inf).argmin())
    return {"center": state.sampler.position[best].numpy(), "mass": state.sampler.mass.mass[best].numpy()}


def starts(center: torch.Tensor, study: Study, share: float) -> torch.Tensor:
    """K points around c, [K, P], at a share of the prior's width; at 1 they are draws from the prior, far out for the posterior."""
    random = torch.Generator().manual_seed(SEED + 1)
    shift = torch.randn(study.chains, len(center), generator=random, dtype=torch.float64)
    return center + share * study.width * shift


def metric(potential: Potential, center: torch.Tensor, study: Study) -> dict[str, np.ndarray]:
    """A factor [P, P] of the covariance for HMC, from the Hessian at c; no direction is wider than the prior."""
    curvature = hmc.hessian(full_target(potential), center)
    return {"factor": hmc.covariance_factor(curvature, study.width**-2).numpy()}


def run_hmc(problem: Problem, potential: Potential, center: torch.Tensor, factor: np.ndarray) -> dict[str, np.ndarray]:
    """Reference draws [K, n, Q], and u at each, [K, n]."""
    study, target = problem.study, full_target(potential)
    # from draws of the prior itself a chain can stick for good: every leapfrog trajectory diverges there
    start = starts(center, study, 0.3)
    chains = hmc.HMC(target, start, torch.from_numpy(factor), hmc.Settings(), SEED)
    for _ in chains.run(study.hmc_warm_up, adapt=True):
        pass
    chains.accepted.clear()
    draws, potentials = [], []
    for position in chains.run(study.hmc_draws):
        draws.append(problem.predictions(position))
        potentials.append(chains.potential.numpy())
    return {
        "draws": np.stack(draws, 1),
        "position": chains.position.numpy(),
        "potential": np.stack(potentials, 1),
        "acceptance": np.array(np.mean(chains.accepted)),
        "step_size": np.array(chains.step_size),
    }


def run_sghmc(
    problem: Problem,
    potential: Potential,
    start: torch.Tensor,
    mass: torch.Tensor,
    sampler: Sampler,
    cycles: tuple[int, int],
) -> dict[str, np.ndarray]:
    """Subject draws [K, n, Q], one a cycle after the warm-up, and the kinetic temperature at each, [n]."""
    size, (warm_up, counted) = potential.data_size, cycles
    half = sampler.length // 2 if sampler.kind == "rise_and_fall" else sampler.length
    schedule = Schedule(
        BurnIn(steps=0, collect=False),
        Cycles(sampler.kind, warm_up + counted, half, sampler.peak),  # type: ignore[arg-type]
        temperature=sampler.temperature,
        steps_per_epoch=(1, steps_per_epoch(size, sampler.batch_size)),
    )
    config = sghmc.SGHMCConfig(temperature=sampler.temperature)
    key = NoiseKey(SEED + 2, tuple(range(len(start))))
    state = sghmc.init(start, key, temperature=sampler.temperature, mass=mass)
    draws, kinetic = [], []
    for number in range(schedule.total_steps):
        plan = schedule.at(number)
        gradient = potential(state.position, batch_indices(key, number, size, sampler.batch_size)).gradient
        sghmc.step_(
            state,
            gradient,
            key,
            learning_rate=plan.learning_rate,
            data_size=size,
            config=config,
            temperature=plan.temperature,
            adapt_mass=False,
        )
        if plan.collect and plan.cycle >= warm_up:
            draws.append(problem.predictions(state.position))
            kinetic.append(float(kinetic_temperature(state.momentum, config).mean()))
    return {"draws": np.stack(draws, 1), "kinetic": np.array(kinetic), "steps": np.array(schedule.total_steps)}


def stage(work: Path, name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The result of `make`, computed once and kept with its processor time."""
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
    """R-hat and bulk ESS of up to 60 quantities of each kind."""
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


def provenance() -> dict[str, Any]:
    """What a reader needs to get the same numbers."""
    here = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True).stdout.strip()
    return {
        "commit": commit,
        "equibayes": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores_used": torch.get_num_threads(),
        "cores_there": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def plot(reference: np.ndarray, runs: dict[str, np.ndarray], part: slice, path: Path) -> None:
    """Means and deviations of forces against the reference, and how the z-scores are spread; all [K, n, Q] in eV/Å."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def summary(draws: np.ndarray) -> Any:
        own = draws[:, :, part]
        return moments(own.mean(1), np.square(own).mean(1))

    a, (first, *_) = summary(reference), runs
    figure, (means, sds, histogram) = pyplot.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
    b = summary(runs[first])
    means.errorbar(a.mean, b.mean, xerr=a.mean_error, yerr=b.mean_error, fmt=".", ms=2, lw=0.5)
    means.axline((0, 0), slope=1, color="0.5", lw=0.8)
    means.set(xlabel="mean force, HMC (eV/Å)", ylabel="mean force, SGHMC (eV/Å)")
    for (name, draws), color in zip(runs.items(), ("C0", "C3", "C1")):
        b = summary(draws)
        x, y = 1000 * np.exp(a.log_sd), 1000 * np.exp(b.log_sd)
        sds.errorbar(
            x, y, xerr=x * a.log_sd_error, yerr=y * b.log_sd_error, fmt=".", ms=2, lw=0.4, color=color, label=name
        )
        z = np.concatenate(z_scores(a, b))
        histogram.hist(
            z.clip(-8, 8), bins=np.linspace(-8, 8, 65), density=True, histtype="step", color=color, label=name
        )
    sds.axline((0, 0), slope=1, color="0.5", lw=0.8)
    sds.set(xscale="log", yscale="log", xlabel="sd of force, HMC (meV/Å)", ylabel="sd of force (meV/Å)")
    sds.legend(fontsize=8)
    grid = np.linspace(-8, 8, 200)
    histogram.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color="0.5", lw=0.8)
    histogram.set(xlabel="z of means and of ln sd (ends: beyond ±8)", ylabel="density")
    histogram.legend(fontsize=8)
    figure.savefig(path, dpi=110)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute or two, too short to conclude anything")
    parser.add_argument("--work", type=Path, help="folder for stages (default: build/convergence)")
    parser.add_argument("--output", type=Path, help="folder for report and plot (default: results/convergence)")
    options = parser.parse_args(None if arguments is None else list(arguments))
    torch.set_num_threads(1)
    study = QUICK if options.quick else Study()
    work = options.work or Path("build/convergence-quick" if options.quick else "build/convergence")
    output = options.output or (work if options.quick else Path("results/convergence"))
    work.mkdir(parents=True, exist_ok=True)
    output.mkdir(parents=True, exist_ok=True)

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
    (output / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    plot(reference, {n: results[n]["draws"] for n in RUNS}, parts["forces"], output / "forces.png")
    print("\nacceptance", report["acceptance"], "\nmixing", json.dumps(report["mixing"], indent=1))


if __name__ == "__main__":
    main()
