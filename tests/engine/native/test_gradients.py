"""û and its gradient in C++ against the reference in double precision."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import CentredNormal, Flat, StandardNormal
from equibayes.engine import selftest_cases, selftest_checks
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.native.potential import NativePotential
from equibayes.network.config import NetworkConfig

if why_no_compiler():
    pytest.skip(str(why_no_compiler()), allow_module_level=True)

MIXED = NetworkConfig(
    l_max=2,
    num_features=[10, 3, 2],
    num_layers=3,
    num_bessels=5,
    radial_mlp_width=12,
    per_type_energy_shifts_trainable=True,
    **selftest_cases.SCALES,
)
TINY = NetworkConfig(
    l_max=1,
    parity=False,
    num_features=[4, 2],
    num_layers=2,
    radial_mlp_width=8,
    radial_mlp_depth=1,
    **selftest_cases.SCALES,
)
FOUNDATION = NetworkConfig(
    l_max=2,
    num_features=[6, 3, 2],
    num_layers=3,
    num_bessels=5,
    radial_mlp_width=8,
    radial_mlp_depth=1,
    **selftest_cases.FOUNDATION,
    **selftest_cases.SCALES,
)
CUBIC = replace(TINY, l_max=3, num_features=[4, 3, 2, 2], num_bessels=5)
STRESS = selftest_cases.NATIVE_NETWORKS["tiny, stress"]
MOLECULES = [selftest_cases.cluster(9, 8), selftest_cases.cluster(7, 9), selftest_cases.cluster(1, 10)]


class Case:
    """The same potential in both ways; frames of each chain."""

    def __init__(self, config, frames, prior=None, **options):
        self.model = StochasticModel(config)
        self.reference, self.single = (
            Potential(
                self.model, selftest_cases.data(frames, config, dtype, "cpu"), prior or StandardNormal(), **options
            )
            for dtype in (torch.float64, torch.float32)
        )
        self.flat = selftest_cases.weights(self.model, 2, 2)
        self.frames = torch.tensor([[0, 1, 2], [1, 1, 0]]) % len(frames)

    def found(self, mask=None, balance=0.0):
        mask = None if mask is None else mask.float()
        return NativePotential(self.single)(self.flat.float(), self.frames, mask, balance)

    def check(self, mask=None, balance=0.0):
        found, expected = self.found(mask, balance), self.reference(self.flat, self.frames, mask, balance)
        for name in ("potential", "log_likelihood", "force_mae", "force_sigma"):
            assert selftest_checks.relative(getattr(found, name), getattr(expected, name)) < 1e-6, name
        assert selftest_checks.relative(found.gradient, expected.gradient) < 1e-5
        ours, theirs = (self.model.layout.views(each.gradient.double()) for each in (found, expected))
        for name in ours:
            assert selftest_checks.relative(ours[name], theirs[name]) < 1e-5, name


@pytest.mark.parametrize("config", [TINY, MIXED, FOUNDATION], ids=["tiny", "mixed", "foundation"])
def test_molecules_of_several_sizes_and_an_isolated_atom(config):
    Case(config, MOLECULES).check()


def test_memory_of_other_minibatches_does_not_matter():
    """What they leave in the buffers is where others have what does not move with the atoms."""
    case = Case(FOUNDATION, MOLECULES)
    for frames in ([[0, 0, 0], [0, 0, 0]], [[1, 1], [1, 1]], [[2, 2], [2, 1]], [[0, 1, 2], [1, 1, 0]], [[1], [2]]):
        case.frames = torch.tensor(frames)
        case.check()


def test_atoms_that_meet_their_own_images():
    Case(MIXED, [selftest_cases.crystal(6, 4.0, 6), selftest_cases.crystal(2, 3.0, 7)]).check()


@pytest.mark.parametrize("covariance", ["atom", "pair"])
def test_covariances_of_forces(covariance):
    """Molecules, an isolated atom, atoms that meet their own images, weights of frames, and vectors of other widths."""
    config = replace(TINY, covariance=covariance)
    cells = [selftest_cases.crystal(6, 4.0, 6), selftest_cases.crystal(2, 3.0, 7)]
    weighted = [replace(frame, weight=weight) for frame, weight in zip(MOLECULES, (0.25, 3.0, 1.0))]
    noisy = [replace(frame, noise=noise) for frame, noise in zip(MOLECULES, (0.0, 0.5, 2.0))]
    for frames in (weighted, noisy, cells):
        Case(config, frames).check()
    squares = Case(config, MOLECULES, objective="squares")
    squares.check()
    head = squares.model.layout.groups["covariance_head"]
    assert torch.equal(squares.found().gradient[:, head], squares.flat[:, head].float()), "the prior alone"


def test_atoms_without_any_neighbours():
    lonely = replace(selftest_cases.cluster(3, 5), positions=np.diag([0.0, 50.0, 100.0]))
    Case(TINY, [lonely, selftest_cases.cluster(1, 10)]).check()


def test_energy_without_a_label_counts_by_its_forces():
    Case(TINY, [replace(MOLECULES[0], energy=None), MOLECULES[1]]).check()


def test_weights_of_frames():
    heavy = [replace(frame, weight=weight) for frame, weight in zip(MOLECULES, (0.25, 3.0, 0.0))]
    case = Case(TINY, heavy)
    case.check()
    assert not torch.equal(case.found().gradient, Case(TINY, MOLECULES).found().gradient)
    assert torch.equal(case.found().log_likelihood, Case(TINY, MOLECULES).found().log_likelihood), "of a frame as it is"
    Case(TINY, heavy, objective="squares").check()


def test_dropout():
    case = Case(MIXED, MOLECULES, Flat())
    generator = torch.Generator().manual_seed(0)
    mask = (torch.rand(2, 3 * 9, 10, generator=generator, dtype=torch.float64) > 0.3) / 0.7
    case.check(mask)
    assert not torch.equal(case.found(mask).gradient, case.found().gradient)


def test_squared_errors_and_a_centred_prior():
    size = StochasticModel(TINY).layout.size
    center, width = torch.linspace(-1, 1, size).double(), torch.linspace(0.5, 2, size).double()
    Case(TINY, MOLECULES, CentredNormal(center, width), objective="squares").check()


@pytest.mark.parametrize("objective", ["gaussian", "squares"])
def test_cells_with_and_without_stress_add_up(objective):
    """A minibatch of both, a molecule and a cell without a label among them, is the sum of its frames."""
    frames = selftest_cases.training(STRESS, small=False)
    assert [frame.stress is not None for frame in frames] == [True, False, True, False, True]
    case = Case(STRESS, frames, Flat(), objective=objective)
    case.frames = torch.tensor([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]])
    case.check()
    whole, native = case.found(), NativePotential(case.single)
    alone = [native(case.flat.float(), torch.tensor([[number]])) for number in range(len(frames))]
    for name in ("gradient", "potential", "log_likelihood"):
        mean = sum(getattr(each, name).double() for each in alone) / len(frames)
        assert selftest_checks.relative(getattr(whole, name), mean) < 1e-5, name
    bare = Case(STRESS, [replace(frame, stress=None) for frame in frames], Flat(), objective=objective).single
    for number in (1, 3):
        assert torch.equal(
            alone[number].gradient, NativePotential(bare)(case.flat.float(), torch.tensor([[number]])).gradient
        )
    assert not torch.equal(alone[0].gradient, NativePotential(bare)(case.flat.float(), torch.tensor([[0]])).gradient)


def test_balance_of_energies_and_stress_against_forces():
    """The bound holds for some of the frames; a point estimate has weights of its own."""
    frames = selftest_cases.training(STRESS, small=False)
    case = Case(STRESS, frames, Flat())
    case.check(balance=100.0)
    case.check(balance=1.0)
    assert not torch.equal(case.found(balance=100.0).gradient, case.found().gradient)
    squares = Case(STRESS, frames, Flat(), objective="squares")
    assert torch.equal(squares.found(balance=100.0).gradient, squares.found().gradient)


@pytest.mark.parametrize("cpu", ["avx2", "sse"])
def test_vectors_of_other_widths(cpu, monkeypatch):
    monkeypatch.setenv("EQUIBAYES_CPU", cpu)
    Case(replace(TINY, covariance="pair"), MOLECULES).check()


def test_same_bits_with_any_number_of_threads():
    """A frame of more atoms than a block, and one that is divided."""
    case = Case(TINY, [selftest_cases.cluster(80, 11), *MOLECULES[:2]])
    before = torch.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            runs.append(case.found())
    finally:
        torch.set_num_threads(before)
    case.check()
    assert all(torch.equal(run.gradient, runs[0].gradient) for run in runs)
    assert all(torch.equal(run.potential, runs[0].potential) for run in runs)
