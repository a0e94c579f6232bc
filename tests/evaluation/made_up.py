"""Evaluations and a posterior with known answers, made by hand: no sampling, so that tests of the report are quick."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from equibayes.data import Structure, read
from equibayes.data.reference import EnergyReference
from equibayes.evaluation.evaluated import Evaluated
from equibayes.posterior.calibration import Calibrated, Calibration, Rescaling
from equibayes.posterior.file import Posterior
from tests.models import small_model

CHAINS = 2


def made_up(
    name: str = "near", frames: int = 40, *, k: int = 4, size: float = 0.05, too_small: float = 1.0, seed: int = 0
) -> Evaluated:
    """Ethanol whose errors are Gaussian, `too_small` times as wide as σ says; σ is about `size` eV/Å and differs
    between atoms."""
    structures = list(read(f"bundled:ethanol@0:{frames}"))
    return evaluated_of(name, structures, k=k, size=size, too_small=too_small, seed=seed)


def evaluated_of(
    name: str, structures: list[Structure], *, k: int, size: float, too_small: float, seed: int
) -> Evaluated:
    random = np.random.default_rng(seed)
    number = np.concatenate([s.numbers for s in structures])
    sigma = np.repeat(size * random.uniform(0.5, 2.0, (len(number), 1)), 3, axis=1)
    true = np.concatenate([np.full((len(s), 3), np.nan) if s.forces is None else s.forces for s in structures])
    energy = np.array([np.nan if s.energy is None else s.energy for s in structures])
    energy_sigma = np.full(len(structures), 0.02)
    drawn = random.normal(0, too_small * sigma)
    return Evaluated(
        name=name,
        k=k,
        structures=structures,
        energy_true=energy,
        energy_mean=np.nan_to_num(energy) + random.normal(0, 0.02, len(energy)),
        energy_sigma=energy_sigma,
        energy_epistemic=0.6 * energy_sigma,
        energy_aleatoric=0.8 * energy_sigma,
        force_true=true,
        force_mean=np.nan_to_num(true) + drawn,
        force_sigma=sigma,
        force_epistemic=0.6 * sigma,
        force_aleatoric=0.8 * sigma,
        number=number,
        frame=np.repeat(np.arange(len(structures)), [len(s) for s in structures]),
    )


def stressed(result: Evaluated, too_small: float = 1.0) -> Evaluated:
    """The same with stress labels in three of four frames; σ is about 0.01 eV/Å³ (1.6 GPa)."""
    random, frames = np.random.default_rng(5), len(result.structures)
    sigma = np.repeat(0.01 * random.uniform(0.5, 2.0, (frames, 1)), 6, axis=1)
    true = random.normal(0, 0.05, (frames, 6))
    mean = true + random.normal(0, too_small * sigma)
    true[::4] = np.nan
    parts = {"sigma": sigma, "epistemic": 0.6 * sigma, "aleatoric": 0.8 * sigma, "true": true, "mean": mean}
    return replace(result, **{f"stress_{name}": part for name, part in parts.items()})


def made_up_posterior(samples: int = 4, **changes: Any) -> Posterior:
    """Random weights, with a history and diagnostics as a run leaves them."""
    model, weights = small_model(samples)
    posterior = Posterior(
        samples=weights,
        chain=torch.arange(samples) % CHAINS,
        step=torch.full((samples,), 399),
        network=model.config,
        reference=EnergyReference("given", {1: -13.0, 6: -1030.0, 8: -2040.0}),
        config={"chains": CHAINS, "samples": samples},
        data={"name": "bundled:ethanol@train", "frames": 970, "validation_frames": 30, "fingerprint": "abc"},
        history=[_record(step) for step in range(50, 401, 10)],
        verdict={"r_hat_forces": 1.02, "ess_forces": 120.0, "warnings": [], "events": [], "failed_chains": []},
    )
    return replace(posterior, **changes)


def _record(step: int) -> dict[str, Any]:
    random = np.random.default_rng(step)
    late = step > 300
    error = 0.05 + np.exp(-step / 60) * random.uniform(0.9, 1.1, CHAINS)
    return {
        "step": step,
        "phase": "cycle" if late else "burn-in",
        "force_mae": error.tolist(),
        "force_sigma": (1.2 * error).tolist(),
        "validation_force_mae": (1.1 * error).tolist() if step % 20 == 0 else None,
        "log_posterior": (1000 - 500 * error).tolist(),
        "kinetic_temperature": random.uniform(0.9, 1.1, CHAINS).tolist(),
        "learning_rate": [1e-3] * CHAINS,
        "temperature": 1.0,
        **({"probes": random.normal(0, 1, (CHAINS, 7)).tolist()} if late else {}),
    }


def calibrated(posterior: Posterior) -> Posterior:
    """With σ of forces multiplied by 2 and energies left alone."""
    ks = range(1, len(posterior) + 1)
    found = Calibration(
        energy=Calibrated("none", {k: Rescaling() for k in ks}),
        forces=Calibrated("scale", {k: Rescaling(factor=2.0) for k in ks}),
        data={"name": "val.xyz", "frames": 30},
    )
    return replace(posterior, calibration=found.to_dict())
