"""Settings of the studies of solids and of energies, all of them, so that presets may change."""

from collections.abc import Sequence
from typing import Any

from equibayes.config import merge, parse_overrides
from equibayes.run.settings import SampleConfig, sample_config

NETWORK = "small"
BALANCE = 0.3
SETTINGS: dict[str, Any] = {
    "chains": 4,
    "samples": 8,
    "tangent": "off",
    "sampler": {"mass": "matrix", "friction": 0.1},
    "burn_in": {
        "steps": 4000,
        "epochs": None,
        "batch_size": 4,
        "initial": 3e-2,
        "final": 1e-4,
        "decay": "linear",
        "freeze_mass": 0.9,
        "noise_free": 0.9,
        "balance": BALANCE,
    },
    "cycles": {"kind": "rise_and_fall", "length": 300, "peak": 1e-3, "batch_size": 4},
}
PERIODIC = {"network": {"r_max": 5.0}}
LARGE_CELLS = {"burn_in": {"batch_size": 1}, "cycles": {"batch_size": 1}}


def config(network: str | None, overrides: Sequence[str], *layers: dict[str, Any]) -> SampleConfig:
    """SETTINGS ← layers ← overrides such as network.r_max=6."""
    return sample_config("quick", network or NETWORK, merge(SETTINGS, *layers), parse_overrides(overrides))
