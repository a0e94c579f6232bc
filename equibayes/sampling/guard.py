"""Keeps chains from running away: looks at them, rolls a diverging one back, and lets it retry with a smaller step.

`stability` holds the mathematics; this is what a run does with it.
"""

from collections.abc import Callable

import torch

from equibayes.sampling.diagnostics import kinetic_temperature
from equibayes.sampling.run_state import RunState
from equibayes.sampling.schedule import StepPlan
from equibayes.sampling.settings import GuardSettings
from equibayes.sampling.sghmc import SGHMCConfig
from equibayes.sampling.stability import diverging, finite_difference_product, largest_curvature, max_learning_rate

# û of a minibatch scatters; it is compared with the lowest of this many looks
REMEMBERED_LOOKS = 20
# how much more is tolerated while the mass adapts
ADAPTING_PATIENCE = 10.0


class Guard:
    """Watches the chains of one run."""

    def __init__(self, settings: GuardSettings, sampler: SGHMCConfig, data_size: int) -> None:
        self.settings, self.sampler, self.data_size = settings, sampler, data_size

    def look(self, state: RunState, rollback: RunState, plan: StepPlan, potential: torch.Tensor) -> list[str]:
        """Judge every chain by its momentum and û [K]; put diverging ones back.  Returns what was done, in words."""
        bad = self._diverging(state, plan, potential) & ~state.failed
        messages = []
        for chain in torch.nonzero(bad).flatten().tolist():
            state.rollbacks[chain] += 1
            if state.rollbacks[chain] > self.settings.retries:
                state.failed[chain] = True
                state.slowdown[chain] = 0.0
                messages.append(
                    f"chain {chain} diverged {self.settings.retries + 1} times and is given up at step {state.step}; "
                    "the others go on. Lower burn_in.initial or cycles.peak, or look at the data"
                )
            else:
                state.slowdown[chain] *= 0.5
                messages.append(
                    f"chain {chain} was diverging at step {state.step}: rolled back to step {rollback.step}, "
                    f"learning rate times {float(state.slowdown[chain]):g} from here on"
                )
        if bad.any():
            state.restore_chains(bad, rollback)
            state.looks[-1, bad] = state.looks[:-1].amin(0)[bad] if len(state.looks) > 1 else 0.0
        return messages

    def _diverging(self, state: RunState, plan: StepPlan, potential: torch.Tensor) -> torch.Tensor:
        temperature, frozen = plan.temperature, plan.mass_frozen
        kinetic = kinetic_temperature(state.sampler.momentum, self.sampler).double().cpu()
        finite = state.sampler.position.isfinite().all(1).cpu()
        if not self.settings.enabled:
            return ~finite  # a chain of NaN is no chain, whatever the user switched off
        state.looks = torch.cat([state.looks, potential.double().cpu()[None]])[-REMEMBERED_LOOKS:]
        # While the mass adapts it grows with the gradients and tames an instability by itself, and large steps heat the chain; so
        # only an explosion counts then.
        patience = 1.0 if frozen else ADAPTING_PATIENCE
        return ~finite | diverging(
            kinetic[None],
            state.looks,
            state.sampler.position.shape[1],
            temperature,
            kinetic_factor=2.0 * patience,
            potential_rise=2.0 * patience,
        )

    def cap_learning_rate(
        self, state: RunState, gradient: Callable[[torch.Tensor], torch.Tensor], peak: float
    ) -> list[str]:
        """Before γ jumps up: the largest γ that the curvature at θ allows, for every chain.

        `gradient` is ∇û on fixed configurations, [K, P] → [K, P].
        """
        position = state.sampler.position
        product = finite_difference_product(gradient, position)
        curvature = largest_curvature(product, state.sampler.mass.mass, iterations=self.settings.iterations)
        state.cap = max_learning_rate(
            curvature.value.double().cpu(), self.data_size, self.sampler, self.settings.safety
        ).nan_to_num(nan=0.0, posinf=torch.inf)
        return [
            f"chain {chain}: the curvature allows a learning rate of {float(state.cap[chain]):.2g}, less than the peak "
            f"{peak:.2g} of the schedule; capped"
            for chain in torch.nonzero((state.cap < peak) & ~state.failed).flatten().tolist()
        ]
