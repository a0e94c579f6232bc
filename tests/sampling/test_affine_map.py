"""The law of the real `step` on Gaussian targets, without any randomness.

On u = ½ θ'Λθ one step is affine: (θ, r) ↦ A (θ, r) + C ξ.  Stepping from basis vectors reads off A and C; the
stationary covariance Σ = A Σ A' + C C' (discrete Lyapunov) then follows to rounding error, and can be compared with
closed forms.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov

from equibayes.sampling import diagnostics, sghmc
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule

Update = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
CURVATURES = [1.0, 1e3, 1e6, 1e10]


def real_step(integrator, *, gamma, mass, n=1.0, alpha=0.1, temperature=1.0) -> Update:
    config = sghmc.SGHMCConfig(integrator=integrator, friction=alpha, temperature=temperature)

    def update(theta, r, gradient, noise):
        state = sghmc.init(theta, r, mass=mass)
        new = sghmc.step(state, gradient, noise, learning_rate=gamma, data_size=n, config=config, adapt_mass=False)
        return new.position, new.momentum

    return update


def affine_map(update: Update, precision: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """A [2P, 2P] and C [2P, P] in the coordinates (√Λ_pp θ, r), in which everything is of order one."""
    P = len(precision)
    unit = precision.diagonal().rsqrt()
    eye, zero = torch.eye(P, dtype=torch.float64), torch.zeros(P, P, dtype=torch.float64)
    theta = torch.cat([torch.diag(unit), zero, zero])
    r = torch.cat([zero, eye, zero])
    noise = torch.cat([zero, zero, eye])
    new_theta, new_r = update(theta, r, theta @ precision, noise)
    columns = torch.cat([new_theta / unit, new_r], dim=1).T.numpy()
    return columns[:, : 2 * P], columns[:, 2 * P :]


def stationary(update: Update, precision: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Cov(√Λ_pp θ) and Cov(r)."""
    A, C = affine_map(update, precision)
    assert np.abs(np.linalg.eigvals(A)).max() < 1, "unstable"
    covariance = solve_discrete_lyapunov(A, C @ C.T)
    P = len(precision)
    return covariance[:P, :P], covariance[P:, P:]


def spectral_radius(update: Update, precision: torch.Tensor) -> float:
    return float(np.abs(np.linalg.eigvals(affine_map(update, precision)[0])).max())


def scalar(curvature: float) -> torch.Tensor:
    return torch.tensor([[curvature]], dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("kappa", [1e-4, 1e-2, 1.0, 8.0, 36.0])
@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_stationary_law_is_the_closed_form(curvature, kappa, temperature, alpha):
    N, mass = 970.0, 0.37
    gamma = kappa * N * mass / curvature
    T, options = temperature, {"gamma": gamma, "mass": mass, "n": N, "alpha": alpha, "temperature": temperature}
    if alpha * kappa < 4:
        theta, r = stationary(real_step("baoa", **options), scalar(curvature))
        assert theta[0, 0] == pytest.approx(T, rel=1e-8)
        assert r[0, 0] == pytest.approx(T, rel=1e-8)
    if kappa < (4 - 2 * alpha) / alpha:
        theta, r = stationary(real_step("paper", **options), scalar(curvature))
        assert theta[0, 0] == pytest.approx(T / (1 - alpha * kappa / (4 - 2 * alpha)), rel=1e-8)
        assert r[0, 0] == pytest.approx(T / (1 - alpha / 2 - alpha * kappa / 4), rel=1e-8)


def test_coupled_parameters_with_unequal_masses():
    """A dense 4×4 precision and masses over three decades: `baoa` gives Λ⁻¹ exactly."""
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    precision = torch.from_numpy(basis @ np.diag([1.0, 10.0, 1e3, 1e5]) @ basis.T)
    mass = torch.tensor([0.05, 1.0, 3.0, 50.0], dtype=torch.float64)
    theta, r = stationary(real_step("baoa", gamma=1e-4, mass=mass, n=1.0), precision)
    unit = precision.diagonal().sqrt().numpy()
    np.testing.assert_allclose(theta, np.linalg.inv(precision.numpy()) * np.outer(unit, unit), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(r, np.eye(4), atol=1e-8)


@pytest.mark.parametrize(("integrator", "limit"), [("baoa", 40.0), ("paper", 38.0)])
def test_stability_limit(integrator, limit):
    assert sghmc.stability_limit(sghmc.SGHMCConfig(integrator=integrator)) == pytest.approx(limit)
    for factor, stable in [(0.999, True), (1.001, False)]:
        update = real_step(integrator, gamma=factor * limit, mass=1.0)
        assert (spectral_radius(update, scalar(1.0)) < 1) is stable


def wrong_variant(name: str, kappa: float, alpha: float = 0.1) -> Update:
    """Algorithm 1 in its printed form (v, N = M = 1, λ = 1, γ = κ), with one mistake; r = v √(γ/α)."""
    gamma = kappa
    to_r = (gamma / alpha) ** 0.5
    noise_scale = {
        "right": alpha * (2 / gamma) ** 0.5,
        "old v": alpha * (2 / gamma) ** 0.5,
        "sqrt alpha": (alpha * 2 / gamma) ** 0.5,
        "no 2": alpha * (1 / gamma) ** 0.5,
        "exact OU": ((1 - (1 - alpha) ** 2) * alpha / gamma) ** 0.5,
    }[name]

    def update(theta, r, gradient, noise):
        v = r / to_r
        new_v = (1 - alpha) * v - alpha * gradient + noise_scale * noise
        return theta + gamma * (v if name == "old v" else new_v), new_v * to_r

    return update


@pytest.mark.parametrize(
    ("name", "kappa", "expected", "tolerance"),
    [
        ("right", 1e-6, 1.0, 1e-6),
        ("sqrt alpha", 1e-6, 10.0, 1e-5),
        ("no 2", 1e-6, 0.5, 1e-6),
        ("exact OU", 1e-6, 0.95, 1e-6),
    ],
)
def test_the_harness_sees_wrong_noise(name, kappa, expected, tolerance):
    theta, _ = stationary(wrong_variant(name, kappa), scalar(1.0))
    assert theta[0, 0] == pytest.approx(expected, abs=tolerance)


def test_the_harness_sees_a_drift_with_the_old_velocity():
    """λ Var(θ) = (1/(1−κ))·(1 + …) ≈ 1 + κ, unstable from κ = 1."""
    theta, _ = stationary(wrong_variant("old v", 0.01), scalar(1.0))
    assert theta[0, 0] == pytest.approx(1.01, abs=5e-4)
    assert spectral_radius(wrong_variant("old v", 0.999), scalar(1.0)) < 1
    assert spectral_radius(wrong_variant("old v", 1.001), scalar(1.0)) > 1


def test_paper_integrator_is_algorithm_1():
    """Same map as the printed algorithm, entry by entry."""
    kappa = 3.0
    printed = affine_map(wrong_variant("right", kappa), scalar(1.0))
    ours = affine_map(real_step("paper", gamma=kappa, mass=1.0), scalar(1.0))
    for a, b in zip(printed, ours):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def propagate(rates, curvature=1.0, keep_v=False) -> np.ndarray:
    """λ Var(θ) after every step of a `baoa` chain that starts in equilibrium at γ = 1e-5 (N = M = 1)."""
    A, C = affine_map(real_step("baoa", gamma=1e-5, mass=1.0), scalar(curvature))
    covariance, previous, history = solve_discrete_lyapunov(A, C @ C.T), 1e-5, []
    for gamma in rates:
        if keep_v:  # v = r √(αM/(Nγ)) unchanged
            scale = np.diag([1.0, (gamma / previous) ** 0.5])
            covariance = scale @ covariance @ scale
        A, C = affine_map(real_step("baoa", gamma=float(gamma), mass=1.0), scalar(curvature))
        covariance, previous = A @ covariance @ A.T + C @ C.T, gamma
        history.append(covariance[0, 0])
    return np.array(history)


@pytest.mark.parametrize(("kappa", "transient"), [(0.01, 0.01), (1.0, 0.13), (8.0, 0.6)])
def test_a_jump_of_the_learning_rate_leaves_the_law_alone(kappa, transient):
    """γ from 1e-5 to κ in one step.  The law ripples within the momentum's memory (θ and r are correlated by √(ακ)/2,
    which
    depends on γ) and is then exactly right; the printed state v would make it wrong by orders of magnitude."""
    kept_r = propagate([kappa] * 3000)
    assert np.abs(kept_r - 1).max() < transient
    assert np.abs(kept_r[-1] - 1) < 1e-8
    if kappa >= 1:
        assert np.abs(kept_r[300:] - 1).max() < 1e-6
    assert propagate([kappa] * 300, keep_v=True).max() > 60


@pytest.mark.parametrize("kind", ["restart", "rise_and_fall"])
@pytest.mark.parametrize("curvature", [1.0, 100.0, 8000.0])
def test_samples_at_cycle_ends_have_the_right_width(kind, curvature):
    """Three cycles up to κ = 8, a fiftieth of the paper's length: 1.4 % at worst, and less the longer the cycle."""
    plan = Schedule(BurnIn(steps=0), Cycles(kind, count=3, length=1000, peak=1e-3))
    widths = propagate(plan.learning_rates(), curvature)[plan.sample_steps]
    assert np.abs(widths - 1).max() < 0.015


@pytest.mark.parametrize("integrator", ["baoa", "paper"])
def test_temperature_rise_by_independent_minibatches(integrator):
    """Gradient noise as one more input of the affine map: T_eff − 1 = NγB/(2M) in the limit κ → 0 (baoa: times 1 −
    α/2)."""
    N, mass, gamma, curvature, variance = 100.0, 0.5, 1e-3, 1e-3, 0.2
    update = real_step(integrator, gamma=gamma, mass=mass, n=N)
    A, C = affine_map(update, scalar(curvature))
    zero = torch.zeros(1, 1, dtype=torch.float64)
    theta, r = update(zero, zero, torch.full_like(zero, N * variance**0.5), zero)
    kick = np.array([[float(theta) * curvature**0.5], [float(r)]])
    covariance = solve_discrete_lyapunov(A, C @ C.T + kick @ kick.T)
    rise = (0.95 if integrator == "baoa" else 1.0) * N * gamma * variance / (2 * mass)
    assert covariance[0, 0] - 1 == pytest.approx(rise, rel=1e-4)
    bound = diagnostics.temperature_rise_bound(torch.full((1, 1), mass, dtype=torch.float64), gamma, N)
    assert rise <= float(bound)  # since B = 0.2 <= M² = 0.25


def test_a_learning_rate_of_zero_moves_nothing_and_keeps_the_momentum_law():
    theta, r = real_step("baoa", gamma=0.0, mass=1.0)(*(torch.ones(1, 1, dtype=torch.float64) for _ in range(4)))
    assert theta.item() == 1.0
    assert r.item() == pytest.approx(0.9 + (1 - 0.81) ** 0.5)
