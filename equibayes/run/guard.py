"""Keeps chains from running away: looks at them, rolls a diverging one back, and lets it retry with a smaller step.

`stability` holds the mathematics; this is what a run does with it.
"""

from collections.abc import Callable, Sequence

import torch

from equibayes.bayes.potential import Evaluation
from equibayes.run.settings import GuardSettings
from equibayes.run.state import RunState
from equibayes.sampling.diagnostics import kinetic_temperature
from equibayes.sampling.noise import NoiseKey, standard_normal
from equibayes.sampling.schedule import StepPlan
from equibayes.sampling.sghmc import SGHMCConfig
from equibayes.sampling.stability import diverging, finite_difference_product, largest_curvature, max_learning_rate

# û of a minibatch scatters; it is compared with the lowest of this many looks,
REMEMBERED_LOOKS = 20
# and a rise by less than this many times the largest recent difference between two looks means nothing: where N is large and batches
# are small, û scatters by far more than a divergence is high.  Before there are so many differences, û is not judged at all.
DIFFERENCES, KNOWN_DIFFERENCES = 3.0, 8
# how much more is tolerated while the mass adapts
ADAPTING_PATIENCE = 10.0
# A chain whose forces err by this many times their own size is lost, however quiet it is: far out σ has grown to hold the errors,
# û is no longer high, gradients are small, and the chain would stay there and spoil the mean over all.
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
    ) -> None:
        """identities: the number of each of the K chains, for messages and for its random start of the curvature estimate;
        force_size: root mean square of the forces to learn, eV/Å."""
        self.settings, self.sampler, self.data_size = settings, sampler, data_size
        self.identities, self.lost_above = identities, LOST * force_size
        self.retries = settings.retries if settings.enabled else 0

    def look(
        self, state: RunState, rollback: RunState, begin: RunState, plan: StepPlan, evaluation: Evaluation
    ) -> list[str]:
        """Judge every chain by its momentum, û and force errors; put diverging ones back.  Returns what was done, in words.

        rollback: the state at the last look; begin: the state before the first step.
        """
        bad = self._diverging(state, plan, evaluation) & ~state.failed
        if not bool(bad.any()):
            return []
        # In burn-in a chain can be lost before it is seen to be: where rolling back did not help, it begins anew.
        again = bad & (state.rollbacks > 0) & (not plan.mass_frozen)
        state.restore_chains(bad & ~again, rollback)
        state.restore_chains(again, begin)
        state.looks[:, again] = torch.inf
        state.looks[-1, bad] = torch.inf  # what a diverging chain reached is no measure for its next look
        return [
            self._retry_or_give_up(state, chain, 0 if bool(again[chain]) else rollback.step)
            for chain in torch.nonzero(bad).flatten().tolist()
        ]

    def _retry_or_give_up(self, state: RunState, chain: int, last_good: int) -> str:
        """Half the step from here on; after too many times 0, so that the chain stays where it was last well."""
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

    def _diverging(self, state: RunState, plan: StepPlan, evaluation: Evaluation) -> torch.Tensor:
        state.looks = torch.cat([state.looks, evaluation.potential.double().cpu()[None]])[-REMEMBERED_LOOKS:]
        finite = state.sampler.position.isfinite().all(1).cpu()
        if not self.settings.enabled:
            return ~finite  # a chain of NaN is no chain, whatever the user switched off
        # While the mass adapts it grows with the gradients and tames an instability by itself, and large steps heat the chain; so
        # only an explosion counts then.
        patience = 1.0 if plan.mass_frozen else ADAPTING_PATIENCE
        looks = state.looks.clone()
        looks[-1] -= DIFFERENCES * largest_difference(state.looks[:-1])
        lost = evaluation.force_mae.cpu() > self.lost_above
        return (
            ~finite
            | lost
            | diverging(
                kinetic_temperature(state.sampler.momentum, self.sampler).double().cpu()[None],
                looks,
                state.sampler.position.shape[1],
                plan.temperature,
                kinetic_factor=2.0 * patience,
                potential_rise=2.0 * patience,
            )
        )

    def cap_learning_rate(
        self, state: RunState, gradient: Callable[[torch.Tensor], torch.Tensor], peak: float
    ) -> list[str]:
        """Before γ jumps up: the largest γ that the curvature at θ allows, for every chain.

        `gradient` is ∇û on fixed configurations, [K, P] → [K, P].
        """
        position, mass = state.sampler.position, state.sampler.mass.mass
        product = finite_difference_product(gradient, position)
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
    """The largest difference of û between one look and the next, [n, K] -> [K]; huge (but finite) where too few are known.

    Differences of neighbours, because a slow descent is no scatter.  Looks at which a chain was rolled back are infinite and left out.
    """
    differences = looks.diff(dim=0).abs()
    known = differences.isfinite()
    enough = known.sum(0) >= KNOWN_DIFFERENCES
    if not bool(enough.any()):
        return torch.full(looks.shape[1:], 1e300, dtype=looks.dtype)
    return torch.where(enough, torch.where(known, differences, 0.0).amax(0), 1e300)
