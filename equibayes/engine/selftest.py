"""Compares the fused kernels on this machine with the float64 reference.

    python -m equibayes.selftest                        # on a GPU: all networks and precisions, about two minutes
    python -m equibayes.selftest --interpret            # without one: tiny networks under Triton's interpreter

Every line is a relative error |fused − reference| / |reference| and its limit; the exit code is 1 if one is exceeded.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Dropout, Potential
from equibayes.bayes.prior import CentredNormal, Flat, StandardNormal
from equibayes.data.graph import concatenate, graph_of
from equibayes.data.neighbors import neighbor_list
from equibayes.data.resident import ResidentData
from equibayes.data.structures import Structure
from equibayes.engine.neighbors import graph_of_torch_edges, neighbor_list_torch
from equibayes.engine.select import reference_stepper
from equibayes.network.config import NetworkConfig
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stretch
from equibayes.sampling.dropout import STREAM_TRAIN
from equibayes.sampling.noise import NoiseKey, standard_normal
from equibayes.sampling.schedule import StepPlan

SPECIES = {1: 0, 6: 1, 8: 2}
SCALES: dict[str, Any] = {
    "type_names": ["H", "C", "O"],
    "avg_num_neighbors": {"H": 3.0, "C": 4.0, "O": 5.0},
    "per_type_energy_scales": {"H": 1.0, "C": 1.5, "O": 2.0},
}
LIMITS = {"float32": 1e-5, "tf32x3": 3e-5, "bf16x3": 5e-4, "mixed": 5e-4, "tf32": 3e-2}
GRADIENT_LIMITS = LIMITS | {"mixed": LIMITS["tf32"]}
NETWORKS = {
    "paper": NetworkConfig(**SCALES),
    "l=1, 32 features": NetworkConfig(
        l_max=1,
        parity=False,
        num_features=32,
        num_layers=3,
        radial_mlp_width=32,
        per_type_energy_shifts_trainable=True,
        **SCALES,
    ),
    "l=3, mixed features": NetworkConfig(l_max=3, num_features=[48, 32, 16, 16], num_layers=2, **SCALES),
    "l=0": NetworkConfig(l_max=0, num_features=16, num_layers=2, num_bessels=5, radial_mlp_depth=1, **SCALES),
    "deep radial": NetworkConfig(
        l_max=2, num_features=16, num_layers=2, radial_mlp_depth=3, radial_mlp_width=48, **SCALES
    ),
}
SMALL_NETWORKS = {
    "l=1": NetworkConfig(l_max=1, num_features=16, num_layers=2, radial_mlp_width=16, num_bessels=4, **SCALES),
    "l=2, mixed": NetworkConfig(
        l_max=2,
        parity=False,
        num_features=[32, 16, 16],
        num_layers=2,
        radial_mlp_width=16,
        radial_mlp_depth=1,
        per_type_energy_shifts_trainable=True,
        **SCALES,
    ),
}


@dataclass(frozen=True)
class Check:
    name: str
    error: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.error <= self.limit  # NaN does not


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    norm = float(expected.norm())
    return float((found - expected).norm()) / (norm if norm else 1.0)


def cluster(atoms: int, seed: int) -> Structure:
    """Random atoms with a minimum distance, and random labels."""
    rng = np.random.default_rng(seed)
    places: list[np.ndarray] = []
    while len(places) < atoms:
        place = rng.normal(size=3) * 1.2 * atoms ** (1 / 3)
        if all(np.linalg.norm(place - other) > 0.8 for other in places):
            places.append(place)
    numbers = rng.choice(list(SPECIES), atoms)
    forces, energy = rng.normal(size=(atoms, 3)), float(rng.normal())
    return Structure(numbers, np.array(places), np.zeros((3, 3)), np.zeros(3, bool), energy=energy, forces=forces)


def crystal(atoms: int, edge: float, seed: int) -> Structure:
    """Random atoms in a skewed cell so small that atoms interact with their own images."""
    structure = cluster(atoms, seed)
    cell = edge * (np.eye(3) + 0.2 * np.tri(3, k=-1))
    return replace(structure, cell=cell, pbc=np.ones(3, bool), positions=structure.positions % edge)


def weights(model: StochasticModel, chains: int, seed: int) -> torch.Tensor:
    """Random weights, also where a run begins with zeros."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(chains, model.layout.size, generator=generator, dtype=torch.float64) * 0.7


def structures(small: bool) -> dict[str, list[Structure]]:
    if small:
        return {
            "molecules": [cluster(4, 1), cluster(1, 2), cluster(3, 3)],
            "cell": [crystal(2, 3.5, 4)],
        }
    lonely = replace(cluster(3, 5), positions=np.diag([0.0, 50.0, 100.0]))
    return {
        "molecules": [cluster(21, 1), cluster(9, 2), cluster(1, 3), cluster(2, 4)],
        "isolated atoms": [lonely],
        "cell": [crystal(8, 5.0, 6)],
        "small cell": [crystal(2, 3.0, 7)],
    }


def check_predictions(
    name: str, config: NetworkConfig, frames: Sequence[Structure], chains: int, precision: str, device: str
) -> Iterator[Check]:
    """Energies, forces, stress and deviations; a second call with other positions is not affected by the first."""
    from equibayes.engine.triton.model import TritonModel

    limit = LIMITS[precision]
    model = StochasticModel(config)
    flat = weights(model, chains, 0)
    fused = TritonModel(model, precision)
    forward = model.layout.forward_weights(flat.to(device, torch.float32))
    for turn in range(2):
        moved = [replace(s, positions=s.positions + 0.05 * turn * np.cos(s.positions)) for s in frames]
        graph = concatenate([graph_of(s, r_max=config.r_max, species_of=SPECIES) for s in moved])
        expected = model(flat, graph)
        found = fused.forward(forward, graph.to(device))
    yield Check(f"{name}: energies", relative(found.energy, expected.energy), limit)
    yield Check(f"{name}: forces", relative(found.forces, expected.forces), limit)
    yield Check(f"{name}: ln σ of forces", relative(found.log_sigma_forces, expected.log_sigma_forces), limit)
    yield Check(f"{name}: ln σ of energies", relative(found.log_sigma_energy, expected.log_sigma_energy), limit)
    if bool(graph.volume.isfinite().all()):
        yield Check(f"{name}: stress", relative(found.stress, expected.stress), limit)


def check_moving(
    name: str, config: NetworkConfig, frame: Structure, chains: int, precision: str, device: str
) -> Iterator[Check]:
    """Dynamics: the list, with pairs beyond the cutoff, stays while atoms move; earlier results have no influence."""
    from equibayes.engine.triton.dynamics import TritonDynamics

    model, limit = StochasticModel(config), LIMITS[precision]
    flat = weights(model, chains, 0)
    graph = graph_of(frame, r_max=config.r_max + 0.7, species_of=SPECIES).to(device)
    forward = model.layout.forward_weights(flat.to(device, torch.float32))
    moving = TritonDynamics(model, forward, graph, precision)
    moving.load(graph, frame.positions)
    for turn in range(3):
        moved = replace(frame, positions=frame.positions + 0.1 * turn * np.cos(3 * frame.positions))
        found = moving(moved.positions)
        expected = model(flat, graph_of(moved, r_max=config.r_max, species_of=SPECIES))
    results = {
        "energies": (found.energy, expected.energy[:, 0]),
        "forces": (found.forces, expected.forces),
        "ln σ of energies": (found.log_sigma_energy, expected.log_sigma_energy[:, 0]),
        "ln σ of forces": (found.log_sigma_forces, expected.log_sigma_forces),
    }
    if frame.pbc.all():
        results["stress"] = (found.virial / frame.volume, expected.stress[:, 0])
    for what, (here, there) in results.items():
        yield Check(f"{name}, moving: {what}", relative(torch.from_numpy(here), there), limit)


def check_derivative(name: str, config: NetworkConfig, frame: Structure, device: str) -> Iterator[Check]:
    """Forces are the gradient of the energy: differences of energies along random directions, and no curl."""
    from equibayes.engine.triton.model import TritonModel

    model = StochasticModel(config)
    fused = TritonModel(model, "float32")
    forward = model.layout.forward_weights(weights(model, 1, 1).to(device, torch.float32))
    rng = np.random.default_rng(0)

    def at(shift: np.ndarray) -> tuple[float, np.ndarray]:
        moved = replace(frame, positions=frame.positions + shift)
        graph = graph_of(moved, r_max=config.r_max, species_of=SPECIES).to(device)
        output = fused.forward(forward, graph)
        return float(output.energy[0, 0]), output.forces[0].double().cpu().numpy()

    h = 1e-2
    u, v = (rng.normal(size=frame.positions.shape) for _ in range(2))
    _, forces = at(0 * u)
    # fourth-order difference, so that rounding dominates and not the step
    slope = (8 * (at(h * u)[0] - at(-h * u)[0]) - (at(2 * h * u)[0] - at(-2 * h * u)[0])) / (12 * h)
    scale = float(np.linalg.norm(forces) * np.linalg.norm(u))
    yield Check(f"{name}: forces by differences of energies", abs(slope + float((forces * u).sum())) / scale, 1e-3)
    along_u = (at(h * u)[1] - at(-h * u)[1]) / (2 * h)
    along_v = (at(h * v)[1] - at(-h * v)[1]) / (2 * h)
    scale = float(np.linalg.norm(along_u) * np.linalg.norm(v))
    yield Check(f"{name}: no curl", abs(float((along_u * v).sum() - (along_v * u).sum())) / scale, 1e-3)


def data(frames: Sequence[Structure], config: NetworkConfig, dtype: torch.dtype, device: str) -> ResidentData:
    return ResidentData(
        frames, r_max=config.r_max, species_of=SPECIES, reference=[0.0] * len(frames), dtype=dtype, device=device
    )


def check_gradient(
    name: str, config: NetworkConfig, frames: Sequence[Structure], chains: int, precision: str, device: str
) -> Iterator[Check]:
    """û, its gradient by all weights, and that a second run gives the same bits."""
    from equibayes.engine.triton.potential import TritonPotential

    limit, model, prior = LIMITS[precision], StochasticModel(config), StandardNormal()
    flat = weights(model, chains, 2)
    batch = len(frames) - 1
    generator = torch.Generator().manual_seed(0)
    chosen = torch.stack([torch.randperm(len(frames), generator=generator)[:batch] for _ in range(chains)])
    reference = Potential(model, data(frames, config, torch.float64, "cpu"), prior)(flat, chosen)
    fused = TritonPotential(
        Potential(model, data(frames, config, torch.float32, device), prior), chains, batch, 1, precision
    )
    fused.frames[0].copy_(chosen)
    scale = model.layout.scale.like(flat)
    fused.passes.load_weights((flat * scale).to(device))
    results = []
    for _ in range(2):
        fused.passes.gradient.fill_(torch.nan)  # shows entries that are not written
        fused()
        results.append(fused.passes.gradient.nan_to_num(0.0).clone())
    gradient = results[0].double().sum(0).cpu()[:, fused.passes.places.flat.long()] * scale + flat
    found = fused.evaluation(gradient, prior.neg_log_density(flat).to(device))
    yield Check(f"{name}: û", relative(found.potential, reference.potential), limit)
    yield Check(f"{name}: ln p", relative(found.log_likelihood, reference.log_likelihood), limit)
    yield Check(f"{name}: force error", relative(found.force_mae, reference.force_mae), limit)
    limit = GRADIENT_LIMITS[precision]
    yield Check(f"{name}: gradient", relative(gradient, reference.gradient), limit)
    worst = max(
        (relative(a, b), parameter)
        for (parameter, a), b in zip(
            model.layout.views(gradient - flat).items(), model.layout.views(reference.gradient - flat).values()
        )
    )
    yield Check(f"{name}: gradient of {worst[1]}, the worst", worst[0], 20 * limit)
    yield Check(f"{name}: same bits again", float((results[0] != results[1]).sum()), 0.0)


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
    name: str, config: NetworkConfig, frames: Sequence[Structure], chains: int, device: str
) -> Iterator[Check]:
    """Whole steps with both integrators, both priors and the baselines, with noise and an adapting mass."""
    from equibayes.engine.triton.steps import TritonStepper

    model = StochasticModel(config)
    flat = weights(model, chains, 3).float()
    key = NoiseKey(2**40 + 7, tuple(range(5, 5 + chains)))
    batch, steps = len(frames) - 1, 3
    centred = CentredNormal(
        weights(model, 1, 4)[0].to(device), torch.full((model.layout.size,), 0.5, device=device).double()
    )
    cases: dict[str, Callable[[ResidentData], Potential]] = {
        "baoa": lambda frames: Potential(model, frames, StandardNormal()),
        "paper": lambda frames: Potential(model, frames, _moved(centred, frames.forces.device)),
        "baoa, dropout": lambda frames: Potential(model, frames, Flat(), dropout=Dropout(0.2, 2**33 + 5, STREAM_TRAIN)),
        "paper, squares": lambda frames: Potential(model, frames, Flat(), objective="squares"),
    }
    for case, make in cases.items():
        integrator = case.partition(",")[0]
        sampler = sghmc.SGHMCConfig(integrator=integrator)  # type: ignore[arg-type]
        heats = (1.0, 0.7, 0.4)
        plans = [StepPlan(1e-3 * (1 + i), heat, "burn_in", i, -1, i == 2, False, heat) for i, heat in enumerate(heats)]
        rates = torch.tensor([[plan.learning_rate * (1 + c) for c in range(chains)] for plan in plans]).double()
        chosen = torch.stack(
            [torch.stack([(torch.arange(batch) + i + c) % len(frames) for c in range(chains)]) for i in range(steps)]
        )

        expected = sghmc.init(flat.double())
        reference = make(data(frames, config, torch.float64, "cpu"))
        seen = reference_stepper(reference, expected, key, sampler).advance(Stretch(0, plans, chosen), rates)
        assert seen is not None
        state = sghmc.init(flat.to(device))
        potential = make(data(frames, config, torch.float32, device))
        fused = TritonStepper(potential, state, key, sampler, longest=2, precision="float32")
        fused.advance(Stretch(0, plans[:1], chosen[:1]), rates[:1])
        evaluation = fused.advance(Stretch(1, plans[1:], chosen[1:]), rates[1:])
        moved = expected.position - flat.double()
        label = f"{name}, {case}"
        yield Check(f"{label}: path of θ", relative(state.position.double().cpu() - flat.double(), moved), 1e-4)
        yield Check(f"{label}: r", relative(state.momentum, expected.momentum), 1e-4)
        yield Check(f"{label}: mass", relative(state.mass.mass, expected.mass.mass), 1e-4)
        yield Check(f"{label}: û of the last step", relative(evaluation.potential, seen.potential), 1e-5)
        yield Check(f"{label}: ∇û of the last step", relative(evaluation.gradient, seen.gradient), 1e-4)


def _moved(prior: CentredNormal, device: torch.device) -> CentredNormal:
    return CentredNormal(prior.center.to(device), prior.width.to(device))


def check_noise(size: int, device: str) -> Iterator[Check]:
    """The kernel's noise is that of noise.py."""
    from equibayes.engine.triton.update import draw

    seed, chains, quads = 2**45 + 3, (0, 7, 12345), 64
    out = torch.full((len(chains), size), torch.nan, device=device)
    step = torch.tensor([123456], device=device)
    identities = torch.tensor(chains, dtype=torch.int32, device=device)
    draw[(-(-size // (4 * quads)), len(chains))](out, identities, seed, step, 0, size, QUADS=quads)
    expected = standard_normal(NoiseKey(seed, chains), 123456, size, dtype=torch.float64)
    yield Check("noise: as on the CPU", float((out.double().cpu() - expected).abs().max()), 1e-4)


def check_neighbors(atoms: int, device: str) -> Iterator[Check]:
    """The neighbour list of the device has the pairs, vectors and graph slots of the host's."""
    frame = crystal(atoms, 1.3 * atoms ** (1 / 3) + 3.0, 14)
    r_max = 4.0
    positions = torch.from_numpy(frame.positions).to(device)
    found = neighbor_list_torch(positions, frame.cell, frame.pbc, r_max)
    expected = neighbor_list(frame.positions, frame.cell, frame.pbc, r_max)
    ours = np.column_stack([tensor.cpu().numpy() for tensor in (found.receiver, found.sender, found.shift)])
    theirs = np.column_stack([expected.receiver, expected.sender, expected.shift])
    order, place = (np.lexsort(rows.T[::-1]) for rows in (ours, theirs))
    same = ours.shape == theirs.shape and bool((ours[order] == theirs[place]).all())
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


def all_checks(small: bool, device: str) -> Iterator[Check]:
    yield from check_neighbors(8 if small else 500, device)
    yield from check_noise(1000 if small else 1_000_001, device)
    if small:
        for name, config in SMALL_NETWORKS.items():
            for kind, frames in structures(small).items():
                yield from check_predictions(f"{name}, {kind}", config, frames, 2, "float32", device)
            yield from check_gradient(
                name, config, [cluster(3, 8), cluster(2, 9), cluster(1, 10)], 2, "float32", device
            )
        yield from check_steps("l=1", SMALL_NETWORKS["l=1"], [cluster(2, 8), cluster(2, 9)], 2, device)
        return
    training = [cluster(9, 8), cluster(12, 9), cluster(1, 10), cluster(7, 11), cluster(9, 12)]
    for name, config in NETWORKS.items():
        for kind, frames in structures(small).items():
            yield from check_predictions(f"{name}, {kind}", config, frames, 2, "float32", device)
        yield from check_moving(name, config, crystal(8, 5.0, 6), 2, "float32", device)
        yield from check_derivative(name, config, cluster(12, 13), device)
        yield from check_gradient(name, config, training, 2, "float32", device)
    for chains in (1, 3, 8, 16):
        yield from check_gradient(f"paper, K={chains}", NETWORKS["paper"], training, chains, "float32", device)
    for rows in (500, 2000, 5000):  # the other divisions of the work, which these few atoms would not use
        with cut_for(rows):
            name = f"paper, as for {rows} atoms"
            yield from check_predictions(name, NETWORKS["paper"], training, 8, "bf16x3", device)
            yield from check_moving(name, NETWORKS["paper"], cluster(21, 1), 8, "bf16x3", device)
            yield from check_gradient(name, NETWORKS["paper"], training, 8, "mixed", device)
    for precision in ("tf32x3", "bf16x3", "mixed", "tf32"):
        yield from check_gradient(f"paper, {precision}", NETWORKS["paper"], training, 2, precision, device)
    yield from check_steps("paper", NETWORKS["paper"], training, 3, device)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interpret", action="store_true", help="small networks on a CPU under Triton's interpreter")
    given = parser.parse_args()
    if given.interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    elif not torch.cuda.is_available():
        print("no GPU is visible to PyTorch; use --interpret to test the kernels on a CPU", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False
    failed = 0
    for check in all_checks(given.interpret, "cpu" if given.interpret else "cuda"):
        failed += not check.passed
        print(
            f"{'ok  ' if check.passed else 'FAIL'}  {check.error:9.2e}  (limit {check.limit:.0e})  {check.name}",
            flush=True,
        )
    print(f"{failed} checks failed" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
