"""Whole steps in C++ against sampling/sghmc.py, with a potential whose gradient is known: a spring for each weight,
whose stiffness depends on the frame."""

import ctypes
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Dropout, Evaluation, Potential
from equibayes.bayes.prior import CentredNormal, Flat, StandardNormal
from equibayes.engine import selftest_cases, selftest_checks
from equibayes.engine.native.compile import build, why_no_compiler
from equibayes.engine.native.steps import NativeStepper, ranges_of
from equibayes.network.config import NetworkConfig
from equibayes.sampling import sghmc
from equibayes.sampling.chain import MovingAverage, ReferenceStepper, Stretch
from equibayes.sampling.dropout import STREAM_TRAIN, dropout_mask
from equibayes.sampling.noise import NoiseKey, random_words, standard_normal
from equibayes.sampling.schedule import StepPlan

if why_no_compiler():
    pytest.skip(str(why_no_compiler()), allow_module_level=True)

CONFIG = NetworkConfig(
    l_max=0, num_features=3, num_layers=1, radial_mlp_width=3, radial_mlp_depth=1, **selftest_cases.SCALES
)
SPRINGS = """
#include <vector>
#include "potential.h"
#include "vector.h"
namespace equibayes {
const long WEIGHTS = %d;
struct Chain { Data data; int batch; std::vector<float> weights, ready, gradient[2]; };
Chain* make_chain(const Data& data, int batch, bool) {
    return new Chain{data, batch, std::vector<float>(WEIGHTS), {}, {std::vector<float>(WEIGHTS), std::vector<float>(WEIGHTS)}};
}
void free_chain(Chain* chain) { delete chain; }
int parts(const Chain&) { return 2; }
float* weights(Chain& chain) { return chain.weights.data(); }
void prepare(Chain& chain) { chain.ready = chain.weights; }
// part 0: the first frame, part 1: all others; a spring is (1 + number of the frame)·(1 + balance)·(mean of the mask)
void evaluate(Chain& chain, int part, const int64_t* frames, double scale, double balance, const float* mask, Seen& seen) {
    seen = {};
    for (long i = 0; i < WEIGHTS; ++i) chain.gradient[part][i] = 0;
    const long features = chain.data.atoms * %d;
    for (int b = part; b < (part ? chain.batch : 1); ++b) {
        double factor = 1;
        if (mask) { factor = 0; for (long i = 0; i < features; ++i) factor += mask[b * features + i] / features; }
        const float spring = float((1 + frames[b]) * scale * (1 + balance) * factor);
        for (long i = 0; i < WEIGHTS; ++i) chain.gradient[part][i] += spring * chain.ready[i];
        seen.log_p -= double(frames[b]); seen.weighted -= double(frames[b]); seen.wrong += 1; seen.sigma += 2; seen.atoms += 4;
    }
}
const float* gradient(const Chain& chain, int part) { return chain.gradient[part].data(); }
}
"""


@dataclass
class Module:
    library: ctypes.CDLL
    places: torch.Tensor


@pytest.fixture(scope="module")
def model() -> StochasticModel:
    return StochasticModel(CONFIG)


@pytest.fixture(scope="module")
def module(model) -> Module:
    """The parameters in an order of their own, with gaps."""
    size = model.layout.size
    places = torch.cat([torch.arange(size // 2) + size, torch.arange(size - size // 2) + 5])
    text = SPRINGS % (2 * size, CONFIG.channels[0])
    return Module(build("springs", {"springs.cpp": text}, steps=True), places)


class Springs(Potential):
    """The same in torch."""

    def __call__(self, position, indices, feature_mask=None, balance=0.0) -> Evaluation:
        spring = (1 + indices).double() * (1 + balance) * self.data_size / indices.shape[1]
        if feature_mask is not None:
            spring = spring * feature_mask.reshape(*indices.shape, -1).double().mean(-1)
        scale = self.model.layout.scale.like(position)
        gradient = (spring.sum(1)[:, None].to(position) * scale * position * scale) + self.prior.gradient(position)
        log_p, ones = -indices.double().sum(1), torch.ones(len(position))
        potential = self.prior.neg_log_density(position).double() - self.data_size / indices.shape[1] * log_p
        return Evaluation(gradient, potential, log_p / indices.shape[1], 0.25 * ones, 0.5 * ones)


def plans(heats=(1.0, 0.7, 0.0, 0.4)) -> list[StepPlan]:
    return [StepPlan(1e-2, heat, "burn_in", i, -1, i == 3, False, heat, 0.5 * i) for i, heat in enumerate(heats)]


RATES = torch.tensor([[1e-2, 3e-2], [2e-2, 1e-2], [1e-2, 1e-3], [5e-3, 2e-2]], dtype=torch.float64)
INDICES = torch.tensor([[[0, 1, 2], [2, 1, 3]], [[3, 0, 1], [0, 2, 3]], [[1, 2, 3], [3, 1, 0]], [[2, 0, 1], [1, 3, 2]]])
KEY = NoiseKey(2**40 + 7, (5, 2**31 + 9))
MATRIX = sghmc.SGHMCConfig(mass="matrix")
CASES = {
    "baoa": ("baoa", lambda size: StandardNormal(), None, False),
    "paper": ("paper", lambda size: CentredNormal(torch.linspace(-1, 1, size), torch.tensor(0.5)), None, False),
    "own centres": ("baoa", lambda size: CentredNormal(torch.ones(2, size), torch.linspace(1, 2, size)), None, False),
    "point": ("baoa", lambda size: Flat(), None, True),
    "dropout": ("paper", lambda size: Flat(), Dropout(0.25, 2**33 + 5, STREAM_TRAIN), False),
    "baoa, matrix": ("baoa", lambda size: StandardNormal(), None, True),
    "paper, matrix": ("paper", lambda size: CentredNormal(torch.linspace(-1, 1, size), torch.tensor(0.5)), None, False),
}


def run(model, module, case, *, threads=1, native=True, stretches=((0, 1), (1, 4)), dtype=torch.float32):
    """State, average and last evaluation after four steps."""
    integrator, prior, dropout, averaged = CASES[case]
    frames = [selftest_cases.cluster(2, seed) for seed in range(4)]
    data = selftest_cases.data(frames, CONFIG, dtype, "cpu")
    potential = Springs(model, data, prior(model.layout.size), dropout=dropout)
    sampler = sghmc.SGHMCConfig(integrator=integrator, mass="matrix" if "matrix" in case else "diagonal")
    blocks = sampler.blocks(model.layout.shapes)
    state = sghmc.init(selftest_cases.weights(model, 2, 3).to(dtype), blocks=blocks)
    average = MovingAverage(state.position.clone(), 0.9) if averaged else None
    if native:
        stepper = NativeStepper(potential, state, KEY, sampler, module=module, average=average)
    else:
        stepper = ReferenceStepper(_density(potential), state, KEY, sampler, 4, average, blocks)
    before, seen = torch.get_num_threads(), None
    torch.set_num_threads(threads)
    try:
        for first, end in stretches:
            seen = stepper.advance(Stretch(first, plans()[first:end], INDICES[first:end]), RATES[first:end])
    finally:
        torch.set_num_threads(before)
    return state, average, seen


def _density(potential):
    def density(position, indices, step, plan):
        mask, dropout = None, potential.dropout
        if dropout is not None:
            shape = (indices.shape[1] * potential.data.num_atoms, CONFIG.channels[0])
            own = NoiseKey(dropout.seed, KEY.chains)
            mask = dropout_mask(own, step, shape, dropout.rate, potential.data.forces, dropout.stream)
        seen = potential(position, indices, mask, plan.balance)
        return potential.with_prior_weight(seen, position, plan.prior_weight)

    return density


@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_reference(model, module, case):
    ours, our_average, seen = run(model, module, case)
    theirs, average, expected = run(model, module, case, native=False, dtype=torch.float64)
    start = selftest_cases.weights(model, 2, 3)
    limit = (
        1e-4 if "matrix" in case else 1e-5
    )  # hardly any gradient in some directions, which follow the rounding of others
    assert selftest_checks.relative(ours.position.double() - start.float(), theirs.position - start) < limit
    assert selftest_checks.relative(ours.momentum, theirs.momentum) < 1e-5
    assert selftest_checks.relative(ours.mass.mass, theirs.mass.mass) < 1e-5
    assert selftest_checks.relative(ours.mass.maximum, theirs.mass.maximum) < 1e-5
    if ours.mass.basis.numel():
        np.testing.assert_allclose(ours.mass.basis, theirs.mass.basis, atol=1e-4)
        assert (
            theirs.mass.basis - sghmc.init(start, blocks=MATRIX.blocks(model.layout.shapes)).mass.basis
        ).abs().max() > 0.5
    assert (int(ours.step), int(ours.mass.updates)) == (4, 3)
    assert selftest_checks.relative(seen.gradient, expected.gradient) < 1e-5
    assert seen.potential.tolist() == pytest.approx(expected.potential.tolist(), rel=1e-6)
    assert seen.log_likelihood.tolist() == pytest.approx(expected.log_likelihood.tolist())
    assert seen.force_mae.tolist() == pytest.approx([0.25, 0.25])
    assert seen.force_sigma.tolist() == pytest.approx([0.5, 0.5])
    if average is not None:
        assert selftest_checks.relative(our_average.weights, average.weights) < 1e-6
        assert selftest_checks.relative(our_average.weights, theirs.position) > 1e-3


@pytest.mark.parametrize("case", ["baoa", "dropout", "baoa, matrix"])
def test_bits_depend_neither_on_threads_nor_on_stretches(model, module, case):
    state, _, seen = run(model, module, case)
    for threads, stretches in ((2, ((0, 1), (1, 4))), (3, ((0, 4),)), (1, ((0, 2), (2, 4)))):
        again, _, seen_again = run(model, module, case, threads=threads, stretches=stretches)
        for ours, theirs in zip(sghmc.to_tensors(again).values(), sghmc.to_tensors(state).values()):
            assert torch.equal(ours, theirs)
        assert torch.equal(seen_again.potential, seen.potential)


def test_a_stretch_is_broken_off(model, module):
    data = selftest_cases.data([selftest_cases.cluster(2, seed) for seed in range(4)], CONFIG, torch.float32, "cpu")
    state = sghmc.init(selftest_cases.weights(model, 2, 3).float())
    potential = Springs(model, data, StandardNormal())
    stepper = NativeStepper(potential, state, KEY, sghmc.SGHMCConfig(), module=module)
    many = 200_000
    stretch = Stretch(0, plans()[:1] * many, INDICES[:1].expand(many, -1, -1))
    assert stepper.advance(stretch, RATES[:1].expand(many, -1), lambda: True) is None
    assert int(state.step) == 0


def test_noise_is_that_of_the_reference(module):
    """The same words; normals differ by the rounding of ln, cos and sin, which is largest far out in the tail."""
    size, seed, step, chain = 64_000, 2**45 + 3, 123_456, 2**32 - 7
    words, normals = torch.zeros(size, dtype=torch.int32), torch.zeros(size)
    pointers = (ctypes.c_void_p(each.data_ptr()) for each in (words, normals))
    numbers = (ctypes.c_uint64(seed), ctypes.c_uint32(step), ctypes.c_uint32(chain), ctypes.c_uint32(6))
    module.library.draw_noise(*numbers, ctypes.c_long(size), *pointers)
    key = NoiseKey(seed, (chain,))
    assert torch.equal(words.long() & 0xFFFFFFFF, random_words(key, step, size, stream=6)[0])
    single, double = (standard_normal(key, step, size, stream=6, dtype=t)[0] for t in (torch.float32, torch.float64))
    worst = float((normals - single).abs().max())
    assert worst < 3e-6
    # as exact as those of torch in float32
    assert float((normals - double).abs().max()) < 1.2 * float((single - double).abs().max())


def test_ranges_of_parameters():
    assert ranges_of(torch.tensor([4, 5, 6, 0, 1, 9])).tolist() == [[0, 4, 3], [3, 0, 2], [5, 9, 1]]
