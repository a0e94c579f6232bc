"""The reference (HMC) and the subject (the package's SGHMC), as draws of predictions."""

from dataclasses import dataclass

import numpy as np
import torch

from equibayes.bayes.potential import Potential
from equibayes.sampling import sghmc
from equibayes.sampling.diagnostics import kinetic_temperature
from equibayes.sampling.minibatch import batch_indices, steps_per_epoch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule
from studies.convergence import hmc
from studies.convergence.problem import SEED, Problem, full_target, starts


@dataclass(frozen=True)
class Sampler:
    """Settings of one SGHMC run.  length: steps per cycle, with one sample at its end."""

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


def run_hmc(problem: Problem, potential: Potential, center: torch.Tensor, factor: np.ndarray) -> dict[str, np.ndarray]:
    """Reference draws [K, n, Q], and u at each, [K, n]."""
    study, target = problem.study, full_target(potential)
    warm_up, counted = study.hmc
    # from a draw of the prior a chain can stick for good: every leapfrog trajectory diverges there
    start = starts(center, study, 0.3)
    chains = hmc.HMC(target, start, torch.from_numpy(factor), hmc.Settings(), SEED)
    for _ in chains.run(warm_up, adapt=True):
        pass
    chains.accepted.clear()
    draws, potentials = [], []
    for position in chains.run(counted):
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
    """Subject draws [K, n, Q], one per cycle after the warm-up, and the kinetic temperature at each, [n]."""
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
        sghmc.step(
            state,
            gradient,
            key,
            learning_rate=plan.learning_rate,
            data_size=size,
            config=config,
            temperature=plan.temperature,
            adapt_mass=False,
            inplace=True,
        )
        if plan.collect and plan.cycle >= warm_up:
            draws.append(problem.predictions(state.position))
            kinetic.append(float(kinetic_temperature(state.momentum, config).mean()))
    return {"draws": np.stack(draws, 1), "kinetic": np.array(kinetic), "steps": np.array(schedule.total_steps)}
