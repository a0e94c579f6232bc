"""The stability guard: curvature, cap on γ, and the detector; with the divergence it is there to prevent."""

import pytest
import torch
from scipy import stats

from equibayes.sampling import diagnostics, sghmc
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.stability import (
    diverging,
    finite_difference_product,
    largest_curvature,
    max_learning_rate,
)


def random_hessians(chains=3, size=12, seed=0, spectrum=None):
    generator = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(chains, size, size, dtype=torch.float64, generator=generator))[0]
    values = torch.logspace(-1, 3, size, dtype=torch.float64) if spectrum is None else spectrum
    return q @ torch.diag_embed(values.expand(chains, size)) @ q.transpose(1, 2)


def test_largest_curvature_in_units_of_the_mass():
    H = random_hessians()
    mass = torch.rand(3, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.1
    scale = mass.rsqrt()
    exact = torch.linalg.eigvalsh(scale[:, :, None] * H * scale[:, None, :])[:, -1]
    found = largest_curvature(lambda v: torch.einsum("kij,kj->ki", H, v), mass, iterations=60)
    torch.testing.assert_close(found.value, exact, rtol=1e-6, atol=0)
    assert bool((found.residual < 1e-3 * exact).all())
    early = largest_curvature(lambda v: torch.einsum("kij,kj->ki", H, v), mass, iterations=3)
    assert bool((early.value <= exact * (1 + 1e-12)).all())  # from below: hence the safety factor
    again = largest_curvature(lambda v: torch.einsum("kij,kj->ki", H, v), mass, iterations=1, start=found.direction)
    torch.testing.assert_close(again.value, exact, rtol=1e-6, atol=0)


def test_a_saddle_does_not_hide_the_top():
    """Largest in size is −500; the top, which limits the step, is 100."""
    H = random_hessians(spectrum=torch.cat([torch.tensor([-500.0, 100.0]), torch.linspace(0, 20, 10)]).double())
    found = largest_curvature(lambda v: torch.einsum("kij,kj->ki", H, v), torch.ones(3, 12).double(), iterations=200)
    torch.testing.assert_close(found.value, torch.full((3,), 100.0, dtype=torch.float64), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 2e-3)])
def test_hessian_products_by_finite_differences(dtype, tolerance):
    def gradient(x):
        return x**3 + 2 * x  # u = x⁴/4 + x², H = 3x² + 2

    theta = torch.linspace(-2, 2, 20, dtype=dtype).reshape(2, 10)
    v = torch.linspace(1, 3, 20, dtype=dtype).reshape(2, 10)
    product = finite_difference_product(gradient, theta)(v)
    torch.testing.assert_close(product, (3 * theta**2 + 2) * v, rtol=tolerance, atol=tolerance)


def test_cap_of_the_learning_rate():
    curvature = torch.tensor([1e4, 1e2, -1.0], dtype=torch.float64)
    baoa = max_learning_rate(curvature, 970, sghmc.SGHMCConfig(), safety=1.0)
    torch.testing.assert_close(baoa[:2], 40 * 970 / curvature[:2])
    assert float(baoa[2]) == float("inf")
    paper = max_learning_rate(curvature, 970, sghmc.SGHMCConfig(integrator="paper"), safety=0.5)
    torch.testing.assert_close(paper[:2], 0.5 * 38 * 970 / curvature[:2])


def jump(guarded: bool):
    """A Gaussian whose stiffest curvature (σ shrank sixfold: ×36) has outgrown the mass; γ jumps from 1e-5 to 1e-3.

    Returns the state after 4000 steps, the step at which the detector first spoke, and the step of the first NaN.
    """
    K, N, config = 400, 970.0, sghmc.SGHMCConfig()
    curvature = torch.tensor([1e3, 1e6, 36e6], dtype=torch.float64)
    mass = torch.tensor([0.01, 0.3, 0.6], dtype=torch.float64)  # κ = 0.1, 3.4 and 62 at γ = 1e-3; the limit is 40
    key = NoiseKey(3, range(K))
    start = torch.zeros(K, 3, dtype=torch.float64)
    state = sghmc.init(start, key, mass=mass)
    gamma = torch.full((K,), 1e-3, dtype=torch.float64)
    if guarded:
        product = finite_difference_product(lambda x: curvature * x, state.position)
        top = largest_curvature(product, state.mass.mass)
        gamma = torch.minimum(gamma, max_learning_rate(top.value, N, config))
    warned = failed = None
    kinetic, potential = [], []
    for t in range(4000):
        gradient = curvature * state.position
        kinetic.append(diagnostics.kinetic_temperature(state.momentum, config))
        potential.append(0.5 * (curvature * state.position.square()).sum(1))
        history = torch.stack(kinetic[-20:]), torch.stack(potential[-20:])
        # three parameters only: chance alone reaches 1 + 10√(2/3) once in 1e6 draws, so judge with a wide margin
        alarm = diverging(*history, parameters=3, kinetic_factor=30, potential_rise=30)
        if warned is None and bool(alarm.any()):
            warned = t
        if failed is None and not bool(state.position.isfinite().all()):
            failed = t
            break
        sghmc.step(
            state, gradient, key, learning_rate=gamma, data_size=N, config=config, adapt_mass=False, inplace=True
        )
    return state, curvature, warned, failed


def test_guard_off_the_jump_diverges_and_is_seen_long_before_nan():
    _, _, warned, failed = jump(guarded=False)
    assert failed is not None
    assert failed < 1000
    assert warned is not None
    assert warned < failed / 3


def test_guard_on_the_jump_is_stable_and_has_the_right_law():
    state, curvature, warned, failed = jump(guarded=True)
    assert warned is None
    assert failed is None
    for column in (state.position * curvature.sqrt()).T.numpy():
        assert stats.kstest(column, "norm").pvalue > 1e-4


def test_detector_at_the_scale_of_a_network():
    P, H, K = 18_000, 20, 5
    kinetic = 1 + (2 / P) ** 0.5 * torch.randn(H, K, generator=torch.Generator().manual_seed(0))
    potential = P / 2 + (P / 2) ** 0.5 * torch.randn(H, K, generator=torch.Generator().manual_seed(1))
    assert diverging(kinetic, potential, P).tolist() == [False] * K
    hot, risen = kinetic.clone(), potential.clone()
    hot[-1, 1] = 2.1
    risen[-1, 2] += 2.5 * P
    hot[-1, 3] = torch.nan
    risen[-1, 4] = torch.inf
    assert diverging(hot, risen, P).tolist() == [False, True, True, True, True]


def test_detector_without_noise_judges_the_potential_only():
    kinetic, potential = torch.full((3, 1), 50.0), torch.zeros(3, 1)
    assert not bool(diverging(kinetic, potential, 100, temperature=0.0))
    potential[-1] = 1e3
    assert bool(diverging(kinetic, potential, 100, temperature=0.0))


def test_detector_allows_for_the_heat_of_minibatches():
    kinetic, potential = torch.full((3, 3), 0.05), torch.zeros(3, 3)
    heating = torch.tensor([0.0, 0.015, 0.025])
    found = diverging(kinetic, potential, 10_000, temperature=0.01, heating=heating)
    assert found.tolist() == [True, True, False], "above 0.02, 0.04 and 0.06"
