"""Time of a step of the sampler with each form of the noise, interleaved, and how it grows with the atoms."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase.build import bulk

from equibayes.bayes.covariance import COVARIANCE_HEAD, COVARIANCES
from equibayes.bayes.potential import Potential
from equibayes.data import Dataset
from equibayes.data.structures import Structure
from equibayes.engine.select import make_stepper
from equibayes.posterior.file import load
from equibayes.run.prepare import make_prior, prepare
from equibayes.run.settings import sample_config
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stretch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan
from studies.covariance.cases import CASES, frames

CELLS = (2, 4, 6, 8, 11)
"""Cubic cells of silicon along each axis: 64 to 10 648 atoms."""
RATE = 1e-9
"""So small that the weights stay where they are."""


def speed(kept: Path, quick: bool) -> dict[str, Any]:
    """Seconds of CPU time per step on minibatches as the study has them, the least of many, by set and form.

    kept: folder with posteriors of seed 0, of whose weights the first are taken; the series of exp(S) is longer for
    large S
    """
    found: dict[str, Any] = {}
    for name in ("ethanol",) if quick else CASES:
        data, _ = frames(name)
        batch = CASES[name].settings["burn_in"]["batch_size"]
        clocks = {}
        for each in COVARIANCES:
            path = kept / f"{name}-{each}-0.posterior"
            weights = load(path).samples[:1] if path.is_file() else None
            clocks[each] = Clock(data.subset(range(24)), each, batch, steps=10, weights=weights)
        found[name] = _least(clocks, 3 if quick else 30)
    return {"step": found}


def scaling(quick: bool) -> dict[str, Any]:
    """The same of one frame of silicon, by number of atoms."""
    found: dict[str, Any] = {}
    for cells in CELLS[: 1 if quick else None]:
        atoms = bulk("Si", cubic=True).repeat(cells)
        atoms.rattle(0.1, seed=0)
        forces = np.random.default_rng(0).normal(size=(len(atoms), 3))
        structure = Structure(atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc, energy=0.0, forces=forces)
        data = Dataset([structure, structure], "silicon")
        clocks = {each: Clock(data, each, 1, steps=1) for each in COVARIANCES}
        found[str(len(atoms))] = _least(clocks, max(3, 2000 // len(atoms)))
    return {"step": found}


class Clock:
    """One chain of the compiled engine; weights [1, P], or None for random ones that make S large."""

    def __init__(
        self, data: Dataset, covariance: str, batch: int, steps: int, weights: torch.Tensor | None = None
    ) -> None:
        settings: dict[str, Any] = {"likelihood": {"covariance": covariance}, "sampler": {"mass": "matrix"}}
        settings["data"] = {"validation": 0, "energy_reference": "zero"}
        if any(abs(s.energy or 0.0) > len(s) for s in data):
            settings["data"]["energy_reference"] = "auto"
        prepared = prepare(data, sample_config("quick", None, settings))
        layout, sampler = prepared.model.layout, prepared.config.sampler
        if weights is None:
            weights = layout.start(1, 0)
            if covariance != "isotropic":
                own = layout.groups[COVARIANCE_HEAD]
                weights[:, own] = torch.randn(1, own.stop - own.start, generator=torch.Generator().manual_seed(0))
        potential = Potential(prepared.model, prepared.resident(prepared.train, "cpu"), make_prior(prepared, "cpu"))
        state = sghmc.init(weights, blocks=sampler.blocks(layout.shapes))
        self.stepper = make_stepper(
            potential, state, NoiseKey(0, (0,)), sampler, longest=steps, batch_size=batch, precision="mixed"
        )
        plans = [StepPlan(RATE, 0.0, "burn_in", i, -1, True, False) for i in range(steps)]
        self.stretch = Stretch(0, plans, torch.arange(steps * batch).reshape(steps, 1, batch) % len(data))
        self.rates = torch.full((steps, 1), RATE, dtype=torch.float64)

    def seconds(self) -> float:
        """Of CPU time per step."""
        begin = time.process_time()
        self.stepper.advance(self.stretch, self.rates)
        return (time.process_time() - begin) / len(self.stretch.plans)


def _least(clocks: dict[str, Clock], times: int) -> dict[str, float]:
    rounds = [{name: clock.seconds() for name, clock in clocks.items()} for _ in range(times)]
    return {name: min(each[name] for each in rounds) for name in clocks}
