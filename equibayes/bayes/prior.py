"""The prior density of the weights, as a term of the potential u(θ) = −ln p(θ) − Σ ln p(y|x,θ).

The prior enters u once, not once per configuration, and its gradient is part of ∇û like any other.  Adding it as a
decoupled weight decay instead would bypass the mass M and with it change the posterior.

``StandardNormal``   p(θ) = N(0, I), the paper's choice
``CentredNormal``    p(θ) = N(c, diag(s²)): around given weights c, with a width s for each group of parameters
``Flat``             no prior at all: plain maximum likelihood, for the baselines

All are callables of the flat weights θ [K, P]; densities are normalised, so that evidence-like comparisons make sense.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from equibayes.errors import InputError
from equibayes.plural import counted

LOG_2PI = math.log(2 * math.pi)


class Prior(Protocol):
    """The interface of a prior."""

    def neg_log_density(self, theta: torch.Tensor) -> torch.Tensor:
        """−ln p(θ): [K, P] → [K]."""

    def gradient(self, theta: torch.Tensor) -> torch.Tensor:
        """−∇ ln p(θ): [K, P] → [K, P]."""

    def standardised(self, theta: torch.Tensor) -> torch.Tensor:
        """θ in units of the prior, where it is N(0, I): [K, P] → [K, P]."""


@dataclass(frozen=True)
class Flat:
    """No prior at all: plain maximum likelihood."""

    def neg_log_density(self, theta: torch.Tensor) -> torch.Tensor:
        """0, [K]."""
        return theta.new_zeros(theta.shape[0])

    def gradient(self, theta: torch.Tensor) -> torch.Tensor:
        """0, [K, P]."""
        return torch.zeros_like(theta)

    def standardised(self, theta: torch.Tensor) -> torch.Tensor:
        """θ: there is no width to compare it with."""
        return theta


@dataclass(frozen=True)
class StandardNormal:
    """θ ~ N(0, I)."""

    def neg_log_density(self, theta: torch.Tensor) -> torch.Tensor:
        """½|θ|² + ½P ln 2π, [K]."""
        return 0.5 * theta.square().sum(-1) + 0.5 * theta.shape[-1] * LOG_2PI

    def gradient(self, theta: torch.Tensor) -> torch.Tensor:
        """θ."""
        return theta.clone()

    def standardised(self, theta: torch.Tensor) -> torch.Tensor:
        """θ."""
        return theta


@dataclass(frozen=True, eq=False)
class CentredNormal:
    """θ ~ N(c, diag(s²)) with ``center`` c, [P] or [K, P], and standard deviation ``width`` s, [P] or a scalar."""

    center: torch.Tensor
    width: torch.Tensor

    def __post_init__(self) -> None:
        if not bool((self.width > 0).all() and self.width.isfinite().all()):
            raise InputError("every width of the prior must be positive and finite")
        if not bool(self.center.isfinite().all()):
            raise InputError("the centre of the prior contains values that are not finite")
        if self.width.ndim and self.width.shape[-1] != self.center.shape[-1]:
            raise InputError(
                f"the prior has {counted(self.width.shape[-1], 'width')} for "
                f"{counted(self.center.shape[-1], 'parameter')}; give one each"
            )

    def neg_log_density(self, theta: torch.Tensor) -> torch.Tensor:
        """½ Σ ((θ−c)/s)² + Σ ln s + ½P ln 2π, [K]."""
        z = self.standardised(theta)
        log_width = self.width.log().expand(theta.shape[-1]).sum()
        return 0.5 * z.square().sum(-1) + log_width + 0.5 * theta.shape[-1] * LOG_2PI

    def gradient(self, theta: torch.Tensor) -> torch.Tensor:
        """(θ−c)/s²."""
        return (theta - self.center) / self.width.square()

    def standardised(self, theta: torch.Tensor) -> torch.Tensor:
        """(θ−c)/s."""
        return (theta - self.center) / self.width


def group_widths(
    groups: Mapping[str, slice], widths: Mapping[str, float], size: int, default: float = 1.0
) -> torch.Tensor:
    """A width for each of ``size`` parameters, [P] in double precision.

    ``groups`` names slices of the flat weights; ``widths`` gives standard deviations by name, ``default`` the rest.
    """
    unknown = sorted(set(widths) - set(groups))
    if unknown:
        raise InputError(f"prior width for unknown parameter group '{unknown[0]}'; groups are: {', '.join(groups)}")
    out = torch.full((size,), default, dtype=torch.float64)
    for name, width in widths.items():
        out[groups[name]] = width
    return out
