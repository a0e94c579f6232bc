"""Predictions in C++ against the model, which has the same geometry in double precision."""

import numpy as np
import pytest
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.data.graph import concatenate
from equibayes.engine import selftest_cases, selftest_checks
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.native.model import NativeModel

from .test_gradients import FOUNDATION, MIXED, TINY

if why_no_compiler():
    pytest.skip(str(why_no_compiler()), allow_module_level=True)


def both(config):
    """A model, its weights, the same prepared for predictions, and the predictor."""
    return *selftest_cases.model_with_weights(config, 2, 0, "cpu"), NativeModel(StochasticModel(config))


def graph_of(frames, r_max):
    return concatenate([selftest_cases.graph_at(frame, frame.positions, r_max) for frame in frames])


def compare(found, expected, stress):
    names = [*selftest_checks.PREDICTIONS.values(), *(["features"] if hasattr(found, "features") else [])]
    for name in names:
        value = torch.as_tensor(getattr(found, name))
        wanted = getattr(expected, name)
        assert selftest_checks.relative(value.reshape(wanted.shape), wanted) < 5e-6, name
    if stress is not None:
        assert selftest_checks.relative(torch.as_tensor(stress).reshape(expected.stress.shape), expected.stress) < 1e-5


@pytest.mark.parametrize("kind", ["molecules", "isolated atoms", "cell", "small cell"])
@pytest.mark.parametrize("config", [TINY, MIXED, FOUNDATION], ids=["tiny", "mixed", "foundation"])
def test_predictions_are_those_of_the_model(config, kind):
    model, flat, forward, native = both(config)
    graph = graph_of(selftest_cases.structures(small=False)[kind], config.r_max)
    expected, found = model(flat, graph), native.forward(forward, graph)
    compare(found, expected, found.stress if "cell" in kind else None)
    for name in ("energy", "forces", "stress"):
        assert getattr(found, name).dtype == torch.float64, "as precise as the vectors of the graph"


def test_masks_of_dropout():
    model, flat, forward, native = both(MIXED)
    graph = graph_of(selftest_cases.structures(small=False)["molecules"], MIXED.r_max)
    mask = (torch.rand(2, graph.species.shape[1], 10, generator=torch.Generator().manual_seed(1)) > 0.3).double()
    compare(native.forward(forward, graph, feature_mask=mask), model(flat, graph, feature_mask=mask), None)


MOVING = {
    "cell": selftest_cases.crystal(8, 5.0, 6),
    "molecule": selftest_cases.cluster(21, 1),
    "rows along a curve": selftest_cases.crystal(600, 17.5, 4),
}


@pytest.mark.parametrize("kind", MOVING)
def test_atoms_that_move_while_the_list_stays(kind):
    frame, (model, flat, forward, native) = MOVING[kind], both(MIXED)
    wide = selftest_cases.graph_at(frame, frame.positions, MIXED.r_max + 0.7)
    moving = native.dynamics(forward, wide)
    moving.load(wide, frame.positions)
    for turn in range(3):
        moved = frame.positions + 0.1 * turn * np.cos(3 * frame.positions)
        found, expected = moving(moved), model(flat, selftest_cases.graph_at(frame, moved, MIXED.r_max))
        compare(found, expected, found.virial / frame.volume if frame.pbc.all() else None)
    # a run that is continued searches its neighbours again, and must repeat the same bits
    other = selftest_cases.graph_at(frame, moved, MIXED.r_max + 0.3)
    moving.load(other, moved)
    again = moving(moved)
    for name in ("energy", "forces", "virial", "log_sigma_energy", "log_sigma_forces"):
        assert np.array_equal(getattr(again, name), getattr(found, name)), name


def test_energies_are_smooth_and_forces_their_gradient():
    *_, forward, native = both(TINY)
    frame, rng = selftest_cases.cluster(12, 13), np.random.default_rng(0)
    direction, h = rng.normal(size=frame.positions.shape), 1e-3

    def at(shift):
        return native.forward(forward, selftest_cases.graph_at(frame, frame.positions + shift, TINY.r_max))

    slope = (at(h * direction).energy - at(-h * direction).energy)[:, 0] / (2 * h)
    along = (at(0 * direction).forces * torch.from_numpy(direction)).sum((1, 2))
    torch.testing.assert_close(slope, -along, rtol=2e-4, atol=2e-4 * float(along.abs().max()))


def test_many_atoms_with_little_memory_and_many_threads(monkeypatch):
    """More atoms than a block: the same bits with any number of threads, and where radial weights are not kept."""
    *_, forward, native = both(TINY)
    graph = graph_of([selftest_cases.crystal(150, 11.0, 3)], TINY.r_max)
    before, runs = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            runs.append(native.forward(forward, graph))
        monkeypatch.setattr("equibayes.engine.native.model.LEAN", 0)
        runs.append(native.forward(forward, graph))
    finally:
        torch.set_num_threads(before)
    for name in ("energy", "forces", "stress", "log_sigma_forces"):
        assert torch.equal(getattr(runs[0], name), getattr(runs[1], name)), name
        assert torch.equal(getattr(runs[0], name), getattr(runs[2], name)), name


def test_whatever_torchs_default_precision_is():
    """Other packages change it."""
    *_, forward, native = both(TINY)
    frame = selftest_cases.cluster(9, 8)
    moving = native.dynamics(forward, selftest_cases.graph_at(frame, frame.positions, TINY.r_max))
    moving.load(selftest_cases.graph_at(frame, frame.positions, TINY.r_max), frame.positions)
    expected, before = moving(frame.positions), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        found = moving(frame.positions)
    finally:
        torch.set_default_dtype(before)
    assert np.array_equal(found.log_sigma_forces, expected.log_sigma_forces)
