"""Which engine is chosen, and what is said where it is the reference."""

import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.engine import selftest_cases
from equibayes.engine.native.compile import CompileError, why_no_compiler
from equibayes.engine.select import (
    VARIABLE,
    Choice,
    ReferencePredictor,
    choose,
    make_evaluate,
    make_predictor,
    make_stepper,
)
from equibayes.engine.triton.support import why_not
from equibayes.errors import InputError
from equibayes.network.config import NetworkConfig, preset
from equibayes.sampling import sghmc
from equibayes.sampling.chain import ReferenceStepper, Stretch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SMALL = NetworkConfig(
    l_max=1, num_features=4, num_layers=2, radial_mlp_width=8, radial_mlp_depth=1, **selftest_cases.SCALES
)


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


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


def test_the_engine_that_was_asked_for(monkeypatch):
    network = preset("paper")
    monkeypatch.setattr("equibayes.engine.native.support.why_no_compiler", lambda: None)
    assert choose(network, CUDA, torch.float32) == Choice("triton")
    assert choose(network, CPU, torch.float32) == Choice("native")
    assert choose(network, CPU, torch.float64) == Choice("reference", "it works in float32 only")
    assert choose(network, CPU, torch.float32, refused="frames have weights").engine == "reference"
    monkeypatch.setenv(VARIABLE, "reference")
    assert choose(network, CUDA, torch.float32) == Choice("reference")
    assert choose(network, CPU, torch.float32, begun="native-avx2") == Choice("reference")
    monkeypatch.setenv(VARIABLE, "native")
    assert choose(network, CPU, torch.float32, begun="reference") == Choice("native")
    with pytest.raises(InputError, match=r"engine native: cannot be used .it is for CPUs.; use --engine auto"):
        choose(network, CUDA, torch.float32)
    monkeypatch.setenv(VARIABLE, "numpy")
    with pytest.raises(InputError, match="engine numpy: is unknown; use one of auto, reference, native, triton"):
        choose(network, CPU, torch.float32)


def test_a_run_goes_on_with_the_engine_that_it_began_with(monkeypatch):
    network = preset("paper")
    monkeypatch.setattr("equibayes.engine.native.support.why_no_compiler", lambda: None)
    assert choose(network, CPU, torch.float32, begun="reference") == Choice("reference")
    assert choose(network, CPU, torch.float32, begun="native-avx2") == Choice("native")
    assert choose(network, CPU, torch.float32, begun="triton") == Choice("reference", "there is no GPU")


def test_without_a_compiler_one_line_says_what_to_do(monkeypatch):
    monkeypatch.setattr("equibayes.engine.native.support.why_no_compiler", lambda: "there is no C++ compiler")
    model, said = StochasticModel(SMALL), []
    data = selftest_cases.data([selftest_cases.cluster(3, seed) for seed in (1, 2)], SMALL, torch.float32, "cpu")
    state = sghmc.init(model.layout.start(2, 0))
    assert isinstance(stepper(Potential(model, data, StandardNormal()), state, said), ReferenceStepper)
    assert said == ["without the compiled engine (there is no C++ compiler): sampling will take several times longer"]


def test_if_compiling_fails_the_reference_takes_over(monkeypatch, capsys):
    def load(*arguments, **options):
        raise CompileError("the C++ compiler failed: error 7")

    monkeypatch.setattr("equibayes.engine.native.module.load", load)
    monkeypatch.setattr("equibayes.engine.native.support.why_no_compiler", lambda: None)
    model, said = StochasticModel(SMALL), []
    data = selftest_cases.data([selftest_cases.cluster(3, seed) for seed in (1, 2)], SMALL, torch.float32, "cpu")
    state, potential = sghmc.init(model.layout.start(2, 0)), Potential(model, data, StandardNormal())
    assert isinstance(stepper(potential, state, said), ReferenceStepper)
    assert len(said) == 1
    assert "error 7; --engine reference avoids this line" in said[0]
    monkeypatch.setenv(VARIABLE, "native")
    with pytest.raises(InputError, match=r"engine native: the C.. compiler failed: error 7; use --engine reference"):
        stepper(potential, state, said)


@pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))
def test_on_a_cpu_the_compiled_engine_makes_the_steps():
    model, said = StochasticModel(SMALL), []
    data = selftest_cases.data([selftest_cases.cluster(3, seed) for seed in (1, 2)], SMALL, torch.float32, "cpu")
    state = sghmc.init(model.layout.start(2, 0))
    made = stepper(Potential(model, data, StandardNormal()), state, said)
    assert made.engine.startswith("native-")
    assert make_predictor(model, model.layout.start(2, 0)).fused


def test_on_a_cpu_the_reference_makes_the_steps_without_a_word(monkeypatch):
    monkeypatch.setenv(VARIABLE, "reference")
    model, said = StochasticModel(SMALL), []
    data = selftest_cases.data([selftest_cases.cluster(3, seed) for seed in (1, 2)], SMALL, torch.float64, "cpu")
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
    return Frames(forces=SimpleNamespace(device=CUDA, is_cuda=True, dtype=dtype), weight=None, noise=None)


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

    model, said = StochasticModel(selftest_cases.SMALL_NETWORKS["l=1"]), []
    potential = Distributed(model, on_gpu(torch.float32), StandardNormal())
    assert isinstance(stepper(potential, sghmc.init(model.layout.start(2, 0)), said), ReferenceStepper)
    assert "distributed over several processes" in said[0]
    assert make_evaluate(potential) is potential


def test_predictions_on_a_cpu_are_those_of_the_model(monkeypatch):
    monkeypatch.setenv(VARIABLE, "reference")
    model = StochasticModel(SMALL)
    predictor = make_predictor(model, model.layout.start(2, 0))
    assert isinstance(predictor, ReferencePredictor)
    assert not predictor.fused
    assert predictor.edges_at_once(torch.device("cpu")) < predictor.edges_at_once(CUDA)
    assert predictor.dynamics({}, None) is None
