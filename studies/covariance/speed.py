"""Time of the gradient of a minibatch with each form of the noise, interleaved, and how it grows with the atoms."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from ase.build import bulk

from equibayes.bayes.covariance import COVARIANCE_HEAD, COVARIANCES
from equibayes.bayes.potential import Potential
from equibayes.data import Dataset
from equibayes.data.structures import Structure
from equibayes.engine.native.potential import NativePotential
from equibayes.run.prepare import make_prior, prepare
from equibayes.run.settings import sample_config
from studies.covariance.cases import CASES, frames

CELLS = (2, 4, 6, 8, 11)
"""Cubic cells of silicon along each axis: 64 to 10 648 atoms."""


def speed(quick: bool) -> dict[str, Any]:
    """Seconds of CPU time of a gradient of 4 frames (1 of water), the least of many, by set and form."""
    found: dict[str, Any] = {}
    for name in ("ethanol",) if quick else CASES:
        data, _ = frames(name)
        batch = 1 if name == "water" else 4
        calls = {each: _gradient(data.subset(range(24)), each, batch) for each in COVARIANCES}
        found[name] = _least(calls, 3 if quick else 60)
    return {"batch": 4, "gradient": found}


def scaling(quick: bool) -> dict[str, Any]:
    """The same of one frame of silicon, by number of atoms."""
    found: dict[str, Any] = {}
    for cells in CELLS[: 1 if quick else None]:
        atoms = bulk("Si", cubic=True).repeat(cells)
        atoms.rattle(0.1, seed=0)
        forces = np.random.default_rng(0).normal(size=(len(atoms), 3))
        structure = Structure(atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc, energy=0.0, forces=forces)
        calls = {each: _gradient(Dataset([structure, structure], "silicon"), each, 1) for each in COVARIANCES}
        found[str(len(atoms))] = _least(calls, max(3, 2000 // len(atoms)))
    return {"gradient": found}


def _gradient(data: Dataset, covariance: str, batch: int) -> Callable[[], object]:
    """With weights that make S as large as a trained network does."""
    settings = {"likelihood": {"covariance": covariance}, "data": {"validation": 0, "energy_reference": "zero"}}
    if any(abs(s.energy or 0.0) > len(s) for s in data):
        settings["data"]["energy_reference"] = "auto"
    prepared = prepare(data, sample_config("quick", None, settings))
    model = prepared.model
    weights = model.layout.start(1, 0)
    if covariance != "isotropic":
        own = model.layout.groups[COVARIANCE_HEAD]
        weights[:, own] = 0.5 * torch.randn(1, own.stop - own.start, generator=torch.Generator().manual_seed(0))
    resident = prepared.resident(prepared.train, "cpu")
    potential = NativePotential(Potential(model, resident, make_prior(prepared, "cpu")))
    numbers = torch.arange(batch)[None]
    return lambda: potential(weights, numbers)


def _least(calls: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(times):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            least[name] = min(least[name], time.process_time() - begin)
    return least
