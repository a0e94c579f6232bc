"""Which engine does the work: a fused one where it can be used, otherwise the reference, with one line that says why.

Another engine is another branch here; nothing above this package knows of it.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.bayes.potential import Evaluation, Potential
from equibayes.data.graph import Graph
from equibayes.data.resident import ResidentData
from equibayes.engine.interface import Dynamics, Predictor, RowMaker
from equibayes.engine.native import support as _native
from equibayes.engine.native.compile import CompileError
from equibayes.engine.rows import ReferenceRows
from equibayes.engine.triton import support as _triton
from equibayes.engine.triton.capture import CapturedPotential
from equibayes.errors import InputError
from equibayes.network.config import NetworkConfig
from equibayes.network.weights import Weights
from equibayes.sampling import sghmc
from equibayes.sampling.chain import MovingAverage, ReferenceStepper, Stepper
from equibayes.sampling.dropout import dropout_mask
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan

# Edges times samples that the reference evaluates at once; bounds the memory (about 0.12 MB per edge and sample for
# the paper's network).  A CPU is faster with tensors that stay in its cache, a GPU with many at once.
EDGES_AT_ONCE = {"cpu": 10_000, "cuda": 50_000}
# of matrix products on a GPU: the energy is as smooth as with float32; tf32 would make it rough (results/precision)
PREDICTION_PRECISION = "bf16x3"

Say = Callable[[str], None]
Evaluate = Callable[..., Evaluation]
"""Of position [K, P], indices [K, B] and, with dropout, a feature mask [K, N, C]."""


VARIABLE = "EQUIBAYES_ENGINE"
"""Environment variable for `--engine`."""
ENGINES = ("auto", "reference", "native", "triton")
ON_CPU = "native"
"""What `auto` means on a CPU."""


@dataclass(frozen=True)
class Choice:
    """An engine, and why it is the reference where it could be another."""

    engine: str
    reason: str | None = None


def wanted() -> str:
    """The engine that the user asks for."""
    engine = os.environ.get(VARIABLE) or "auto"
    if engine not in ENGINES:
        raise InputError(f"engine {engine}: is unknown; use one of {', '.join(ENGINES)}")
    return engine


def first_choice(device: torch.device, begun: str | None = None) -> str:
    """The engine, if nothing speaks against it; begun: see `choose`."""
    asked = wanted()
    engine = asked if asked != "auto" else (begun or "auto").partition("-")[0]
    return engine if engine != "auto" else "triton" if device.type == "cuda" else ON_CPU


def choose(
    config: NetworkConfig,
    device: torch.device,
    dtype: torch.dtype,
    *,
    refused: str | None = None,
    begun: str | None = None,
) -> Choice:
    """
    refused  why no engine may evaluate the potential of a run
    begun    the engine that the run began with, which goes on unless the user asks for another
    """
    asked, engine = wanted(), first_choice(device, begun)
    if engine == "reference":
        return Choice("reference")
    reason = refused or {"native": _native.why_not, "triton": _triton.why_not}[engine](config, device, dtype)
    if reason is not None and asked == engine:
        raise InputError(f"engine {engine}: cannot be used ({reason}); use --engine auto")
    return Choice(engine) if reason is None else Choice("reference", reason)


def _without(choice: Choice, what: str, device: torch.device) -> str:
    """The line about a missing engine."""
    fused = "the fused kernels" if device.type == "cuda" else "the compiled engine"
    return f"without {fused} ({choice.reason}): {what} will take several times longer"


def make_evaluate(potential: Potential) -> Evaluate:
    """û and its gradient at any position, by the reference; on a GPU recorded and replayed."""
    # a sum over processes cannot be part of a CUDA graph
    captured = potential.data.forces.is_cuda and potential.fusable
    return CapturedPotential(potential) if captured else potential


def make_rows(
    model: StochasticModel, position: torch.Tensor, data: ResidentData, column: torch.Tensor, sign: torch.Tensor
) -> RowMaker:
    """How labels of frames, by number, change with the weights at `position` [P]; column, sign: see `LabelRows`."""
    choice = choose(model.config, position.device, position.dtype)
    if choice.engine == "native":
        from equibayes.engine.native.rows import NativeRows

        try:
            return NativeRows(model, position, data, column, sign)
        except CompileError as cause:
            _not_compiled(cause)
    return ReferenceRows(model, position, data, column, sign)


def make_stepper(
    potential: Potential,
    state: sghmc.State,
    key: NoiseKey,
    sampler: sghmc.SGHMCConfig,
    *,
    longest: int,
    batch_size: int,
    precision: str,
    average: MovingAverage | None = None,
    begun: str | None = None,
    say: Say = lambda message: None,
) -> Stepper[Evaluation]:
    """Makes the steps of K chains on the tensors of `state`.

    longest     steps of the longest stretch
    batch_size  frames per chain in most steps
    precision   of matrix products on a GPU
    begun       the engine that earlier steps of the run were made with
    """
    network, device = potential.model.config, potential.data.forces.device
    refused = potential.unfused_because(first_choice(device, begun))
    choice = choose(network, device, state.position.dtype, refused=refused, begun=begun)
    if choice.engine == "triton":
        from equibayes.engine.triton.precompile import precompile
        from equibayes.engine.triton.steps import TritonStepper

        chains, data = len(key.chains), potential.data
        rows = chains * data.num_atoms * min(batch_size, len(data))
        precompile(network, precision, chains, rows, training=True, say=say)
        return TritonStepper(potential, state, key, sampler, longest=longest, precision=precision, average=average)
    if choice.engine == "native":
        from equibayes.engine.native.module import load
        from equibayes.engine.native.steps import NativeStepper

        try:
            module = load(potential.model, steps=True, say=say)
            return NativeStepper(potential, state, key, sampler, module=module, average=average)
        except CompileError as cause:
            choice = _not_compiled(cause)
    if choice.reason is not None:
        say(_without(choice, "sampling", device))
    return reference_stepper(potential, state, key, sampler, average)


def _not_compiled(cause: CompileError) -> Choice:
    """The reference instead, unless the user insists."""
    if wanted() == "native":
        raise InputError(f"engine native: {cause}; use --engine reference") from cause
    return Choice("reference", f"{cause}; --engine reference avoids this line")


def reference_stepper(
    potential: Potential,
    state: sghmc.State,
    key: NoiseKey,
    sampler: sghmc.SGHMCConfig,
    average: MovingAverage | None = None,
) -> ReferenceStepper[Evaluation]:
    """The potential itself, step by step, with its dropout masks and the weight of its prior."""
    evaluate, dropout, data = make_evaluate(potential), potential.dropout, potential.data

    def density(position: torch.Tensor, indices: torch.Tensor, step: int, plan: StepPlan) -> Evaluation:
        mask = None
        if dropout is not None:
            shape = (indices.shape[1] * data.num_atoms, potential.model.config.channels[0])
            own = NoiseKey(dropout.seed, key.chains)
            mask = dropout_mask(own, step, shape, dropout.rate, data.forces, dropout.stream)
        seen = evaluate(position, indices, mask, plan.balance)
        return potential.with_prior_weight(seen, position, plan.prior_weight)

    blocks = sampler.blocks(potential.model.layout.shapes)
    return ReferenceStepper(density, state, key, sampler, potential.data_size, average, blocks)


def make_predictor(model: StochasticModel, samples: torch.Tensor, *, begun: str | None = None) -> Predictor:
    """Predictions with the weights `samples` [k, P], on their device; begun: by the engine of a run."""
    choice = choose(model.config, samples.device, samples.dtype, begun=begun)
    if choice.engine == "triton":
        from equibayes.engine.triton.model import TritonModel
        from equibayes.engine.triton.precompile import precompile

        def prepare(rows: int) -> None:
            precompile(model.config, PREDICTION_PRECISION, len(samples), rows, training=False)

        return TritonModel(model, PREDICTION_PRECISION, prepare)
    if choice.engine == "native":
        from equibayes.engine.native.model import NativeModel

        try:
            return NativeModel(model, len(samples), _say_once)
        except CompileError as cause:
            choice = _not_compiled(cause)
    if choice.reason is not None:
        _say_once(_without(choice, "predictions", samples.device))
    return ReferencePredictor(model)


@cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr)


class ReferencePredictor:
    """The model itself."""

    engine = "reference"
    fused = False

    def __init__(self, model: StochasticModel) -> None:
        self.model = model

    def edges_at_once(self, device: torch.device) -> int:
        return EDGES_AT_ONCE.get(device.type, EDGES_AT_ONCE["cuda"])

    def samples_at_once(self, device: torch.device, edges: int) -> int:
        return max(1, self.edges_at_once(device) // max(1, edges))

    def forward(self, weights: Weights, graph: Graph, *, feature_mask: torch.Tensor | None = None) -> ModelOutput:
        return self.model.forward(weights, graph, feature_mask=feature_mask)

    def dynamics(self, weights: Weights, graph: Graph) -> Dynamics | None:
        return None

    def part(self, weights: Weights) -> None:
        return None
