"""Which engine computes: chosen here, and only here, by device and availability."""

from collections.abc import Callable

import torch

from equibayes.bayes.potential import Evaluation, Potential
from equibayes.engine.triton.capture import GraphedPotential
from equibayes.engine.triton.support import why_not
from equibayes.sampling import sghmc
from equibayes.sampling.chain import MovingAverage, ReferenceStepper, Stepper
from equibayes.sampling.dropout import dropout_mask
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan


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
    say: Callable[[str], None] = lambda message: None,
) -> Stepper[Evaluation]:
    """Makes the steps of a run on the tensors of `state`, with a fused engine where there is one.

    longest     steps of the longest stretch
    batch_size  of the burn-in
    precision   of the matrix products on a GPU
    say         is told why the reference is used where a fused engine was to be expected
    """
    if potential.data.forces.device.type != "cuda":
        return reference_stepper(potential, state, key, sampler, average)
    reason = why_not(potential.model.config, potential.data.forces.device, state.position.dtype)
    if not potential.fusable:
        reason = "the data are distributed over several processes"
    if reason:
        say(f"without the fused kernels ({reason}): sampling will take several times longer")
        return reference_stepper(potential, state, key, sampler, average)
    from equibayes.engine.triton.precompile import precompile
    from equibayes.engine.triton.steps import FusedSteps

    chains, data = len(key.chains), potential.data
    rows = chains * data.num_atoms * min(batch_size, len(data))
    precompile(potential.model.config, precision, chains, rows, training=True, say=say)
    return FusedSteps(potential, state, key, sampler, longest=longest, precision=precision, average=average)


def reference_stepper(
    potential: Potential,
    state: sghmc.State,
    key: NoiseKey,
    sampler: sghmc.SGHMCConfig,
    average: MovingAverage | None = None,
) -> Stepper[Evaluation]:
    """The potential itself, step by step; on a GPU its operations are recorded once and replayed."""
    # a sum over processes cannot be part of a CUDA graph
    captured = state.position.is_cuda and potential.fusable
    evaluate = GraphedPotential(potential) if captured else potential
    dropout, data = potential.dropout, potential.data

    def density(position: torch.Tensor, indices: torch.Tensor, step: int, plan: StepPlan) -> Evaluation:
        mask = None
        if dropout is not None:
            shape = (indices.shape[1] * data.num_atoms, potential.model.config.channels[0])
            own = NoiseKey(dropout.seed, key.chains)
            mask = dropout_mask(own, step, shape, dropout.rate, data.forces, dropout.stream)
        return potential.with_prior_weight(evaluate(position, indices, mask), position, plan.prior_weight)

    return ReferenceStepper(density, state, key, sampler, potential.data_size, average)
