"""The pretrained network as it is: errors of its forces, and of energies per atom with constants per species."""

from typing import Any

import torch

from equibayes.data import Dataset
from equibayes.posterior.center import load_center
from equibayes.run.prepare import prepare
from equibayes.run.settings import sample_config


def measured(name: str, test: Dataset, device: str) -> dict[str, Any]:
    """In meV/Å and meV; energies up to constants that are fitted to the test frames themselves."""
    settings = {"prior": {"center": name, "width": 0.1}, "data": {"validation": 0}}
    with torch.no_grad():
        found = prepare(test, sample_config("tune", None, settings), center=load_center(name), device=device).zero_shot
    energy = found["energy_rms_per_atom"]
    return {
        "mae": 1e3 * found["force_mae"],
        "rmse": 1e3 * found["force_rms"],
        "energy_rms_per_atom": None if energy is None else 1e3 * energy,
    }
