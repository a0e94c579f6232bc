"""Is the chain at the right temperature, does it still drift, and have the chains converged to the same distribution?

Temperatures, one value per chain, for all parameters or by named group (a layer):

    kinetic           mean(r²)/c   c = 1 (``baoa``) or 1/(1−α/2) (``paper``, whose r is wider by that much)
    configurational   θ·∇u/d       E[(θ−c)·∇u] = dT for any density exp(−u/T) and any constant c

Both equal T in equilibrium.  The kinetic one reacts within ten steps and watches the integrator.  The configurational
one needs many independent θ and is for targets with known moments: see :func:`configurational_temperature`.

Heating by minibatches.  Independent draws whose gradient per configuration ∇û/N has variance B raise the temperature
of θ to T_eff, with (``baoa``: times 1−α/2)

    T_eff − 1 = NγB/(2M) ≤ NγM/2,        since B ≤ mean((∇û/N)²) ≤ M².

Agreement over samples: rank-normalised split R̂ and effective sample size (Vehtari, Gelman, Simpson, Carpenter,
Bürkner 2021), for scalar functions of the state such as predictions and the log posterior.  Weights have symmetries
(permuted channels are the same model), so weights themselves are not judged.  Below 20 draws per chain both are
undefined here: with 4 to 8 independent draws the largest of 16 values of R̂ is 1.6 to 1.2.

Stationarity needs three draws per chain only, because the scatter at equilibrium is known.  With x_c the value at the
end of cycle c, the drift is the least-squares slope over c.  In equilibrium its variance is at most (scatter of x)²
times the largest Σ_cd w_c w_d ρ^|c−d| over 0 ≤ ρ < 1, for any chain whose autocorrelation is a mixture of such powers
(reversible dynamics).  A drift beyond that is none of equilibrium:

    u          scatter T √(P/2): that of P harmonic degrees of freedom
    |θ|²/d     scatter at most 2 √(q/d), q its mean, for N(0, I) times any log-concave likelihood, tempered or not
    forces     the change of the predictions from cycle to cycle has a constant size; tested between chains
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, overload

import numpy as np
import torch

from equibayes.errors import InputError
from equibayes.sampling.sghmc import SGHMCConfig

Groups = Mapping[str, slice]
MINIMUM_DRAWS = 20
"""Draws per chain below which R̂ of independent draws is far from 1, so that it says nothing about the chains."""


@overload
def kinetic_temperature(momentum: torch.Tensor, config: SGHMCConfig) -> torch.Tensor: ...
@overload
def kinetic_temperature(momentum: torch.Tensor, config: SGHMCConfig, groups: Groups) -> dict[str, torch.Tensor]: ...
def kinetic_temperature(
    momentum: torch.Tensor, config: SGHMCConfig, groups: Groups | None = None
) -> torch.Tensor | dict[str, torch.Tensor]:
    """mean(r²)/c of r [K, P]: [K], or a dictionary of [K] by group."""
    scale = 1 - config.friction / 2 if config.integrator == "paper" else 1.0
    return _mean(momentum.square() * scale, groups)


@overload
def configurational_temperature(position: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor: ...
@overload
def configurational_temperature(
    position: torch.Tensor, gradient: torch.Tensor, groups: Groups, center: torch.Tensor | None = None
) -> dict[str, torch.Tensor]: ...
def configurational_temperature(
    position: torch.Tensor, gradient: torch.Tensor, groups: Groups | None = None, center: torch.Tensor | None = None
) -> torch.Tensor | dict[str, torch.Tensor]:
    """(θ−c)·∇u/d of θ and ∇u [K, P]: [K], or by group.  ``center`` c: near the mean of θ it lowers the scatter.

    Not recorded in runs.  With curvatures λ_i and means μ_i of θ_i − c the value at one θ has the variance
    Σ (2 + λ_i μ_i²)/d², also with the exact gradient, so that averages over minibatches do not help.
    """
    displacement = position if center is None else position - center
    return _mean(displacement * gradient, groups)


def _mean(values: torch.Tensor, groups: Groups | None) -> torch.Tensor | dict[str, torch.Tensor]:
    if groups is None:
        return values.mean(-1)
    return {name: values[:, part].mean(-1) for name, part in groups.items()}


def temperature_rise_bound(mass: torch.Tensor, learning_rate: float | torch.Tensor, data_size: float) -> torch.Tensor:
    """NγM/2 for every parameter, [K, P]; ``learning_rate`` is a number or [K].  Log its mean and its maximum."""
    γ = torch.as_tensor(learning_rate, dtype=mass.dtype, device=mass.device).reshape(-1, 1)
    return 0.5 * data_size * γ * mass


class Convergence(NamedTuple):
    """R̂ and effective sample size of each quantity; NaN with a reason where they are undefined."""

    r_hat: np.ndarray
    ess: np.ndarray
    """Bulk effective sample size, over all chains."""
    reason: str | None


def convergence(draws: np.ndarray) -> Convergence:
    """Rank-normalised split R̂ and bulk ESS of ``draws`` [chains, draws, …quantities].

    R̂ between the halves of all chains: the larger of that of the ranks (location) and of |x − median| (scale).
    """
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim < 2:
        raise InputError(f"draws must be [chains, draws, ...], not {draws.shape}")
    chains, length, *rest = draws.shape
    undefined = np.full(rest, np.nan)
    if length < MINIMUM_DRAWS:
        return Convergence(undefined, undefined.copy(), too_few_draws(length))
    columns = draws.reshape(chains, length, -1)
    table = np.array([_r_hat_and_ess(columns[..., q]) for q in range(columns.shape[-1])]).reshape(*rest, 2)
    reason = None
    if np.isnan(table).any():
        reason = "some quantities are not finite, or the same in every draw, so R-hat and ESS are undefined for them"
    return Convergence(table[..., 0], table[..., 1], reason)


def too_few_draws(draws: int) -> str:
    """Why R̂ and ESS are undefined."""
    return f"{draws} draws per chain are too few for R-hat and ESS: at least {MINIMUM_DRAWS} are needed"


def _r_hat_and_ess(draws: np.ndarray) -> tuple[float, float]:
    """Of one quantity, [chains, draws]."""
    if not np.isfinite(draws).all() or np.ptp(draws) == 0:
        return np.nan, np.nan
    halves = _split(draws)
    ranks = _rank_normalise(halves)
    folded = _rank_normalise(np.abs(halves - np.median(halves)))
    return max(_r_hat(ranks), _r_hat(folded)), _ess(ranks)


def _split(draws: np.ndarray) -> np.ndarray:
    """Each chain as two, so that a drift shows as a difference; the middle draw of an odd number is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _rank_normalise(draws: np.ndarray) -> np.ndarray:
    """Normal scores Φ⁻¹((rank − 3/8)/(S + 1/4)), robust to heavy tails; ties share their mean rank."""
    _, inverse, counts = np.unique(draws, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    shares = (mean_rank[inverse].reshape(draws.shape) - 0.375) / (draws.size + 0.25)
    return torch.special.ndtri(torch.from_numpy(shares)).numpy()


def _r_hat(z: np.ndarray) -> float:
    """√(((n−1)/n W + B/n)/W) with W the mean variance within chains and B/n the variance of the chain means."""
    n = z.shape[1]
    within = z.var(axis=1, ddof=1).mean()
    return float(np.sqrt((n - 1) / n + z.mean(axis=1).var(ddof=1) / within)) if within > 0 else float("nan")


def _ess(z: np.ndarray) -> float:
    """S/τ with τ = −1 + 2 Σ Γ_t, Γ_t = ρ_2t + ρ_2t+1, truncated where Γ_t turns negative and made monotone (Geyer).

    The autocorrelation ρ_t combines all chains, so that chains that disagree count as correlated.
    """
    chains, n = z.shape
    centred = z - z.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, n=2 * n, axis=1)
    autocovariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(axis=0) / n
    within = autocovariance[0] * n / (n - 1)
    pooled = autocovariance[0] + z.mean(axis=1).var(ddof=1)
    ρ = 1 - (within - autocovariance) / pooled
    ρ[0] = 1
    pairs = ρ[: n - n % 2].reshape(-1, 2).sum(axis=1)[: max(1, (n - 1) // 2)]
    negative = np.flatnonzero(pairs < 0)
    kept = max(1, min(len(pairs) - 1, int(negative[0]) if len(negative) else len(pairs)))
    remainder = max(0.0, float(ρ[2 * kept])) if kept < len(pairs) else 0.0  # half of the first pair that is cut
    τ = -1 + 2 * np.minimum.accumulate(pairs[:kept]).sum() + remainder
    return float(chains * n / max(τ, 1 / np.log10(chains * n)))


FALSE_ALARM = 1e-3
"""Probability that chains in equilibrium are said to move, for each of the three quantities."""
MINIMUM_ENDS = 3
"""Ends of cycles from which a drift is judged."""


class Drift(NamedTuple):
    """Slope per cycle of each chain [K], and the largest standard deviation that it has in equilibrium."""

    slope: np.ndarray
    deviation: float
    moving: bool

    @property
    def mean(self) -> float:
        return float(self.slope.mean())


def drift(draws: np.ndarray, scatter: float, level: float = FALSE_ALARM) -> Drift:
    """Drift of a quantity ``draws`` [K, C] at the ends of C cycles whose standard deviation in equilibrium is known.

    It is moving where the mean over chains or a single chain is beyond the normal quantile of K + 1 tests together.
    """
    draws = np.asarray(draws, dtype=np.float64)
    chains, ends = draws.shape
    slope = draws @ _slope_weights(ends)
    deviation = scatter * largest_slope_deviation(ends)
    limit = -float(torch.special.ndtri(torch.tensor(level / (2 * (chains + 1)), dtype=torch.float64)))
    moving = max(np.abs(slope).max(), np.abs(slope.mean()) * np.sqrt(chains)) > limit * deviation
    return Drift(slope, deviation, bool(moving))


@cache
def largest_slope_deviation(ends: int) -> float:
    """Standard deviation of the slope over ``ends`` values of unit variance, for the worst autocorrelation ρ^|c−d|."""
    w, lag = _slope_weights(ends), np.abs(np.subtract.outer(np.arange(ends), np.arange(ends)))
    return float(np.sqrt(max(w @ ρ**lag @ w for ρ in np.linspace(0, 1, 200, endpoint=False))))


def _slope_weights(ends: int) -> np.ndarray:
    """w with slope = Σ w_c x_c."""
    centred = np.arange(ends) - (ends - 1) / 2
    return centred / np.square(centred).sum()


class Growth(NamedTuple):
    """Slope per cycle of ln(size of the change of predictions), its standard error over chains; NaN where undefined."""

    slope: float
    error: float
    moving: bool


def growth(predictions: np.ndarray, level: float = FALSE_ALARM) -> Growth:
    """Whether predictions [K, C, Q] at the ends of C cycles change by more, or by less, from cycle to cycle.

    The size of a change is the root mean square over the Q quantities.  In equilibrium its slope is symmetric about 0,
    so that the mean over K ≥ 3 chains is tested with Student's t.
    """
    chains, ends = predictions.shape[:2]
    if chains < 3 or ends < MINIMUM_ENDS:
        return Growth(np.nan, np.nan, False)
    changes = np.sqrt(np.square(np.diff(predictions, axis=1)).mean(axis=2))
    if not (changes > 0).all():
        return Growth(np.nan, np.nan, False)
    slopes = np.log(changes) @ _slope_weights(ends - 1)
    mean, error = float(slopes.mean()), float(slopes.std(ddof=1) / np.sqrt(chains))
    return Growth(mean, error, abs(mean) > _student_quantile(1 - level / 2, chains - 1) * error)


@cache
def _student_quantile(probability: float, degrees: int) -> float:
    """With t = √ν tan φ the density of φ is cos(φ)^(ν−1); integrated by the trapezoidal rule."""
    φ = np.pi / 2 * (1 - np.logspace(0, -8, 20_001))
    density = np.cos(φ) ** (degrees - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(φ))])
    return float(np.sqrt(degrees) * np.tan(np.interp(2 * probability - 1, mass / mass[-1], φ)))
