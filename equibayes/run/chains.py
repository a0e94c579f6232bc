"""K chains of one posterior on one device: what they descend, where they begin, and what identifies them."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import CentredNormal, Prior
from equibayes.data.dataset import Dataset
from equibayes.data.resident import ResidentData
from equibayes.data.splits import split
from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.run.prepare import Prepared, make_prior
from equibayes.run.settings import SampleConfig
from equibayes.run.state import RunState
from equibayes.run.store import VALIDATION
from equibayes.sampling.basis import Blocks
from equibayes.sampling.chain import Batches, Course
from equibayes.sampling.noise import NoiseKey, standard_normal

START_SHARE = 0.1
# enough to see a drift, and few enough that they cost as little as the validations
FIXED_FRAMES = 256
STATE_COPIES = 6
"""Arrays as large as the weights that a run holds at least: weights, momentum, mass, its moments, gradient."""
STREAM_START = 5  # of the counter-based noise; the chains use the smaller numbers

MakePotential = Callable[[Prepared, ResidentData, Prior], Potential]


@dataclass(frozen=True)
class Chains:
    """
    potential   what the chains descend, with its data on the device
    config      settings of the run
    key         seed and identities of the K chains; their weights, noise and minibatches follow from it
    start       [K, P] weights before the first step, on the device
    validation  held-back frames, to watch the run; they influence nothing
    about       identifies the run, so that a checkpoint of another one is refused
    average     collect a moving average of the weights (for a point estimate, never for a posterior)
    """

    potential: Potential
    config: SampleConfig
    key: NoiseKey
    start: torch.Tensor
    validation: ResidentData | None
    about: dict[str, Any]
    average: bool

    @classmethod
    def of(
        cls,
        potential: Potential,
        config: SampleConfig,
        *,
        identities: Sequence[int] | None = None,
        start: torch.Tensor | None = None,
        validation: ResidentData | None = None,
        about: dict[str, Any] | None = None,
        average: bool = False,
    ) -> "Chains":
        """Chains with the given identities (default 0 … K−1), from random weights unless a start [K, P] is given."""
        chains = tuple(range(config.chains) if identities is None else identities)
        forces = potential.data.forces
        if start is None:
            start = potential.model.layout.start(max(chains) + 1, config.seed, forces.dtype)[list(chains)]
        key = NoiseKey(config.seed, chains)
        return cls(potential, config, key, start.to(forces.device), validation, about or {}, average)

    @property
    def device(self) -> torch.device:
        return self.start.device

    @property
    def course(self) -> Course:
        """All steps of the run."""
        config, size = self.config, self.potential.data_size
        batches = Batches(
            size,
            config.burn_in.batch_size,
            config.cycles.batch_size,
            config.burn_in.early_batch_size,
            config.early_steps(size),
        )
        return Course(config.schedule(size), batches, self.key, config.guard.interval)

    @property
    def blocks(self) -> Blocks:
        """The weight matrices that a matrix mass acts on."""
        return self.config.sampler.blocks(self.potential.model.layout.shapes)

    @property
    def fixed_frames(self) -> torch.Tensor:
        """Numbers of the training frames on which u is compared from cycle to cycle, on the device."""
        size = self.potential.data_size
        chosen = split(size, {"fixed": min(size, FIXED_FRAMES)}, self.config.seed)["fixed"]
        return torch.from_numpy(chosen).to(self.device)

    def begin(self) -> RunState:
        """The state before the first step."""
        return RunState.start(self.start, average=self.average, blocks=self.blocks)


def make_chains(
    prepared: Prepared,
    data: Dataset,
    device: torch.device | str,
    *,
    identities: Sequence[int] | None = None,
    start: torch.Tensor | None = None,
    potential: MakePotential | None = None,
    average: bool = False,
) -> Chains:
    """The chains of a prepared run, or those of them with the given identities, on a device.

    start      weights [K, P] of all chains to begin with, if not random; the sampled distribution does not depend on it
    potential  makes what the chains descend, if not the negative log posterior
    """
    config = prepared.config
    check_memory(config.chains if identities is None else max(identities) + 1, prepared, torch.device(device))
    about = describe_run(prepared, data, start)
    prior = make_prior(prepared, device, identities)
    if start is not None:
        start = checked_start(start, prepared)
        start = start if identities is None else start[list(identities)]
    elif prepared.center is not None and isinstance(prior, CentredNormal):
        start = start_near_center(prior, NoiseKey(config.seed, identities or range(config.chains)))
    train = prepared.resident(prepared.train, device)
    return Chains.of(
        potential(prepared, train, prior) if potential else Potential(prepared.model, train, prior),
        config,
        identities=identities,
        start=start,
        validation=prepared.resident(prepared.validation, device) if len(prepared.validation) else None,
        about=about,
        average=average,
    )


def check_memory(chains: int, prepared: Prepared, device: torch.device) -> None:
    """An `InputError` where the state of the chains alone is larger than the memory of the device."""
    weights, dtype = prepared.model.layout.size, getattr(torch, prepared.network.model_dtype)
    needed = STATE_COPIES * chains * weights * dtype.itemsize
    if device.type == "cuda":
        present = torch.cuda.get_device_properties(device).total_memory
    elif "SC_PHYS_PAGES" in os.sysconf_names:
        present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        return
    if needed > present:
        raise InputError(
            f"chains={chains} of a network with {weights} weights need at least {needed / 1e9:.3g} GB, {device.type} has "
            f"{present / 1e9:.3g} GB; lower chains, network.num_features or network.num_layers"
        )


def describe_run(prepared: Prepared, data: Dataset, start: torch.Tensor | None = None) -> dict[str, Any]:
    """What identifies a run: its settings, its data, and the files and weights that it begins with."""
    about: dict[str, Any] = {"config": prepared.config.identity(), "the data": data.fingerprint()}
    about[VALIDATION] = prepared.validation.fingerprint()
    if start is not None:
        about["the start"] = hashlib.sha256(checked_start(start, prepared).numpy().tobytes()).hexdigest()
    if prepared.center is not None:
        about["the file of prior.center"] = prepared.center.digest
    return about


def start_near_center(prior: CentredNormal, key: NoiseKey) -> torch.Tensor:
    """Weights [K, P] near the centre of the prior, different for each chain.

    Random weights would be many widths away from a narrow prior, and a draw from a wide prior would lose what the
    centre has learned; so a tenth of the width.
    """
    noise = standard_normal(key, 0, prior.center.shape[-1], stream=STREAM_START, dtype=prior.center.dtype)
    return prior.center + START_SHARE * prior.width * noise.to(prior.center.device)


def checked_start(start: torch.Tensor, prepared: Prepared) -> torch.Tensor:
    """On the CPU, in the network's precision; one row per chain."""
    shape, size = tuple(start.shape), prepared.model.layout.size
    if shape != (prepared.config.chains, size):
        raise InputError(
            f"a start of shape {shape} does not fit {counted(prepared.config.chains, 'chain')} with "
            f"{counted(size, 'weight')} each; use the same network"
        )
    return start.detach().cpu().to(getattr(torch, prepared.network.model_dtype)).contiguous()
