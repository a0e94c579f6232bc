"""Detects diverging chains, rolls them back and lets them retry with a smaller step.

The mathematics is in `sampling/stability.py`.
"""

from collections.abc import Callable, Sequence

import torch

from equibayes.bayes.potential import Evaluation
from equibayes.run.settings import GuardSettings
from equibayes.run.state import RunState
from equibayes.sampling.basis import Blocks, from_basis, into_basis
from equibayes.sampling.chain import Look
from equibayes.sampling.diagnostics import kinetic_temperature, temperature_rise_bound
from equibayes.sampling.noise import NoiseKey, standard_normal
from equibayes.sampling.sghmc import SGHMCConfig
from equibayes.sampling.stability import diverging, finite_difference_product, largest_curvature, max_learning_rate

# û of a minibatch scatters.  It is compared with the lowest value of this many looks;
REMEMBERED_LOOKS = 20
# a rise of less than this many times the largest recent difference between two looks is ignored, because with large N
# and small batches û scatters more than a divergence raises it.  With fewer known differences than this, û is not
# judged.
DIFFERENCES, KNOWN_DIFFERENCES = 3.0, 8
# tolerance factor while the mass adapts
ADAPTING_PATIENCE = 10.0
# A chain with force errors of this many times the RMS force is lost, even where û is low and gradients are small: σ has
# grown with the errors, and the chain would stay there and spoil the mean over chains.
LOST = 20.0
# share of the stability limit that a restart of γ may use, and power iterations of the curvature estimate before it
SAFETY, ITERATIONS = 0.5, 10


class Guard:
    """Watches the chains of one run."""

    def __init__(
        self,
        settings: GuardSettings,
        sampler: SGHMCConfig,
        data_size: int,
        identities: Sequence[int],
        force_size: float = float("inf"),
        blocks: Blocks = (),
    ) -> None:
        """identities: chain numbers, for messages and for the random start of the curvature estimate;
        force_size: RMS force component of the training data, eV/Å; blocks: of a matrix mass."""
        self.settings, self.sampler, self.data_size = settings, sampler, data_size
        self.identities, self.lost_above = identities, LOST * force_size
        self.blocks = blocks
        self.retries = settings.retries if settings.enabled else 0

    def look(self, state: RunState, rollback: RunState, begin: RunState, look: Look[Evaluation]) -> list[str]:
        """Judge every chain by its momentum, û and force errors, and roll diverging ones back.  Returns messages.

        rollback: the state at the last look; begin: the state before the first step.
        """
        bad = self._diverging(state, look) & ~state.failed
        if not bool(bad.any()):
            return []
        # In burn-in the last look may be too late.  Where rolling back did not help, the chain starts again from the
        # beginning.
        again = bad & (state.rollbacks > 0) & (not look.plan.mass_frozen)
        state.restore_chains(bad & ~again, rollback)
        state.restore_chains(again, begin)
        state.looks[:, again] = torch.inf
        state.looks[-1, bad] = torch.inf  # the value of a diverging chain is no reference for its next look
        return [
            self._retry_or_give_up(state, chain, 0 if bool(again[chain]) else rollback.step)
            for chain in torch.nonzero(bad).flatten().tolist()
        ]

    def _retry_or_give_up(self, state: RunState, chain: int, last_good: int) -> str:
        """Halve the step from here on; after too many retries set it to 0, so that the chain stays at its last good
        state."""
        state.rollbacks[chain] += 1
        if state.rollbacks[chain] > self.retries:
            state.failed[chain] = True
            state.slowdown[chain] = 0.0
            times = "once" if self.retries == 0 else f"{self.retries + 1} times"
            return (
                f"chain {self.identities[chain]} diverged {times} and is given up at step {state.step}; the others go "
                "on. Lower burn_in.initial or cycles.peak, or look at the data"
            )
        state.slowdown[chain] *= 0.5
        return (
            f"chain {self.identities[chain]} was diverging at step {state.step}: rolled back to step {last_good}, "
            f"learning rate times {float(state.slowdown[chain]):g} from here on"
        )

    def _diverging(self, state: RunState, look: Look[Evaluation]) -> torch.Tensor:
        plan, evaluation, sampler = look.plan, look.seen, state.sampler
        state.looks = torch.cat([state.looks, evaluation.potential.double().cpu()[None]])[-REMEMBERED_LOOKS:]
        finite = sampler.position.isfinite().all(1).cpu()
        if not self.settings.enabled:
            return ~finite  # NaN is never accepted
        # While the mass adapts it grows with the gradients, which damps an instability, and large steps heat the chain;
        # so only a large divergence counts.
        patience = 1.0 if plan.mass_frozen else ADAPTING_PATIENCE
        looks = state.looks.clone()
        looks[-1] -= DIFFERENCES * largest_difference(state.looks[:-1])
        lost = evaluation.force_mae.cpu() > self.lost_above
        heating = temperature_rise_bound(
            sampler.mass.mass, look.learning_rate.to(sampler.mass.mass.device), self.data_size
        )
        return (
            ~finite
            | lost
            | diverging(
                kinetic_temperature(sampler.momentum, self.sampler).double().cpu()[None],
                looks,
                sampler.position.shape[1],
                plan.temperature,
                heating=heating.mean(1).double().cpu(),
                kinetic_factor=2.0 * patience,
                potential_rise=2.0 * patience,
            )
        )

    def cap_learning_rate(
        self, state: RunState, gradient: Callable[[torch.Tensor], torch.Tensor], peak: float
    ) -> list[str]:
        """Before γ jumps: limit it, for each chain, to what the curvature at θ allows.

        `gradient` is ∇û on fixed configurations, [K, P] → [K, P].
        """
        position, mass = state.sampler.position, state.sampler.mass.mass
        hessian, basis = finite_difference_product(gradient, position), state.sampler.mass.basis

        def product(v: torch.Tensor) -> torch.Tensor:
            return into_basis(self.blocks, basis, hessian(from_basis(self.blocks, basis, v)))

        start = standard_normal(NoiseKey(0, self.identities), 0, mass.shape[1], dtype=mass.dtype).to(mass.device)
        curvature = largest_curvature(product, mass, iterations=ITERATIONS, start=start)
        limit = max_learning_rate(curvature.value.double().cpu(), self.data_size, self.sampler, SAFETY)
        state.cap = limit.nan_to_num(nan=0.0, posinf=torch.inf)
        return [
            f"chain {self.identities[chain]}: the curvature allows a learning rate of {float(state.cap[chain]):.2g}, less "
            f"than the peak {peak:.2g} of the schedule; capped"
            for chain in torch.nonzero((state.cap < peak) & ~state.failed).flatten().tolist()
        ]


def largest_difference(looks: torch.Tensor) -> torch.Tensor:
    """The largest difference of û between consecutive looks, [n, K] -> [K]; 1e300 where too few are known.

    Consecutive looks, because a slow descent is not scatter.  Looks at which a chain was rolled back are infinite and
    ignored.
    """
    differences = looks.diff(dim=0).abs()
    known = differences.isfinite()
    enough = known.sum(0) >= KNOWN_DIFFERENCES
    if not bool(enough.any()):
        return torch.full(looks.shape[1:], 1e300, dtype=looks.dtype)
    return torch.where(enough, torch.where(known, differences, 0.0).amax(0), 1e300)
