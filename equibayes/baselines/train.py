"""Train a baseline with the runner of the posterior: temperature 0, the same network, frames and number of steps a network."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from equibayes.baselines.potentials import DropoutPotential, PointPotential
from equibayes.bayes.heads import ENERGY_HEAD, FORCE_HEAD, HIDDEN
from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import Flat
from equibayes.data.dataset import Dataset
from equibayes.data.resident import ResidentData
from equibayes.errors import InputError
from equibayes.posterior.dropout import RATE
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import gather, make_runner, run_and_write
from equibayes.run.loop import ChainRunner
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.progress import Display, Silent
from equibayes.run.settings import PriorSettings, SampleConfig
from equibayes.run.state import RunState
from equibayes.units import KCAL_PER_MOL

KINDS = ("ensemble", "dropout", "point")
# gradients of squared errors in eV are smaller than the sampler's ε, which would make AMSGrad a slow gradient descent; this is NequIP's
POINT_EPSILON = 1e-8


def train(
    kind: str,
    data: Dataset,
    config: SampleConfig,
    *,
    validation: Dataset | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: torch.device | str | None = None,
    display: Display | None = None,
) -> Posterior:
    """A baseline in the form of a posterior, so that everything that reads posteriors reads it too.

    config: the settings of the posterior that it will be compared with; every network gets the steps of one of its chains.
    validation: as for the posterior.
    """
    if kind not in KINDS:
        raise InputError(f"baseline '{kind}' does not exist; choose one of {', '.join(KINDS)}")
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    prepared = prepare(data, baseline_config(kind, config, len(data) - config.data.validation), validation)
    runner = make_runner(prepared, data, device, display or Silent(), make_potential=partial(_potential, kind))
    runner.average = kind == "point"
    runner.about["baseline"] = kind

    def finish(state: RunState) -> Posterior:
        return _finish(kind, prepared, runner, state, config.samples)

    return run_and_write(runner, finish, output, resume=resume, overwrite=overwrite)


def baseline_config(kind: str, config: SampleConfig, data_size: int) -> SampleConfig:
    """AMSGrad over one long decay of the learning rate, as many steps as the posterior's burn-in and cycles together."""
    networks = config.samples if kind == "ensemble" else 1
    return replace(
        config,
        chains=networks,
        samples=networks,
        prior=PriorSettings(),
        sampler=replace(
            config.sampler, temperature=0.0, epsilon=POINT_EPSILON if kind == "point" else config.sampler.epsilon
        ),
        burn_in=replace(
            config.burn_in, steps=config.schedule(data_size).total_steps, freeze_mass=1.0, noise_free=0.0, early=0.0
        ),
    )


def _potential(kind: str, prepared: Prepared, resident: ResidentData) -> Potential:
    if kind == "dropout":
        return DropoutPotential(prepared.model, resident, prepared.config.seed)
    if kind == "point":
        return PointPotential(prepared.model, resident)
    return Potential(prepared.model, resident, Flat())


def _finish(kind: str, prepared: Prepared, runner: ChainRunner, state: RunState, samples: int) -> Posterior:
    posterior = gather(prepared, state, runner.schedule.sample_steps)
    if kind == "dropout":
        # one network, whose k members are k random masks
        rows = torch.zeros(samples, dtype=torch.int64)
        repeated = {name: getattr(posterior, name)[rows] for name in ("samples", "chain", "step")}
        posterior = replace(posterior, dropout=RATE, **repeated)
    if kind == "point":
        forces, energy = held_back_errors(prepared.model, posterior.samples, runner.validation)
        posterior = replace(posterior, samples=with_constant_sigma(prepared.model, posterior.samples, forces, energy))
    return replace(posterior, config=posterior.config | {"baseline": kind})


@torch.no_grad()
def held_back_errors(model: StochasticModel, weights: torch.Tensor, data: ResidentData | None) -> tuple[float, float]:
    """RMS errors of force components (eV/Å) and of energies (eV): the σ that an honest user would quote for a point model."""
    if data is None:
        raise InputError("the point baseline takes its σ from held-back frames; set data.validation above 0")
    graph, labels = data.batch(torch.arange(len(data), device=data.forces.device)[None])
    output = model(weights.to(data.forces.device), graph)
    force_error = (output.forces - labels.forces)[:, graph.real[0]]
    energy_error = (output.energy - labels.energy)[~torch.isnan(labels.energy).expand_as(output.energy)]
    energy = float(energy_error.square().mean().sqrt()) if energy_error.numel() else KCAL_PER_MOL
    return float(force_error.square().mean().sqrt()), energy


def with_constant_sigma(model: StochasticModel, weights: torch.Tensor, forces: float, energy: float) -> torch.Tensor:
    """The same weights [1, P] with heads that say one σ for everything."""
    views = {name: view.clone() for name, view in model.layout.views(weights).items()}
    for name, sigma in ((FORCE_HEAD, forces), (ENERGY_HEAD, energy)):
        last = len(HIDDEN)
        views[f"{name}.weight{last}"].zero_()
        views[f"{name}.bias{last}"].fill_(float(torch.tensor(sigma / KCAL_PER_MOL).log()))
    return model.layout.flatten(views)
