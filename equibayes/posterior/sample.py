"""From a data set to a posterior in one call: what `equibayes sample` does."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import CentredNormal, Prior, StandardNormal, group_widths
from equibayes.config import template
from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number
from equibayes.data.reference import EnergyReference, fit, suggest_kind
from equibayes.data.resident import ResidentData
from equibayes.data.splits import check_disjoint, split
from equibayes.errors import InputError
from equibayes.files import make_folder, write_text
from equibayes.network.config import NetworkConfig
from equibayes.network.official import load_official
from equibayes.network.scales import fit_scales, rms_force
from equibayes.posterior.file import Posterior, load
from equibayes.sampling.chain import ChainRunner
from equibayes.sampling.progress import Display, Silent
from equibayes.sampling.run_state import RunState
from equibayes.sampling.settings import SampleConfig, sample_config
from equibayes.sampling.verdict import judge


@dataclass(frozen=True)
class Prepared:
    """Everything that follows from data and settings before the first step."""

    config: SampleConfig
    network: NetworkConfig
    reference: EnergyReference
    train: Dataset
    validation: Dataset
    model: StochasticModel

    def resident(self, data: Dataset, device: torch.device | str) -> ResidentData:
        """A data set on the device, with the energy reference taken off."""
        return ResidentData(
            data,
            r_max=self.network.r_max,
            species_of={atomic_number(name): index for index, name in enumerate(self.network.type_names)},
            reference=[self.reference.total(structure.numbers) for structure in data],
            dtype=getattr(torch, self.network.model_dtype),
            device=device,
        )


def prepare(data: Dataset, config: SampleConfig) -> Prepared:
    """Hold frames back, fit energy reference and scales on the rest, lay out the model."""
    held = config.data.validation
    if len(data) - held < 1:
        raise InputError(
            f"{data.name}: {len(data)} frames, of which data.validation={held} are held back; none is left"
        )
    parts = split(data, {"train": len(data) - held, "validation": held}, config.seed)
    check_disjoint(parts, data)
    train, validation = data.subset(parts["train"]), data.subset(parts["validation"])
    kind = config.data.energy_reference
    if kind == "auto":
        kind = "per_structure" if suggest_kind(train) == "per_structure" else "lstsq"
    reference = fit(train, kind, {**config.data.given_energies} or None)
    network = fit_scales(config.network, train)
    shifts = {name: reference.shifts.get(atomic_number(name), 0.0) for name in network.type_names}
    network = replace(network, per_type_energy_shifts=shifts)
    force = rms_force(train)
    energies = [s.energy - reference.total(s.numbers) for s in train if s.energy is not None]
    spread = float(np.sqrt(np.mean(np.square(energies)))) if energies else force
    model = StochasticModel(network, start_sigma=force, start_sigma_energy=max(force, spread))
    return Prepared(config, network, reference, train, validation, model)


def sample(
    data: Dataset,
    config: SampleConfig | None = None,
    *,
    output: str | Path | None = None,
    resume: bool = False,
    device: torch.device | str | None = None,
    display: Display | None = None,
) -> Posterior:
    """Sample the posterior of a network given a data set.

    output   where to write the posterior file; checkpoints, metrics and the effective settings go to a folder beside it
    resume   continue a run that was interrupted, bit for bit
    device   cpu, cuda, …; by default a GPU if there is one
    """
    config, display = config or sample_config(), display or Silent()
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    prepared = prepare(data, config)
    folder = run_folder(output) if output else None
    if folder:
        make_folder(folder)
        write_text(folder / "config.yaml", template(replace(config, network=prepared.network)) + "\n")
    potential = Potential(prepared.model, prepared.resident(prepared.train, device), make_prior(prepared, device))
    runner = ChainRunner(
        potential,
        config,
        validation=prepared.resident(prepared.validation, device) if len(prepared.validation) else None,
        folder=folder,
        about={"config": config.to_dict(), "data": data.fingerprint()},
        display=display,
    )
    state = runner.run(resume=resume)
    posterior = gather(prepared, state, runner.schedule.sample_steps)
    if output:
        posterior.save(output, half_precision=config.output.half_precision)
    return posterior


def gather(prepared: Prepared, state: RunState, steps: list[int]) -> Posterior:
    """Samples of all chains, in the order of steps and in turn over chains, cut to the number that was asked for."""
    rows = [
        (sample[chain], chain, step)
        for sample, kept, step in zip(state.samples, state.kept, steps)
        for chain in range(len(sample))
        if bool(kept[chain]) and not bool(state.failed[chain])
    ]
    # the latest are the furthest from the start; with equal numbers from every chain
    rows = rows[-prepared.config.samples :]
    return Posterior(
        samples=torch.stack([row[0] for row in rows]),
        chain=torch.tensor([row[1] for row in rows]),
        step=torch.tensor([row[2] for row in rows]),
        network=prepared.network,
        reference=prepared.reference,
        config=prepared.config.to_dict(),
        data=describe_data(prepared.train, prepared.validation),
        history=state.history,
        verdict=judge(state, prepared.config),
    )


def describe_data(train: Dataset, validation: Dataset) -> dict[str, Any]:
    """What the posterior was conditioned on, so that it can be recognised."""
    held = [structure.source for structure in validation]
    return {
        "name": train.name,
        "frames": len(train),
        "atoms": int(train.n_atoms.sum()),
        "fingerprint": train.fingerprint(),
        "validation_frames": len(validation),
        "validation_fingerprint": validation.fingerprint(),
        "validation_sources": held,
    }


def make_prior(prepared: Prepared, device: torch.device | str) -> Prior:
    """N(0, I), or a normal around given weights with a width for each group of parameters."""
    settings, layout = prepared.config.prior, prepared.model.layout
    dtype = getattr(torch, prepared.network.model_dtype)
    if settings.center is None and settings.width == 1.0 and not settings.group_widths:
        return StandardNormal()
    width = group_widths(layout.groups, settings.group_widths, layout.size, settings.width)
    center = torch.zeros(layout.size, dtype=torch.float64)
    if settings.center is not None:
        center = _center(settings.center, prepared)
    return CentredNormal(center.to(device, dtype), width.to(device, dtype))


def _center(path: str, prepared: Prepared) -> torch.Tensor:
    """Weights [P] from a posterior file (the mean of its samples makes no sense: its last sample) or a NequIP checkpoint."""
    if path.endswith(".ckpt"):
        official = load_official(path)
        names, ours = official.config.type_names, prepared.network.type_names
        if names != ours:
            raise InputError(f"{path}: its species are {names}, the data need {ours}; set network.type_names to match")
        source, size = official.weights[0].double(), prepared.model.network.layout.size
        if len(source) != size:
            raise InputError(
                f"{path}: another architecture ({len(source)} weights, here {size}); use its network settings"
            )
        rest = prepared.model.layout.start(1, 0, torch.float64)[0, size:]
        return torch.cat([source, rest])
    other = load(path)
    if other.samples.shape[1] != prepared.model.layout.size:
        raise InputError(
            f"{path}: another architecture ({other.samples.shape[1]} weights); use the same network settings"
        )
    return other.samples[-1].double()


def run_folder(output: str | Path) -> Path:
    """Where checkpoints and metrics of a posterior lie: `ethanol.posterior` -> `ethanol.run/`."""
    path = Path(output)
    return path.with_name((path.stem if path.suffix == ".posterior" else path.name) + ".run")
