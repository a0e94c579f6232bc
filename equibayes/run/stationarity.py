"""Are the chains still on their way?  What is recorded at the end of each cycle, and what follows from it.

At the end of a cycle γ has returned to 0, so that its states compare.  Recorded are u on a fixed subset of the training
frames, |θ|²/d of each group of weights in units of the prior, and, with every validation, predicted forces (`probes`).
The mathematics is in `sampling/diagnostics.py`.
"""

import math
from typing import Any

import numpy as np
import torch

from equibayes.bayes.potential import Potential
from equibayes.run.records import numbers, rounded, trace
from equibayes.run.validation import evaluation_of, in_parts
from equibayes.sampling.diagnostics import FALSE_ALARM, MINIMUM_ENDS, Drift, drift, growth

MINIMUM_GROUP = 100
"""Weights of a group from which |θ|²/d is nearly normal, so that its drift is judged."""
FRAMES_AT_ONCE = 32
EARLIER = "u at the ends of cycles was not recorded by the version that sampled it"


@torch.no_grad()
def at_the_end(
    potential: Potential, position: torch.Tensor, frames: torch.Tensor, temperature: float, engine: str | None = None
) -> dict[str, Any]:
    """What is recorded of θ [K, P] at the end of a cycle; engine: that of the run.

    fixed_potential   [K] û on the fixed frames, nats: −ln likelihood − T ln prior (see sampling/schedule.py)
    fixed_scatter     its standard deviation in equilibrium, nats; of u itself: `potential_scatter`
    weights_by_group  |θ|²/d of each group, in units of the prior
    weights_in_group  d
    """
    model, data, size = potential.model, potential.data, potential.data_size
    evaluate = evaluation_of(model, position, engine)
    likelihood = torch.zeros(len(position), dtype=torch.float64, device=position.device)
    for part in potential.own(frames).split(FRAMES_AT_ONCE):
        if len(part):  # a process may hold none of them
            graph, labels = data.batch(part[None])
            output = in_parts(evaluate, len(position), data, part)
            likelihood += potential.log_likelihood(output, graph, labels).double().sum(1)
    scaled = potential.summed(likelihood) * (size / len(frames))
    squares = potential.prior.standardised(position).double().square()
    groups = model.layout.groups
    return {
        "fixed_potential": numbers(temperature * potential.prior.neg_log_density(position.double()) - scaled),
        "fixed_scatter": rounded(fixed_scatter(position.shape[1], size, len(frames), temperature)),
        "potential_scatter": rounded(fixed_scatter(position.shape[1], size, size, temperature)),
        "weights_by_group": {name: numbers(squares[:, part].mean(1)) for name, part in groups.items()},
        "weights_in_group": {name: part.stop - part.start for name, part in groups.items()},
    }


def fixed_scatter(parameters: int, frames: int, fixed: int, temperature: float) -> float:
    """T √(P/2 + P (N/S − 1)), nats: the scatter of u in equilibrium, and of what S of N frames say of it.

    The second term is that of a well-specified model, in which the gradients of single frames have the covariance H/N;
    P bounds the number of parameters that the frames determine.
    """
    return temperature * math.sqrt(parameters / 2 + parameters * (frames / fixed - 1))


def stationarity(history: list[dict[str, Any]], good: list[int], temperature: float = 1.0) -> dict[str, Any]:
    """Drifts over the ends of cycles, for the chains `good`; or why they are undefined."""
    ends = [record for record in history if "fixed_potential" in record]
    potential = trace([record["fixed_potential"] for record in ends], good)
    reason = _undefined(potential, temperature, history)
    if reason:
        return undefined(reason, potential.shape[1])
    u = drift(potential, ends[-1]["fixed_scatter"])
    weights = _weights(ends, good)
    forces = growth(trace([record["probes"] for record in ends if "probes" in record], good))
    moving = {
        "potential": u.moving,
        "weights": any(group["moving"] for group in weights.values()),
        "forces": forces.moving,
    }
    return {
        "draws_per_chain": potential.shape[1],
        "undefined_because": None,
        "potential_drift": rounded(u.mean),
        "potential_drift_by_chain": [rounded(value) for value in u.slope],
        "potential_drift_error": rounded(u.deviation / math.sqrt(len(good))),
        "potential_scatter": ends[-1]["potential_scatter"],
        "weights_by_group": weights,
        "force_change_growth": rounded(math.exp(forces.slope)),
        "force_change_growth_error": rounded(math.exp(forces.slope) * forces.error),
        "moving": [name for name, alarm in moving.items() if alarm],
    }


def undefined(reason: str, draws: int = 0) -> dict[str, Any]:
    """The same where nothing can be told."""
    names = ("potential_drift", "potential_drift_by_chain", "potential_drift_error", "potential_scatter")
    nothing = dict.fromkeys((*names, "weights_by_group", "force_change_growth", "force_change_growth_error", "moving"))
    return {"draws_per_chain": draws, "undefined_because": reason, **nothing}


def sentence(found: dict[str, Any]) -> str:
    """One line for a person: whether the chains move, or why it cannot be told."""
    if found.get("moving") is None:
        return f"whether the chains are still descending cannot be told: {found.get('undefined_because')}"
    slope, scatter = found["potential_drift"], found["potential_scatter"]
    way = "falls" if slope < 0 else "rises"
    measured = f"u {way} by {abs(slope):.0f} nats per cycle, {abs(slope) / scatter:.2g} times its equilibrium scatter"
    if "potential" in found["moving"]:
        return f"{measured}: the chains are still {'descending' if slope < 0 else 'heating up'}"
    if found["moving"]:
        what = {"weights": "the size of the weights", "forces": "the change of predicted forces from cycle to cycle"}
        return f"{measured}, but {' and '.join(what[name] for name in found['moving'])} still drifts"
    return f"{measured} (± {found['potential_drift_error']:.0f} in equilibrium): no drift seen"


def samples_are(found: dict[str, Any]) -> str:
    """One line for a person: what the samples are, as far as this shows."""
    if found.get("moving") is None:
        return "samples: separate solutions with noise, as of an ensemble; not shown to be draws from the posterior"
    if found["moving"]:
        return "samples: networks on their way to the posterior; their spread is that of an unfinished search"
    return "samples: draws around the solution of each chain"


def _undefined(potential: np.ndarray, temperature: float, history: list[dict[str, Any]]) -> str | None:
    chains, ends = potential.shape
    if temperature == 0:
        return "at temperature 0 there is no equilibrium"
    if chains == 0:
        return "no chain is left"
    if ends == 0 and any(record["phase"] == "cycle" for record in history):
        return EARLIER
    if ends < MINIMUM_ENDS:
        return f"{ends} of at least {MINIMUM_ENDS} draws per chain; raise samples"
    return None


def _weights(ends: list[dict[str, Any]], good: list[int]) -> dict[str, dict[str, Any]]:
    """|θ|²/d of each group at the last end, its drift per cycle, and whether that is none of equilibrium."""
    sizes = ends[-1]["weights_in_group"]
    level = FALSE_ALARM / max(1, sum(size >= MINIMUM_GROUP for size in sizes.values()))
    found = {}
    for name, size in sizes.items():
        draws = trace([record["weights_by_group"][name] for record in ends], good)
        seen: Drift = drift(draws, 2 * math.sqrt(draws.mean() / size), level)
        alarm = seen.moving and size >= MINIMUM_GROUP
        found[name] = {"last": rounded(draws[:, -1].mean()), "drift": rounded(seen.mean), "moving": alarm}
    return found
