"""Train a baseline with the loop of the posterior: temperature 0 (AMSGrad), the same network, frames and steps per
network.

| baseline   | objective                                                     | prediction                  |
|------------|---------------------------------------------------------------|-----------------------------|
| `ensemble` | −ln likelihood with the heads, K networks, K random starts    | mixture over the K networks |
| `dropout`  | the same with dropout on the features, one network (A.4)      | mixture over k random masks |
| `point`    | squared errors, one network, average over the last steps      | one network, constant σ     |
"""

from dataclasses import replace
from pathlib import Path

import torch

from equibayes.bayes.heads import ENERGY_HEAD, FORCE_HEAD, HIDDEN, STRESS_HEAD
from equibayes.bayes.likelihood import squared_norm, stress_error
from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.bayes.potential import Dropout, Objective, Potential
from equibayes.bayes.prior import Flat, Prior
from equibayes.data.dataset import Dataset
from equibayes.data.graph import Graph
from equibayes.data.resident import Labels, ResidentData
from equibayes.errors import InputError
from equibayes.posterior.center import load_center
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import finished, sample_chains
from equibayes.run import Run
from equibayes.run.chains import Chains, make_chains
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.settings import PriorSettings, SampleConfig
from equibayes.run.state import RunState
from equibayes.sampling.dropout import RATE, STREAM_TRAIN
from equibayes.units import KCAL_PER_MOL

KINDS = ("ensemble", "dropout", "point")
# gradients of squared errors in eV are smaller than the sampler's ε, which would make AMSGrad a slow gradient descent;
# this is NequIP's
POINT_EPSILON = 1e-8


def train(
    kind: str, data: Dataset, config: SampleConfig, *, validation: Dataset | None = None, run: Run | None = None
) -> Posterior:
    """A baseline in the form of a posterior, so that everything that reads posteriors reads it too.

    config      settings of the posterior that it is compared with; each network gets the steps of one of its chains
    validation  as for the posterior
    run         where the run is written and computed
    """
    if kind not in KINDS:
        raise InputError(f"baseline '{kind}' does not exist; choose one of {', '.join(KINDS)}")
    run = run or Run()
    own = baseline_config(kind, config, len(data) - config.data.validation)
    prepared = prepare(data, own, validation, load_center(own.prior.center), run.on)
    chains = baseline_chains(kind, prepared, data, run.on)

    def finish(state: RunState, _: Path | None) -> Posterior:
        return _finish(kind, prepared, chains, state, config.samples)

    return sample_chains(chains, run, finish)


def baseline_chains(kind: str, prepared: Prepared, data: Dataset, device: torch.device | str) -> Chains:
    """The networks of a baseline on a device; what they descend has no prior."""

    def potential(prepared: Prepared, frames: ResidentData, _: Prior) -> Potential:
        dropout = Dropout(RATE, prepared.config.seed, STREAM_TRAIN) if kind == "dropout" else None
        objective: Objective = "squares" if kind == "point" else "gaussian"
        return Potential(prepared.model, frames, Flat(), objective=objective, dropout=dropout)

    chains = make_chains(prepared, data, device, potential=potential, average=kind == "point")
    return replace(chains, about=chains.about | {"baseline": kind})


def baseline_config(kind: str, config: SampleConfig, data_size: int) -> SampleConfig:
    """AMSGrad over one long decay of the learning rate, as many steps as the posterior's burn-in and cycles
    together."""
    networks = config.samples if kind == "ensemble" else 1
    return replace(
        config,
        chains=networks,
        samples=networks,
        prior=_start_of(config.prior),
        sampler=replace(
            config.sampler, temperature=0.0, epsilon=POINT_EPSILON if kind == "point" else config.sampler.epsilon
        ),
        burn_in=replace(
            config.burn_in,
            steps=config.schedule(data_size).total_steps,
            epochs=None,
            freeze_mass=1.0,
            early=0.0,
        ),
    )


POTENTIALS = ("baseline", "baseline_settings", "free_atoms", "pseudo_labels", "pseudo_frames", "pseudo_noise")
"""Settings of the prior that are about potentials, not weights."""


def _start_of(prior: PriorSettings) -> PriorSettings:
    """Without a prior; what is left is the network that was trained elsewhere, where it begins, and the baseline."""
    own = prior if prior.center is not None else PriorSettings()
    return replace(own, **{name: getattr(prior, name) for name in POTENTIALS})


def _finish(kind: str, prepared: Prepared, chains: Chains, state: RunState, samples: int) -> Posterior:
    posterior = finished(prepared, state, chains.device)
    if kind == "dropout":
        # one network, whose k members are k random masks
        rows = torch.zeros(samples, dtype=torch.int64)
        repeated = {name: getattr(posterior, name)[rows] for name in ("samples", "chain", "step")}
        posterior = replace(posterior, dropout=RATE, **repeated)
    if kind == "point":
        errors = held_back_errors(prepared.model, posterior.samples, chains.validation)
        posterior = replace(posterior, samples=with_constant_sigma(prepared.model, posterior.samples, errors))
    return replace(posterior, config=posterior.config | {"baseline": kind})


@torch.no_grad()
def held_back_errors(model: StochasticModel, weights: torch.Tensor, data: ResidentData | None) -> dict[str, float]:
    """RMS errors of force components (eV/Å), of energies (eV) and, where it is learned, of the six components of the
    stress as a virial per atom (eV), each by the name of its head: the σ to quote for a point model."""
    if data is None:
        raise InputError("the point baseline takes its σ from held-back frames; set data.validation above 0")
    graph, labels = data.batch(torch.arange(len(data), device=data.forces.device)[None])
    output = model(weights.to(data.forces.device), graph)
    force_error = (output.forces - labels.forces)[:, graph.real[0]]
    energy_error = (output.energy - labels.energy)[~torch.isnan(labels.energy).expand_as(output.energy)]
    energy = float(energy_error.square().mean().sqrt()) if energy_error.numel() else KCAL_PER_MOL
    errors = {FORCE_HEAD: float(force_error.square().mean().sqrt()), ENERGY_HEAD: energy}
    if model.learns_stress:
        errors[STRESS_HEAD] = _virial_error(output, graph, labels)
    return errors


def _virial_error(output: ModelOutput, graph: Graph, labels: Labels) -> float:
    """RMS error of the six components of the virial per atom, eV; that of the forces times 1 Å without labels."""
    if labels.stress is not None:
        learned, error = stress_error(output, labels.stress)
        if bool(learned.any()):
            volume = graph.volume.nan_to_num().double() / graph.num_atoms
            return float(((squared_norm(error) * volume**2).sum() / (6 * learned.sum())).sqrt())
    return float((output.forces - labels.forces)[:, graph.real[0]].square().mean().sqrt())


def with_constant_sigma(model: StochasticModel, weights: torch.Tensor, errors: dict[str, float]) -> torch.Tensor:
    """The same weights [1, P] with heads, by their names, that give a constant σ."""
    views = {name: view.clone() for name, view in model.layout.views(weights).items()}
    for name, sigma in errors.items():
        last = len(HIDDEN)
        views[f"{name}.weight{last}"].zero_()
        views[f"{name}.bias{last}"].fill_(float(torch.tensor(sigma / KCAL_PER_MOL).log()))
    return model.layout.flatten(views)
