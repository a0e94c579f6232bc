"""Checks of the self-test: whole steps of the sampler, noise, and neighbour lists of a GPU."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Dropout, Potential
from equibayes.bayes.prior import CentredNormal, Flat, StandardNormal
from equibayes.data.neighbors import neighbor_list
from equibayes.data.resident import ResidentData
from equibayes.data.structures import Structure
from equibayes.engine.neighbors import graph_of_torch_edges, neighbor_list_torch
from equibayes.engine.select import reference_stepper
from equibayes.engine.selftest_cases import SPECIES, crystal, data, weights
from equibayes.engine.selftest_checks import Check, Engine, compare, relative
from equibayes.network.config import NetworkConfig
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stretch
from equibayes.sampling.dropout import STREAM_TRAIN
from equibayes.sampling.noise import NoiseKey, standard_normal
from equibayes.sampling.schedule import StepPlan


def check_steps(
    name: str, config: NetworkConfig, frames: Sequence[Structure], chains: int, engine: Engine, device: str
) -> Iterator[Check]:
    """Whole steps with both integrators, both priors and the baselines, with noise and an adapting mass."""
    model = StochasticModel(config)
    flat = weights(model, chains, 3).float()
    key = NoiseKey(2**40 + 7, tuple(range(5, 5 + chains)))
    center, width = weights(model, 1, 4)[0], torch.full((model.layout.size,), 0.5).double()

    def centred(frames: ResidentData) -> CentredNormal:
        return CentredNormal(center.to(frames.forces), width.to(frames.forces))

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
        reference, single = (make(data(frames, config, dtype, "cpu")) for dtype in (torch.float64, torch.float32))
        seen = reference_stepper(reference, expected, key, sampler).advance(Stretch(0, plans, chosen), rates)
        assert seen is not None
        state = sghmc.init(flat.to(device), blocks=blocks)
        potential = make(data(frames, config, torch.float32, device))
        fused = engine.stepper(potential, state, key, sampler)
        fused.advance(Stretch(0, plans[:1], chosen[:1]), rates[:1])
        evaluation = fused.advance(Stretch(1, plans[1:], chosen[1:]), rates[1:])
        label, limit = f"{name}, {case}", 1e-4
        path, expected_path = (each.position.double().cpu() - flat.double() for each in (state, expected))
        if blocks:  # directions in which a matrix has had hardly any gradient follow the rounding of the others
            rounded = sghmc.init(flat, blocks=blocks)
            reference_stepper(single, rounded, key, sampler).advance(Stretch(0, plans, chosen), rates)
            own = relative(rounded.position.double() - flat.double(), expected_path)
            limit = min(max(5e-4, 4 * own), 5e-3)
        yield Check(f"{label}: path of θ", relative(path, expected_path), limit)
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
