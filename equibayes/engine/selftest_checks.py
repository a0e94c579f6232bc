"""Checks of the self-test: predictions, dynamics, derivatives and gradients beside the float64 reference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Evaluation, Objective, Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data.graph import Graph, concatenate
from equibayes.data.structures import Structure
from equibayes.engine.interface import Dynamics, Predictor
from equibayes.engine.selftest_cases import data, graph_at, model_with_weights, weights
from equibayes.network.config import NetworkConfig
from equibayes.network.weights import Weights
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stepper
from equibayes.sampling.noise import NoiseKey

LIMITS = {"float32": 1e-5, "tf32x3": 3e-5, "bf16x3": 5e-4, "mixed": 5e-4, "tf32": 3e-2}
GRADIENT_LIMITS = LIMITS | {"mixed": LIMITS["tf32"]}
DEVIATIONS = {"ln σ of forces": "log_sigma_forces", "ln σ of energies": "log_sigma_energy"}
PREDICTIONS = {"energies": "energy", "forces": "forces", "invariants": "invariants"} | DEVIATIONS
EVALUATION = {"û": "potential", "ln p": "log_likelihood", "force error": "force_mae"}


@dataclass(frozen=True)
class Check:
    name: str
    error: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.error <= self.limit  # NaN does not


def relative(found: torch.Tensor | np.ndarray, expected: torch.Tensor, least: float = 0.0) -> float:
    """least: smallest norm to compare with."""
    found, expected = (torch.as_tensor(each).detach().double().cpu() for each in (found, expected))
    norm = max(float(expected.norm()), least)
    return float((found - expected.reshape(found.shape)).norm()) / (norm if norm else 1.0)


def compare(name: str, found: Any, expected: Any, fields: dict[str, str], limit: float) -> Iterator[Check]:
    """fields: attributes of both by what they are called in the report."""
    for what, field in fields.items():
        value = attrgetter(field)
        yield Check(f"{name}: {what}", relative(value(found), value(expected)), limit)


class TritonEngine:
    """The fused kernels for GPUs, in one precision."""

    def __init__(self, precision: str) -> None:
        self.precision = precision

    def predictor(self, model: StochasticModel) -> Predictor:
        from equibayes.engine.triton.model import TritonModel

        return TritonModel(model, self.precision)

    def dynamics(self, model: StochasticModel, forward: Weights, graph: Graph) -> Dynamics:
        from equibayes.engine.triton.dynamics import TritonDynamics

        return TritonDynamics(model, forward, graph, self.precision)

    def stepper(
        self, potential: Potential, state: sghmc.State, key: NoiseKey, sampler: sghmc.SGHMCConfig
    ) -> Stepper[Evaluation]:
        from equibayes.engine.triton.steps import TritonStepper

        return TritonStepper(potential, state, key, sampler, longest=2, precision=self.precision)


class NativeEngine:
    """The compiled functions for CPUs."""

    precision = "float32"

    def predictor(self, model: StochasticModel) -> Predictor:
        from equibayes.engine.native.model import NativeModel

        return NativeModel(model)

    def dynamics(self, model: StochasticModel, forward: Weights, graph: Graph) -> Dynamics:
        found = self.predictor(model).dynamics(forward, graph)
        assert found is not None
        return found

    def stepper(
        self, potential: Potential, state: sghmc.State, key: NoiseKey, sampler: sghmc.SGHMCConfig
    ) -> Stepper[Evaluation]:
        from equibayes.engine.native.module import load
        from equibayes.engine.native.steps import NativeStepper

        module = load(potential.model, steps=True)
        return NativeStepper(potential, state, key, sampler, module=module)


Engine = TritonEngine | NativeEngine


def check_predictions(
    name: str, config: NetworkConfig, frames: Sequence[Structure], chains: int, engine: Engine, device: str
) -> Iterator[Check]:
    """Energies, forces, stress and deviations; a second call with other positions is not affected by the first."""
    model, flat, forward = model_with_weights(config, chains, 0, device)
    fused, limit = engine.predictor(model), LIMITS[engine.precision]
    for turn in range(2):
        moved = ((frame, frame.positions + 0.05 * turn * np.cos(frame.positions)) for frame in frames)
        graph = concatenate([graph_at(*each, config.r_max) for each in moved])
        expected, found = model(flat, graph), fused.forward(forward, graph.to(device))
    yield from compare(name, found, expected, PREDICTIONS, limit)
    if bool(graph.volume.isfinite().all()):
        yield from compare(name, found, expected, {"stress": "stress"} | deviation_of_stress(config), limit)


def deviation_of_stress(config: NetworkConfig) -> dict[str, str]:
    return {"ln σ of stress": "log_sigma_stress"} if config.stress_head else {}


def check_moving(
    name: str, config: NetworkConfig, frame: Structure, chains: int, engine: Engine, device: str
) -> Iterator[Check]:
    """Dynamics: the list, with pairs beyond the cutoff, stays while atoms move; earlier results have no influence."""
    model, flat, forward = model_with_weights(config, chains, 0, device)
    graph = graph_at(frame, frame.positions, config.r_max + 0.7).to(device)
    moving, limit = engine.dynamics(model, forward, graph), LIMITS[engine.precision]
    moving.load(graph, frame.positions)
    for turn in range(3):
        moved = frame.positions + 0.1 * turn * np.cos(3 * frame.positions)
        found, expected = moving(moved), model(flat, graph_at(frame, moved, config.r_max))
    yield from compare(f"{name}, moving", found, expected, PREDICTIONS, limit)
    if frame.pbc.all():
        stress = found.virial / frame.volume
        yield Check(f"{name}, moving: stress", relative(stress, expected.stress), limit)
        if config.stress_head:
            sigma = found.log_sigma_virial - np.log(frame.volume)
            yield Check(f"{name}, moving: ln σ of stress", relative(sigma, expected.log_sigma_stress), limit)


def check_derivative(
    name: str, config: NetworkConfig, frame: Structure, engine: Engine, device: str
) -> Iterator[Check]:
    """Forces are the gradient of the energy: differences of energies along random directions, and no curl."""
    model, _, forward = model_with_weights(config, 1, 1, device)
    fused, rng = engine.predictor(model), np.random.default_rng(0)

    def at(shift: np.ndarray) -> tuple[float, np.ndarray]:
        output = fused.forward(forward, graph_at(frame, frame.positions + shift, config.r_max).to(device))
        return float(output.energy[0, 0]), output.forces[0].double().cpu().numpy()

    h = 1e-2
    u, v = (rng.normal(size=frame.positions.shape) for _ in range(2))
    _, forces = at(0 * u)
    # fourth-order difference, so that rounding dominates and not the step
    slope = (8 * (at(h * u)[0] - at(-h * u)[0]) - (at(2 * h * u)[0] - at(-2 * h * u)[0])) / (12 * h)
    scale = float(np.linalg.norm(forces) * np.linalg.norm(u))
    yield Check(f"{name}: forces by differences of energies", abs(slope + float((forces * u).sum())) / scale, 1e-3)
    along_u, along_v = ((at(h * each)[1] - at(-h * each)[1]) / (2 * h) for each in (u, v))
    scale = float(np.linalg.norm(along_u) * np.linalg.norm(v))
    yield Check(f"{name}: no curl", abs(float((along_u * v).sum() - (along_v * u).sum())) / scale, 1e-3)


def check_gradient(
    name: str,
    config: NetworkConfig,
    frames: Sequence[Structure],
    chains: int,
    engine: Engine,
    device: str,
    objective: Objective = "gaussian",
    balance: float = 0.0,
) -> Iterator[Check]:
    """û, its gradient by all weights, and that a second run gives the same bits."""
    model, prior, batch = StochasticModel(config), StandardNormal(), len(frames) - 1
    flat = weights(model, chains, 2)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.stack([torch.randperm(len(frames), generator=generator)[:batch] for _ in range(chains)])
    reference, potential = (
        Potential(model, data(frames, config, dtype, on), prior, objective=objective)
        for dtype, on in ((torch.float64, "cpu"), (torch.float32, device))
    )
    expected = reference(flat, chosen, balance=balance)
    if isinstance(engine, TritonEngine):
        found, differing = triton_gradient(potential, flat, chosen, engine.precision, balance)
    else:
        found, differing = native_gradient(potential, flat, chosen, balance)
    yield from compare(name, found, expected, EVALUATION, LIMITS[engine.precision])
    limit = GRADIENT_LIMITS[engine.precision]
    yield Check(f"{name}: gradient", relative(found.gradient, expected.gradient), limit)
    ours, theirs = (model.layout.views(each.gradient.double() - flat) for each in (found, expected))
    # rounding of θ alone moves a gradient that is 10⁻⁸ of the whole
    least = 1e-6 * float(expected.gradient.norm())
    worst, parameter = max((relative(ours[key], theirs[key], least), key) for key in ours)
    yield Check(f"{name}: gradient of {parameter}, the worst", worst, 20 * limit)
    yield Check(f"{name}: same bits again", float(differing), 0.0)


def native_gradient(
    potential: Potential, flat: torch.Tensor, chosen: torch.Tensor, balance: float
) -> tuple[Evaluation, int]:
    """û by the compiled functions, and how many numbers of a second gradient, with other threads, differ."""
    from equibayes.engine.native.potential import NativePotential

    fused, threads, found = NativePotential(potential), torch.get_num_threads(), []
    for count in (1, 3):
        torch.set_num_threads(count)
        found.append(fused(flat.float(), chosen, balance=balance))
    torch.set_num_threads(threads)
    return found[0], int((found[0].gradient != found[1].gradient).sum())


def triton_gradient(
    potential: Potential, flat: torch.Tensor, chosen: torch.Tensor, precision: str, balance: float
) -> tuple[Evaluation, int]:
    """û by the kernels, and how many numbers of a second gradient differ."""
    from equibayes.engine.triton.potential import TritonPotential

    model, prior, device = potential.model, potential.prior, potential.data.forces.device
    chains, batch = chosen.shape
    fused = TritonPotential(potential, chains, batch, 1, precision)
    fused.frames[0].copy_(chosen)
    fused.balance.fill_(balance)
    scale = model.layout.scale.like(flat)
    fused.passes.load_weights((flat * scale).to(device))
    runs = []
    for _ in range(2):
        fused.passes.gradient.fill_(torch.nan)  # shows entries that are not written
        fused()
        runs.append(fused.passes.gradient.nan_to_num(0.0).clone())
    gradient = runs[0].double().sum(0).cpu()[:, fused.passes.places.flat.long()] * scale + flat
    found = fused.evaluation(gradient, prior.neg_log_density(flat).to(device))
    return found, int((runs[0] != runs[1]).sum())
