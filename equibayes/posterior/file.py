"""The posterior file: samples and everything needed to use them, in one safetensors file that cannot execute code.

| tensor      | shape  | meaning                                                              |
|-------------|--------|----------------------------------------------------------------------|
| `samples`   | [k, P] | posterior samples in the model's layout (float32, float64 or float16) |
| `chain`     | [k]    | the chain that each came from                                        |
| `step`      | [k]    | the step after which it was taken                                    |
| `tangent`   | [k, P] | δ of a linearised posterior (tangent.py); not in other files         |
| `novelty.…` |        | how far an atom is from all that was learned (novelty.py), if known  |

The header holds JSON under `equibayes`: format and package version, full configuration with the scales taken from the
data, energy reference, baseline, units, fingerprint of the training set, history and diagnostics of the run, a
calibration if there is one, and a checksum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from equibayes import expect, tensor_file
from equibayes.bayes.model import StochasticModel
from equibayes.config import build
from equibayes.data.checks import check_geometry
from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number
from equibayes.data.reference import EnergyReference
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.labelling.baseline import Baseline
from equibayes.network.config import NetworkConfig, check_type_names
from equibayes.notebook import html_table
from equibayes.plural import counted
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.novelty import Novelty
from equibayes.posterior.upgrade import (
    posterior_1_to_2,
    posterior_2_to_3,
    posterior_3_to_4,
    posterior_4_to_5,
    posterior_5_to_6,
    posterior_6_to_7,
)
from equibayes.run.history import check_history, check_verdict
from equibayes.version import __version__

FORMAT = "equibayes-posterior"
VERSION = 7
UPGRADES = {
    1: posterior_1_to_2,
    2: posterior_2_to_3,
    3: posterior_3_to_4,
    4: posterior_4_to_5,
    5: posterior_5_to_6,
    6: posterior_6_to_7,
}
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
    novelty     None, or what tells how far an atom is from all that was learned; of use where the first sample is that
                which it was fitted to
    tangent     [k, P] δ: sample i is the network linearised at samples[i] and moved by tangent[i]; None: not linearised
    dropout     fraction of features dropped when predicting; 0 except in the dropout baseline, whose k samples are k
                masks of one network
    engine      what made the steps of the sampler; empty in files of earlier versions
    baseline    None, or the engine whose energies, forces and stress the networks correct: predictions are the sum
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
    tangent: torch.Tensor | None = None
    novelty: Novelty | None = None
    dropout: float = 0.0
    version: str = __version__
    engine: str = ""
    baseline: Baseline | None = None

    def __repr__(self) -> str:
        network, calibrated = self.network, "calibrated" if self.calibration else "not calibrated"
        chains = counted(len(set(self.chain.tolist())), "chain")
        return (
            f"Posterior({counted(len(self), 'sample')} from {chains}; species {' '.join(network.type_names)}; {calibrated};\n"
            f"          NequIP: {counted(network.num_layers, 'layer')}, l ≤ {network.l_max}, cutoff {network.r_max:g} Å, "
            f"{self.samples.shape[1]} weights)"
        )

    def _repr_html_(self) -> str:
        from equibayes.posterior.summary import lines_of

        return html_table(lines_of(self), "Posterior")

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
            raise InputError(f"k={k}: this posterior has {counted(len(self), 'sample')}")
        return self.take(range(k))

    def take(self, numbers: Sequence[int]) -> "Posterior":
        """Some of the samples."""
        own = torch.as_tensor(list(numbers))
        tangent = None if self.tangent is None else self.tangent[own]
        return replace(self, samples=self.samples[own], chain=self.chain[own], step=self.step[own], tangent=tangent)

    def predict(
        self,
        structures: Any,
        *,
        members: bool = False,
        covariance: bool = False,
        device: torch.device | str | None = None,
    ) -> Any:
        """A `Prediction` for one structure (ASE atoms or ours), a list of them for a list.

        members     also the prediction of every sample
        covariance  also `forces_covariance`: how errors of the forces go together
        device      cpu, cuda, …; None: a GPU if there is one
        """
        from equibayes.posterior.predict import predict

        single = not isinstance(structures, (list, tuple, Dataset))
        given = [structures] if single else structures
        ours = [s if isinstance(s, Structure) else Structure.from_atoms(s) for s in given]
        for structure in ours:
            check_geometry(structure)
        predictions = list(predict(self, ours, members=members, covariance=covariance, device=device))
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
            "novelty": None if self.novelty is None else self.novelty.about,
            "baseline": None if self.baseline is None else self.baseline.to_dict(),
            **{name: getattr(self, name) for name in PLAIN},
        }
        tensors = {"samples": samples, "chain": self.chain, "step": self.step}
        if self.tangent is not None:
            tensors["tangent"] = self.tangent.to(samples.dtype)
        if self.novelty is not None:
            tensors |= self.novelty.tensors()
        write(path, header, tensors)


def read(path: str | Path) -> tuple[dict[str, Any], tensor_file.Tensors]:
    """Header and tensors of a posterior file, of the present version or an earlier one."""
    return tensor_file.read(Path(path), format=FORMAT, version=VERSION, what="posterior file", upgrades=UPGRADES)


def write(path: str | Path, header: dict[str, Any], tensors: tensor_file.Tensors) -> None:
    """Write header and tensors as a posterior file of the present version."""
    tensor_file.write(Path(path), tensors, header, format=FORMAT, version=VERSION)


def load(path: str | Path, *, check_calibration: bool = True) -> Posterior:
    """Read a posterior file and check its values.  Nothing in it is executed."""
    header, tensors = read(path)
    try:
        posterior = Posterior(
            samples=tensors["samples"],
            chain=tensors["chain"],
            step=tensors["step"],
            tangent=tensors.get("tangent"),
            network=build(NetworkConfig, header["network"], where="network"),
            reference=EnergyReference.from_dict(header["energy_reference"]),
            engine=expect.text(header.get("engine", ""), "engine"),
            baseline=None if header["baseline"] is None else Baseline.from_dict(header["baseline"]),
            **{name: header[name] for name in PLAIN},
        )
        _check_header(posterior)
        expect.section(header["units"], "units")
        expect.plain(header["units"], "units")
        posterior = _checked(posterior)
        if header["novelty"] is not None:
            network, features = posterior.network, posterior.model.network.invariants
            about = (header["novelty"], len(network.type_names), features, network.r_max)
            posterior = replace(posterior, novelty=Novelty.from_file(tensors, *about))
    except KeyError as cause:
        raise InputError(f"{path}: this posterior file makes no sense ({cause} is missing); sample again") from cause
    except (TypeError, ValueError, AttributeError, OverflowError, RuntimeError, InputError) as cause:
        raise InputError(f"{path}: this posterior file makes no sense ({cause}); sample again") from cause
    if check_calibration and posterior.calibration is not None:
        try:
            Calibration.from_dict(posterior.calibration)
        except InputError as cause:
            raise InputError(f"{path}: {cause}") from cause
    return posterior


def _check_header(posterior: Posterior) -> None:
    """An `InputError` that names the first field whose value cannot be."""
    check_type_names(posterior.network)
    posterior.reference.check()
    data, config = expect.section(posterior.data, "data"), expect.section(posterior.config, "config")
    for name in ("name", "fingerprint", "validation_fingerprint"):
        expect.text(data.get(name, ""), f"data.{name}")
    for name in ("frames", "atoms", "validation_frames"):
        expect.whole(data.get(name, 0), f"data.{name}")
    for name in ("frame_marks", "validation_sources"):
        expect.texts(data.get(name, []), f"data.{name}")
    expect.plain(config, "config")
    sampler = expect.section(config.get("sampler", {}), "config.sampler")
    expect.number(sampler.get("temperature", 1.0), "config.sampler.temperature", 0)
    labels = expect.section(config.get("labels", {}), "config.labels")
    expect.number(labels.get("noise", 1.0), "config.labels.noise", 0, 1)
    check_history(posterior.history)
    check_verdict(posterior.verdict)
    if expect.number(posterior.dropout, "dropout", 0, 1) == 1:
        raise InputError("dropout=1: no feature would be left")
    expect.text(posterior.version, "version")


def _checked(posterior: Posterior) -> Posterior:
    """With samples in the network's precision; an `InputError` where shapes or values cannot be."""
    shape, expected = tuple(posterior.samples.shape), posterior.model.layout.size
    if len(shape) != 2 or shape[0] < 1 or shape[1] != expected:
        raise InputError(f"samples have shape {shape}, the network needs {expected} weights")
    if posterior.chain.shape != shape[:1] or posterior.step.shape != shape[:1]:
        raise InputError("chain and step do not match the samples")
    expect.counts(posterior.chain, "chain", shape[:1])
    expect.counts(posterior.step, "step", shape[:1])
    if not posterior.samples.is_floating_point():
        raise InputError(f"samples are {posterior.samples.dtype}, not real numbers")
    dtype, tangent = getattr(torch, posterior.network.model_dtype), posterior.tangent
    samples = posterior.samples.to(dtype)
    if not bool(samples.isfinite().all()):
        raise InputError("samples are not finite")
    if tangent is not None and (tangent.shape != samples.shape or not bool(tangent.isfinite().all())):
        raise InputError(f"tangent has shape {tuple(tangent.shape)} or is not finite; samples have {shape}")
    return replace(posterior, samples=samples, tangent=None if tangent is None else tangent.to(dtype))
