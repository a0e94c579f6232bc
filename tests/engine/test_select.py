"""Which engine is chosen, and what is said where it is the reference."""

import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.engine import selftest
from equibayes.engine.select import ReferencePredictor, make_evaluate, make_predictor, make_stepper
from equibayes.engine.triton.support import why_not
from equibayes.network.config import NetworkConfig, preset
from equibayes.sampling import sghmc
from equibayes.sampling.chain import ReferenceStepper, Stretch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan

CUDA = torch.device("cuda")
SMALL = NetworkConfig(l_max=1, num_features=4, num_layers=2, radial_mlp_width=8, radial_mlp_depth=1, **selftest.SCALES)


def stepper(potential, state, said):
    return make_stepper(
        potential,
        state,
        NoiseKey(3, (0, 1)),
        sghmc.SGHMCConfig(),
        longest=2,
        batch_size=2,
        precision="mixed",
        average=None,
        say=said.append,
    )


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="the triton package is not installed")
def test_reasons_to_use_the_reference():
    paper = preset("paper")
    assert why_not(paper, torch.device("cpu"), torch.float32) == "there is no GPU"
    assert why_not(paper, CUDA, torch.float32) is None
    assert "float32" in why_not(paper, CUDA, torch.float64)
    assert "multiples of 16" in why_not(preset("tiny"), CUDA, torch.float32)
    assert "radial" in why_not(replace(paper, radial_mlp_width=256), CUDA, torch.float32)


def test_on_a_cpu_the_reference_makes_the_steps_without_a_word():
    model, said = StochasticModel(SMALL), []
    data = selftest.data([selftest.cluster(3, seed) for seed in (1, 2)], SMALL, torch.float64, "cpu")
    potential = Potential(model, data, StandardNormal())
    assert make_evaluate(potential) is potential
    state = sghmc.init(model.layout.start(2, 0, torch.float64))
    made, start = stepper(potential, state, said), state.position.clone()
    assert isinstance(made, ReferenceStepper)
    plans = [StepPlan(1e-3, 0.0, "burn_in", i, -1, False, False) for i in range(2)]
    stretch, rates = Stretch(0, plans, torch.zeros(2, 2, 1, dtype=torch.int64)), torch.full((2, 2), 1e-3)
    assert made.advance(stretch, rates, lambda: True) is None
    assert torch.equal(state.position, start)
    seen = made.advance(stretch, rates)
    assert int(state.step) == 2
    assert seen.gradient.shape == start.shape
    assert not torch.equal(state.position, start)
    assert said == []


class Frames(SimpleNamespace):
    def __len__(self):
        return 4


def on_gpu(dtype):
    """Frames that say they are on a GPU."""
    return Frames(forces=SimpleNamespace(device=CUDA, is_cuda=True, dtype=dtype), weight=None)


def test_on_a_gpu_one_line_says_why():
    potential, said = Potential(StochasticModel(SMALL), on_gpu(torch.float64), StandardNormal()), []
    state = sghmc.init(potential.model.layout.start(2, 0, torch.float64))
    assert isinstance(stepper(potential, state, said), ReferenceStepper)
    assert len(said) == 1
    assert said[0].startswith("without the fused kernels (")
    assert said[0].endswith("): sampling will take several times longer")


def test_distributed_data_are_evaluated_by_the_reference():
    """Whatever the network: the sum over processes is no part of a fused step."""

    class Distributed(Potential):
        @property
        def fusable(self):
            return False

    model, said = StochasticModel(selftest.SMALL_NETWORKS["l=1"]), []
    potential = Distributed(model, on_gpu(torch.float32), StandardNormal())
    assert isinstance(stepper(potential, sghmc.init(model.layout.start(2, 0)), said), ReferenceStepper)
    assert "distributed over several processes" in said[0]
    assert make_evaluate(potential) is potential


def test_predictions_on_a_cpu_are_those_of_the_model():
    model = StochasticModel(SMALL)
    predictor = make_predictor(model, model.layout.start(2, 0))
    assert isinstance(predictor, ReferencePredictor)
    assert not predictor.fused
    assert predictor.edges_at_once(torch.device("cpu")) < predictor.edges_at_once(CUDA)
    assert predictor.dynamics({}, None) is None
