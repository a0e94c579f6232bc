"""The posterior file: samples and everything needed to use them, in one safetensors file that cannot execute code.

| tensor    | shape  | meaning                                                              |
|-----------|--------|----------------------------------------------------------------------|
| `samples` | [k, P] | posterior samples in the model's layout (float32, float64 or float16) |
| `chain`   | [k]    | the chain that each came from                                        |
| `step`    | [k]    | the step after which it was taken                                    |

The header holds JSON under `equibayes`: format and package version, full configuration with the scales taken from the
data, energy reference, units, fingerprint of the training set, history and diagnostics of the run, a calibration if
there is one, and a checksum.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from equibayes import tensor_file
from equibayes.bayes.model import StochasticModel
from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number
from equibayes.data.reference import EnergyReference
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.network.config import NetworkConfig
from equibayes.posterior.upgrade import posterior_1_to_2
from equibayes.version import __version__

FORMAT = "equibayes-posterior"
VERSION = 2
UPGRADES = {1: posterior_1_to_2}
UNITS = {"energy": "eV", "length": "Å", "force": "eV/Å", "stress": "eV/Å³"}
PLAIN = ("config", "data", "history", "verdict", "calibration", "dropout", "version")
"""Fields that are stored in the header as they are."""


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
    dropout     fraction of features dropped when predicting; 0 except in the dropout baseline, whose k samples are k
                masks of one network
    engine      what made the steps of the sampler; empty in files of earlier versions
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
    dropout: float = 0.0
    version: str = __version__
    engine: str = ""

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
        if not bool(samples.isfinite().all()):
            raise InputError(f"{path}: some weights are too large for half precision; set output.half_precision=false")
        header = {
            "units": UNITS,
            "network": self.network.to_dict(),
            "energy_reference": self.reference.to_dict(),
            "engine": self.engine,
            **{name: getattr(self, name) for name in PLAIN},
        }
        write(path, header, {"samples": samples, "chain": self.chain, "step": self.step})


def read(path: str | Path) -> tuple[dict[str, Any], tensor_file.Tensors]:
    """Header and tensors of a posterior file, of the present version or an earlier one."""
    return tensor_file.read(Path(path), format=FORMAT, version=VERSION, what="posterior file", upgrades=UPGRADES)


def write(path: str | Path, header: dict[str, Any], tensors: tensor_file.Tensors) -> None:
    """Write header and tensors as a posterior file of the present version."""
    tensor_file.write(Path(path), tensors, header, format=FORMAT, version=VERSION)


def load(path: str | Path) -> Posterior:
    """Read a posterior file.  Nothing in it is executed."""
    header, tensors = read(path)
    try:
        posterior = Posterior(
            samples=tensors["samples"],
            chain=tensors["chain"],
            step=tensors["step"],
            network=NetworkConfig(**header["network"]),
            reference=EnergyReference.from_dict(header["energy_reference"]),
            engine=header.get("engine", ""),
            **{name: header[name] for name in PLAIN},
        )
        return _checked(posterior)
    except (KeyError, TypeError, ValueError, AttributeError, InputError) as cause:
        raise InputError(f"{path}: this posterior file makes no sense ({cause}); sample again") from cause


def _checked(posterior: Posterior) -> Posterior:
    """With samples in the network's precision; an `InputError` where shapes or values cannot be."""
    shape, expected = tuple(posterior.samples.shape), posterior.model.layout.size
    if len(shape) != 2 or shape[0] < 1 or shape[1] != expected:
        raise InputError(f"samples have shape {shape}, the network needs {expected} weights")
    if posterior.chain.shape != shape[:1] or posterior.step.shape != shape[:1]:
        raise InputError("chain and step do not match the samples")
    samples = posterior.samples.to(getattr(torch, posterior.network.model_dtype))
    if not bool(samples.isfinite().all()):
        raise InputError("samples are not finite")
    return replace(posterior, samples=samples)
