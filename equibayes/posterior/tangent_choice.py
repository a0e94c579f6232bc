"""What is chosen for the linearised posterior by held-back frames, and whether it holds there.

λ and one factor each for the σ of forces, energies and stress are those that maximise the likelihood of held-back
labels, among the λ for which |δ| ≤ ``FARTHEST`` |θ|.  A smaller λ may still help frames like those held back, but
networks that were moved farther are much worse on frames unlike them (measured: results/solids).  Without held-back
frames λ is ``DEFAULT_NOISE``, and σ is scaled by √λ s, as the regression itself has it.

If the predictions of several networks have the variance v each and differ by b (variance over networks), all draws
together have v + b.  But the mean of the networks is better than each, not worse: for any errors

    (mean e)² = mean e² − variance of e.

Without held-back frames, where no factor is fitted, draws around each network are therefore narrowed such that all
together have the variance v.  (v − b is what the formula suggests, and too narrow: errors have heavier tails than a
Gaussian, see results/foundation.)  v and b are those of training frames left out one by one, which needs no further
evaluation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi
from typing import Any

import numpy as np
import torch

from equibayes.posterior.jacobian import FORCES, KINDS
from equibayes.posterior.tangent_plan import NOISES
from equibayes.posterior.tangent_store import Draws

DEFAULT_NOISE = 0.1
NARROWEST = 0.5
"""Of the σ of single networks."""
LARGE = 1.0
"""Size of δ relative to θ that is warned about where no held-back frame shows that predictions are better."""

FARTHEST = 2.0
"""Largest size of δ relative to θ where held-back frames choose it."""


@dataclass(frozen=True)
class Choice:
    """λ (its number in NOISES), a factor on the σ of each kind of label, ln p of the held-back labels, a factor on how
    far draws around a network differ."""

    noise: int
    factors: tuple[float, float, float]
    log_likelihood: float | None
    narrowed: float = 1.0


def choose(found: Sequence[Draws], sizes: Sequence[float]) -> Choice:
    """λ and the factors on σ that maximise the likelihood of the held-back labels; sizes: |δ| / |θ| for every λ."""
    held = found[0].held
    if held is None:
        number = NOISES.index(DEFAULT_NOISE)
        narrowed = narrowing(found)
        factor = narrowed * float((DEFAULT_NOISE * torch.stack([each.scale[number] for each in found]).mean()).sqrt())
        return Choice(number, (factor, factor, factor), None, narrowed)
    aleatoric = torch.stack([each.held.sigma.square() for each in found if each.held is not None]).mean(0).numpy()
    choices = []
    for number in range(len(NOISES)):
        members = torch.cat([each.members[number] for each in found if each.members is not None]).numpy()
        error, epistemic = members.mean(0) - held.label.numpy(), members.var(0)
        factors, total = [], 0.0
        for kind in range(len(KINDS)):
            own = held.kind.numpy() == kind
            factor, log_p = best_factor(error[own], epistemic[own], aleatoric[own])
            factors.append(factor)
            total += log_p
        choices.append(Choice(number, (factors[0], factors[1], factors[2]), total))
    near = [choice for choice, size in zip(choices, sizes, strict=True) if size <= FARTHEST]
    return max(near or choices[:1], key=lambda choice: choice.log_likelihood or -np.inf)


def narrowing(found: Sequence[Draws]) -> float:
    """The factor c on the σ of single networks with which c² v + b = v."""
    parts = [each.left_out for each in found if each.left_out is not None]
    if len(parts) < len(found) or len(parts) < 2:
        return 1.0
    errors, variances = torch.stack(parts).unbind(1)
    b, v = float(errors.var(0, correction=0).mean()), float(variances.mean())
    return max(NARROWEST, max(0.0, 1 - b / v) ** 0.5)


def best_factor(error: np.ndarray, epistemic: np.ndarray, aleatoric: np.ndarray) -> tuple[float, float]:
    """The factor c on the aleatoric σ that maximises Σ ln N(error; 0, epistemic + c² aleatoric), and that maximum.

    epistemic, aleatoric: variances.  Within a factor of 100 either way, to 1 %.
    """
    if not len(error):
        return 1.0, 0.0
    factors = np.exp(np.linspace(-log(100), log(100), 921))
    variance = epistemic + np.square(factors)[:, None] * aleatoric
    log_p = -0.5 * (np.square(error) / variance + np.log(2 * pi * variance)).sum(1)
    best = int(log_p.argmax())
    return float(factors[best]), float(log_p[best])


def warnings_of(about: dict[str, Any]) -> list[str]:
    """Where the linearisation does not hold; about: `tangent` of the verdict."""
    errors, size = about["held_back_force_mae"], about["relative_size"]
    found = []
    if errors and errors[1] > errors[0]:
        found.append(
            f"the linearised networks have a larger force error on held-back frames ({1e3 * errors[1]:.1f} meV/Å) than "
            f"the networks themselves ({1e3 * errors[0]:.1f}): the linearisation fails; use the unrefined posterior"
        )
    if not errors and size > LARGE:
        found.append(
            f"the labels move the weights by {100 * size:.0f} % of their size, and there are no held-back frames to see "
            "whether the linearisation holds: name some, or sample again with all labels"
        )
    return found


def held_back_errors(found: Sequence[Draws], noise: int) -> tuple[float, float] | None:
    """Mean absolute force error on held-back frames, eV/Å: of the mean of the centres, and of the linearised mean."""
    held = found[0].held
    if held is None:
        return None
    before = torch.stack([each.held.value for each in found if each.held is not None]).mean(0)
    after = torch.cat([each.members[noise] for each in found if each.members is not None]).mean(0)
    own = held.kind == FORCES
    error_before, error_after = ((each - held.label)[own].abs().mean() for each in (before, after))
    return float(error_before), float(error_after)
