"""Errors of the chains on held-back frames."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch

from equibayes.bayes.likelihood import log_likelihood, stress_error
from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.bayes.potential import force_summary
from equibayes.data.graph import Graph
from equibayes.data.resident import Labels, ResidentData
from equibayes.engine.select import make_predictor
from equibayes.run.records import round_significant

Evaluate = Callable[[Graph], ModelOutput]

# force components whose predictions are recorded, to see whether the chains agree (weights have symmetries)
PROBES = 16
# edges times chains evaluated at once: about 0.12 MB each for the paper's network
EDGES_AT_ONCE = 100_000


@torch.no_grad()
def validate(
    model: StochasticModel,
    position: torch.Tensor,
    data: ResidentData,
    good: torch.Tensor | None = None,
    *,
    engine: str | None = None,
) -> dict[str, Any]:
    """Errors on held-back frames, one number per chain; eV and Å.  `probes` are predicted force components,
    [K][PROBES].

    The error of the mean over chains leaves out those that are not `good` [K].  `validation_energy_unlearned` is the
    error of the energy reference alone, `validation_force_unlearned` that of zero forces and
    `validation_stress_unlearned` that of zero stress, for comparison.  engine: what the run is made with.
    """
    graph, labels = data.batch(torch.arange(len(data), device=position.device)[None])
    output = in_parts(evaluation_of(model, position, engine), len(position), data)
    mae, sigma = force_summary(output, graph, labels)
    real = graph.real[0].nonzero().flatten()
    components = output.forces[:, real].flatten(1)
    chosen = torch.linspace(0, components.shape[1] - 1, min(PROBES, components.shape[1])).long()
    trusted = output.forces if good is None else output.forces[good.to(position.device)]
    mean_error = (trusted.mean(0) - labels.forces[0])[real].abs().mean()
    energies = {
        "validation_energy_mae": (output.energy - labels.energy).abs().nanmean(1),
        "validation_energy_unlearned": labels.energy.abs().nanmean(1).expand(len(position)),
    }
    known = bool(labels.energy.isfinite().any())
    errors = _stress_errors(output, labels)
    return {
        "validation_force_mae": [round_significant(value) for value in mae.tolist()],
        "validation_force_sigma": [round_significant(value) for value in sigma.tolist()],
        "validation_log_likelihood": [
            round_significant(value) for value in log_likelihood(output, graph, labels).mean(1).tolist()
        ],
        "validation_force_mae_of_mean": round_significant(float(mean_error)),
        "validation_force_unlearned": [round_significant(float(labels.forces[0][real].abs().mean()))] * len(position),
        **({name: [round_significant(each) for each in x.tolist()] for name, x in energies.items()} if known else {}),
        **{name: [round_significant(each) for each in x.tolist()] for name, x in errors.items()},
        "probes": [[round_significant(value) for value in row] for row in components[:, chosen].tolist()],
    }


def _stress_errors(output: ModelOutput, labels: Labels) -> dict[str, torch.Tensor]:
    """Mean absolute error of the six components [K], and that of no stress at all; empty where it is not learned."""
    if labels.stress is None:
        return {}
    learned, error = stress_error(output, labels.stress)
    if not bool(learned.any()):
        return {}
    upper = torch.triu_indices(3, 3, device=error.device)
    count = 6 * learned.sum(1)
    label = torch.where(learned[..., None, None], labels.stress, 0.0)
    return {
        "validation_stress_mae": error[..., upper[0], upper[1]].abs().sum((1, 2)) / count,
        "validation_stress_unlearned": label[..., upper[0], upper[1]].abs().sum((1, 2)) / count,
    }


@torch.no_grad()
def mean_force_error(
    model: StochasticModel, position: torch.Tensor, data: ResidentData, at_once: int = 8
) -> float | None:
    """Mean absolute error of the mean over chains [K, P], eV/Å."""
    graph, labels = data.batch(torch.arange(len(data), device=position.device)[None])
    forces = sum(model(part, graph).forces.sum(0) for part in position.split(at_once)) / len(position)
    real = graph.real[0].nonzero().flatten()
    return round_significant(float((forces - labels.forces[0])[real].abs().mean()))


def evaluation_of(model: StochasticModel, position: torch.Tensor, engine: str | None) -> Evaluate:
    """The model with weights [K, P]: on a CPU by the engine of the run."""
    predictor = None if position.is_cuda else make_predictor(model, position, begun=engine)
    if predictor is None or not predictor.fused:
        return lambda graph: model(position, graph)
    weights, fused = model.layout.forward_weights(position), predictor
    return lambda graph: fused.forward(weights, graph)


def in_parts(evaluate: Evaluate, chains: int, data: ResidentData, numbers: torch.Tensor | None = None) -> ModelOutput:
    """The output for frames (all, or by number), a few at a time: thirty frames of 160 atoms with eight chains need
    80 GB."""
    edges = data.frames.sender[0].numel()
    few = max(1, EDGES_AT_ONCE // (edges * chains))
    if numbers is None:
        numbers = torch.arange(len(data), device=data.forces.device)
    parts = [evaluate(data.batch(own[None])[0]) for own in numbers.split(few)]
    # the second axis of all outputs is atoms or structures
    there = [each.name for each in fields(ModelOutput) if getattr(parts[0], each.name) is not None]
    return ModelOutput(**{name: torch.cat([getattr(part, name) for part in parts], 1) for name in there})
