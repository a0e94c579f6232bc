"""Compares the fused engines on this machine with the float64 reference.

    python -m equibayes.selftest                        # on a GPU: all networks and precisions, about two minutes
    python -m equibayes.selftest --engine native        # on a CPU: the compiled engine, several networks
    python -m equibayes.selftest --interpret            # tiny networks under Triton's interpreter

Every line is a relative error |fused − reference| / |reference| and its limit; the exit code is 1 if one is exceeded.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Dropout, Evaluation, Objective, Potential
from equibayes.bayes.prior import CentredNormal, Flat, StandardNormal
from equibayes.data.graph import Graph, concatenate
from equibayes.data.neighbors import neighbor_list
from equibayes.data.resident import ResidentData
from equibayes.data.structures import Structure
from equibayes.engine.interface import Dynamics, Predictor
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.neighbors import graph_of_torch_edges, neighbor_list_torch
from equibayes.engine.select import reference_stepper
from equibayes.engine.selftest_cases import (
    NATIVE_NETWORKS,
    NETWORKS,
    QUICK,
    SMALL_NETWORKS,
    SPECIES,
    cluster,
    crystal,
    data,
    graph_at,
    model_with_weights,
    structures,
    training,
    weights,
)
from equibayes.network.config import NetworkConfig
from equibayes.network.weights import Weights
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stepper, Stretch
from equibayes.sampling.dropout import STREAM_TRAIN
from equibayes.sampling.noise import NoiseKey, standard_normal
from equibayes.sampling.schedule import StepPlan

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


@contextmanager
def cut_for(rows: int) -> Iterator[None]:
    """Divide the work into programs as for so many atoms."""
    from equibayes.engine.triton.tuning import Tuning

    best = Tuning.best
    Tuning.best = classmethod(lambda cls, precision, _, **more: best(precision, rows, **more))  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Tuning.best = best  # type: ignore[method-assign]


def check_steps(
    name: str, config: NetworkConfig, frames: Sequence[Structure], chains: int, engine: Engine, device: str
) -> Iterator[Check]:
    """Whole steps with both integrators, both priors and the baselines, with noise and an adapting mass."""
    model = StochasticModel(config)
    flat = weights(model, chains, 3).float()
    key = NoiseKey(2**40 + 7, tuple(range(5, 5 + chains)))
    center, width = weights(model, 1, 4)[0], torch.full((model.layout.size,), 0.5).double()

    def centred(frames: ResidentData) -> CentredNormal:
        return CentredNormal(center.to(frames.forces.device), width.to(frames.forces.device))

    cases: dict[str, Callable[[ResidentData], Potential]] = {
        "baoa": lambda frames: Potential(model, frames, StandardNormal()),
        "paper": lambda frames: Potential(model, frames, centred(frames)),
        "baoa, dropout": lambda frames: Potential(model, frames, Flat(), dropout=Dropout(0.2, 2**33 + 5, STREAM_TRAIN)),
        "paper, squares": lambda frames: Potential(model, frames, Flat(), objective="squares"),
        "baoa, matrix": lambda frames: Potential(model, frames, centred(frames)),
        "paper, matrix": lambda frames: Potential(model, frames, Flat()),
    }
    heats = (1.0, 0.7, 0.4)
    plans = [StepPlan(1e-3 * (1 + i), heat, "burn_in", i, -1, i == 2, False, heat) for i, heat in enumerate(heats)]
    rates = torch.tensor([[plan.learning_rate * (1 + c) for c in range(chains)] for plan in plans]).double()
    # frames [step, chain, place]
    first = torch.arange(len(plans))[:, None, None] + torch.arange(chains)[:, None]
    chosen = (first + torch.arange(len(frames) - 1)) % len(frames)
    for case, make in cases.items():
        mass: sghmc.Mass = "matrix" if case.endswith("matrix") else "diagonal"
        sampler = sghmc.SGHMCConfig(integrator=case.partition(",")[0], mass=mass)  # type: ignore[arg-type]
        blocks = sampler.blocks(model.layout.shapes)
        expected = sghmc.init(flat.double(), blocks=blocks)
        reference = make(data(frames, config, torch.float64, "cpu"))
        seen = reference_stepper(reference, expected, key, sampler).advance(Stretch(0, plans, chosen), rates)
        assert seen is not None
        state = sghmc.init(flat.to(device), blocks=blocks)
        potential = make(data(frames, config, torch.float32, device))
        fused = engine.stepper(potential, state, key, sampler)
        fused.advance(Stretch(0, plans[:1], chosen[:1]), rates[:1])
        evaluation = fused.advance(Stretch(1, plans[1:], chosen[1:]), rates[1:])
        label = f"{name}, {case}"
        path, expected_path = (each.position.double().cpu() - flat.double() for each in (state, expected))
        # directions in which a matrix has had hardly any gradient follow the rounding of the others
        yield Check(f"{label}: path of θ", relative(path, expected_path), 5e-4 if blocks else 1e-4)
        yield from compare(label, state, expected, {"r": "momentum", "mass": "mass.mass"}, 1e-4)
        yield from compare(label, evaluation, seen, {"û of the last step": "potential"}, 1e-5)
        yield from compare(label, evaluation, seen, {"∇û of the last step": "gradient"}, 1e-4)


def check_noise(size: int, device: str) -> Iterator[Check]:
    """The kernel's noise is that of noise.py."""
    from equibayes.engine.triton.update import draw

    seed, chains, quads = 2**45 + 3, (0, 7, 12345), 64
    out, step = torch.full((len(chains), size), torch.nan, device=device), torch.tensor([123456], device=device)
    identities = torch.tensor(chains, dtype=torch.int32, device=device)
    draw[(-(-size // (4 * quads)), len(chains))](out, identities, seed, step, 0, size, QUADS=quads)
    expected = standard_normal(NoiseKey(seed, chains), 123456, size, dtype=torch.float64)
    yield Check("noise: as on the CPU", float((out.double().cpu() - expected).abs().max()), 1e-4)


def check_neighbors(atoms: int, device: str) -> Iterator[Check]:
    """The neighbour list of the device has the pairs, vectors and graph slots of the host's."""
    frame, r_max = crystal(atoms, 1.3 * atoms ** (1 / 3) + 3.0, 14), 4.0
    found = neighbor_list_torch(torch.from_numpy(frame.positions).to(device), frame.cell, frame.pbc, r_max)
    expected = neighbor_list(frame.positions, frame.cell, frame.pbc, r_max)
    ours = np.column_stack([tensor.cpu().numpy() for tensor in (found.receiver, found.sender, found.shift)])
    theirs = np.column_stack([expected.receiver, expected.sender, expected.shift])
    order, place = (np.lexsort(rows.T[::-1]) for rows in (ours, theirs))
    same = np.array_equal(ours[order], theirs[place])
    yield Check("neighbours: other pairs than on the host", 0.0 if same else 1.0, 0.0)
    if same:
        vectors = torch.from_numpy(expected.vector[place])
        yield Check("neighbours: vectors", relative(found.vector.cpu()[torch.from_numpy(order)], vectors), 1e-12)
    opposite = found.vector + found.vector[found.reverse]
    yield Check("neighbours: a pair seen from both sides", float(opposite.abs().max()), 1e-12)
    species = torch.tensor([SPECIES[int(z)] for z in frame.numbers], device=device)
    graph = graph_of_torch_edges(found, species, frame.cell, frame.pbc)
    filled = int((graph.vector.norm(dim=-1) < r_max).sum())
    yield Check("neighbours: slots of the graph", float(abs(filled - len(expected.receiver))), 0.0)


def small_checks(device: str) -> Iterator[Check]:
    """Tiny networks, for the interpreter."""
    exact = TritonEngine("float32")
    yield from check_neighbors(8, device)
    yield from check_noise(1000, device)
    for name, config in SMALL_NETWORKS.items():
        for kind, frames in structures(small=True).items():
            yield from check_predictions(f"{name}, {kind}", config, frames, 2, exact, device)
        yield from check_gradient(name, config, training(config, small=True), 2, exact, device)
    yield from check_steps("l=1", SMALL_NETWORKS["l=1"], [cluster(2, 8), cluster(2, 9)], 2, exact, device)


def all_checks(device: str) -> Iterator[Check]:
    yield from check_neighbors(500, device)
    yield from check_noise(1_000_001, device)
    exact = TritonEngine("float32")
    paper, molecules = NETWORKS["paper"], training(NETWORKS["paper"], small=False)
    for name, config in NETWORKS.items():
        for kind, frames in structures(small=False).items():
            yield from check_predictions(f"{name}, {kind}", config, frames, 2, exact, device)
        yield from check_moving(name, config, crystal(8, 5.0, 6), 2, exact, device)
        yield from check_derivative(name, config, cluster(12, 13), exact, device)
        yield from check_gradient(name, config, training(config, small=False), 2, exact, device)
    for chains in (1, 3, 8, 16):
        yield from check_gradient(f"paper, K={chains}", paper, molecules, chains, exact, device)
    for rows in (500, 2000, 5000):  # the other divisions of the work, which these few atoms would not use
        with cut_for(rows):
            name = f"paper, as for {rows} atoms"
            yield from check_predictions(name, paper, molecules, 8, TritonEngine("bf16x3"), device)
            yield from check_moving(name, paper, cluster(21, 1), 8, TritonEngine("bf16x3"), device)
            yield from check_gradient(name, paper, molecules, 8, TritonEngine("mixed"), device)
    for precision in ("tf32x3", "bf16x3", "mixed", "tf32"):
        yield from check_gradient(f"paper, {precision}", paper, molecules, 2, TritonEngine(precision), device)
    yield from check_steps("paper", paper, molecules, 3, exact, device)
    yield from check_steps("stress", NETWORKS["stress"], training(NETWORKS["stress"], small=False), 3, exact, device)


def native_checks(small: bool) -> Iterator[Check]:
    """The compiled engine; small: few networks, which compile quickly."""
    engine = NativeEngine()
    for name, config in NATIVE_NETWORKS.items():
        if small and name not in QUICK:
            continue
        learned = training(config, small=False)
        for kind, frames in structures(small=False).items():
            yield from check_predictions(f"{name}, {kind}", config, frames, 2, engine, "cpu")
        yield from check_moving(name, config, crystal(8, 5.0, 6), 2, engine, "cpu")
        yield from check_derivative(name, config, cluster(12, 13), engine, "cpu")
        for chains in (1, 3):
            yield from check_gradient(f"{name}, K={chains}", config, learned, chains, engine, "cpu")
        yield from check_gradient(f"{name}, cells", config, [crystal(8, 5.0, s) for s in (6, 7, 8)], 2, engine, "cpu")
        yield from check_steps(name, config, learned, 3, engine, "cpu")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interpret", action="store_true", help="small networks on a CPU under Triton's interpreter")
    engine = "triton: for GPUs (default); native: for CPUs"
    parser.add_argument("--engine", choices=("triton", "native"), default="triton", help=engine)
    parser.add_argument("--small", action="store_true", help="native: only networks that compile in seconds")
    given = parser.parse_args()
    if given.engine == "native":
        return report(native_checks(given.small), why_no_compiler())
    if given.interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    elif not torch.cuda.is_available():
        print("no GPU is visible to PyTorch; use --interpret to test the kernels on a CPU", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False
    return report(small_checks("cpu") if given.interpret else all_checks("cuda"))


def report(checks: Iterator[Check], impossible: str | None = None) -> int:
    """Print every check; the exit status."""
    if impossible is not None:
        print(impossible, file=sys.stderr)
        return 2
    failed = 0
    for check in checks:
        failed += not check.passed
        verdict = "ok  " if check.passed else "FAIL"
        print(f"{verdict}  {check.error:9.2e}  (limit {check.limit:.0e})  {check.name}", flush=True)
    print(f"{failed} checks failed" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
