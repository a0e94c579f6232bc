"""The posterior file: samples and everything needed to use them, in one safetensors file that nothing in can be executed.

| tensor    | shape  | meaning                                                              |
|-----------|--------|----------------------------------------------------------------------|
| `samples` | [k, P] | posterior samples in the model's layout (float32, float64 or float16) |
| `chain`   | [k]    | the chain that each came from                                        |
| `step`    | [k]    | the step after which it was taken                                    |

The header holds JSON under `equibayes`: format and package version, full configuration with the scales taken from the data, energy
reference, units, fingerprint of the training set, history and diagnostics of the run, and a slot for a calibration.
"""

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from equibayes.bayes.model import StochasticModel
from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number
from equibayes.data.reference import EnergyReference
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import write_atomically
from equibayes.network.config import NetworkConfig
from equibayes.version import __version__

FORMAT = "equibayes-posterior"
VERSION = 1
UNITS = {"energy": "eV", "length": "Å", "force": "eV/Å", "stress": "eV/Å³"}


@dataclass(frozen=True, eq=False)
class Posterior:
    """Samples of whole networks, and what they were sampled from.

    samples     [k, P]
    chain       [k] int64
    step        [k] int64
    network     settings with the scales that were taken from the data
    reference   what an energy of 0 means
    config      settings of the run, nested
    data        name, size and fingerprint of the training set and of the held-back frames
    history     records of the run
    verdict     diagnostics in numbers and words
    calibration None, or what `equibayes calibrate` found
    """

    samples: torch.Tensor
    chain: torch.Tensor
    step: torch.Tensor
    network: NetworkConfig
    reference: EnergyReference
    config: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    verdict: dict[str, Any] = field(default_factory=dict)
    calibration: dict[str, Any] | None = None
    version: str = __version__

    @cached_property
    def model(self) -> StochasticModel:
        return StochasticModel(self.network)

    @property
    def species_of(self) -> dict[int, int]:
        """Atomic number -> index of the type in the network."""
        return {atomic_number(name): index for index, name in enumerate(self.network.type_names)}

    def __len__(self) -> int:
        return len(self.samples)

    def subset(self, k: int) -> "Posterior":
        """The first k samples, taken in turn from the chains."""
        if not 1 <= k <= len(self):
            raise InputError(f"k={k}: this posterior has {len(self)} samples")
        return replace(self, samples=self.samples[:k], chain=self.chain[:k], step=self.step[:k])

    def predict(self, structures: Any, *, members: bool = False) -> Any:
        """A `Prediction` for one structure (ASE atoms or ours), a list of them for a list."""
        from equibayes.posterior.predict import predict

        single = not isinstance(structures, (list, tuple, Dataset))
        given = [structures] if single else structures
        ours = [s if isinstance(s, Structure) else Structure.from_atoms(s) for s in given]
        predictions = list(predict(self, ours, members=members))
        return predictions[0] if single else predictions

    def save(self, path: str | Path, *, half_precision: bool = False) -> None:
        """Write the file atomically.  Two equal posteriors give equal bytes."""
        samples = self.samples.half() if half_precision else self.samples
        header = {
            "format": FORMAT,
            "format_version": VERSION,
            "version": self.version,
            "units": UNITS,
            "network": self.network.to_dict(),
            "energy_reference": self.reference.to_dict(),
            "config": self.config,
            "data": self.data,
            "history": self.history,
            "verdict": self.verdict,
            "calibration": self.calibration,
        }
        metadata = {"equibayes": json.dumps(header, sort_keys=True, allow_nan=False)}
        tensors = {"samples": samples.contiguous(), "chain": self.chain.contiguous(), "step": self.step.contiguous()}
        write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))


def load(path: str | Path) -> Posterior:
    """Read a posterior file.  Nothing in it is executed."""
    header, tensors = _read(Path(path))
    try:
        posterior = Posterior(
            samples=tensors["samples"],
            chain=tensors["chain"],
            step=tensors["step"],
            network=NetworkConfig(**header["network"]),
            reference=EnergyReference.from_dict(header["energy_reference"]),
            **{name: header[name] for name in ("config", "data", "history", "verdict", "calibration", "version")},
        )
    except (KeyError, TypeError, ValueError) as cause:
        raise InputError(f"{path}: the header of this posterior file is incomplete ({cause}); sample again") from cause
    expected = posterior.model.layout.size
    if posterior.samples.ndim != 2 or posterior.samples.shape[1] != expected:
        shape = tuple(posterior.samples.shape)
        raise InputError(f"{path}: samples have shape {shape}, its network needs {expected} weights; sample again")
    dtype = getattr(torch, posterior.network.model_dtype)
    samples = posterior.samples.to(dtype)
    if not bool(samples.isfinite().all()):
        raise InputError(f"{path}: the samples contain values that are not finite; sample again")
    return replace(posterior, samples=samples)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}; name a posterior file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(metadata["equibayes"])
    except (SafetensorError, OSError, ValueError, KeyError) as cause:
        reason = str(cause).splitlines()[0] if not isinstance(cause, KeyError) else "no equibayes header"
        raise InputError(f"{path}: not a posterior file, or a damaged one ({reason})") from cause
    if header.get("format") != FORMAT:
        raise InputError(f"{path}: not a posterior file but {header.get('format')}")
    if header.get("format_version") != VERSION:
        raise InputError(
            f"{path}: posterior format {header.get('format_version')}, this equibayes reads {VERSION}; update equibayes"
        )
    return header, tensors
