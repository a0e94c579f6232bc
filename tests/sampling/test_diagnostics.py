"""Temperatures by group; R-hat and ESS against an independent implementation; drifts of chains with a known law."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from equibayes.errors import InputError
from equibayes.sampling.chain import sample
from equibayes.sampling.diagnostics import (
    _student_quantile,
    configurational_temperature,
    convergence,
    drift,
    growth,
    kinetic_temperature,
    largest_slope_deviation,
    temperature_rise_bound,
)
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule
from equibayes.sampling.sghmc import SGHMCConfig

GROUPS = {"embedding": slice(0, 2), "head": slice(2, 6)}


def test_kinetic_temperature_by_chain_and_group():
    r = torch.tensor([[1.0, 1, 2, 2, 2, 2], [0, 0, 1, 1, 1, 1]])
    torch.testing.assert_close(kinetic_temperature(r, SGHMCConfig()), torch.tensor([3.0, 4 / 6]))
    groups = kinetic_temperature(r, SGHMCConfig(), GROUPS)
    assert groups["embedding"].tolist() == [1.0, 0.0]
    assert groups["head"].tolist() == [4.0, 1.0]


def test_the_thermometer_of_the_paper_integrator_is_corrected():
    """Its r has variance T/(1−α/2) at small steps (shown in test_affine_map)."""
    r = torch.full((1, 10), (1 / 0.95) ** 0.5, dtype=torch.float64)
    assert float(kinetic_temperature(r, SGHMCConfig(integrator="paper"))) == pytest.approx(1.0)


def test_configurational_temperature():
    theta, gradient = torch.tensor([[1.0, 2, 3, 4, 5, 6]]), torch.tensor([[1.0, 1, 1, 1, 0, 0]])
    assert float(configurational_temperature(theta, gradient)) == pytest.approx(10 / 6)
    groups = configurational_temperature(theta, gradient, GROUPS, center=torch.ones(6))
    assert float(groups["embedding"]) == pytest.approx(0.5)
    assert float(groups["head"]) == pytest.approx(5 / 4)


def test_temperature_rise_bound_with_a_rate_for_each_chain():
    bound = temperature_rise_bound(torch.ones(2, 3), torch.tensor([1e-3, 1e-2]), 100)
    torch.testing.assert_close(bound, torch.tensor([[0.05], [0.5]]).expand(2, 3))


def autoregressive(chains, draws, phi, seed, offset=0.0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((chains, draws))
    for t in range(1, draws):
        x[:, t] = phi * x[:, t - 1] + np.sqrt(1 - phi**2) * x[:, t]
    x[0] += offset
    return x


@pytest.mark.parametrize(("chains", "draws"), [(2, 20), (4, 37), (4, 100), (3, 1000), (4, 101)])
@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.8, 0.95])
@pytest.mark.parametrize("offset", [0.0, 2.0])
def test_agreement_with_arviz(chains, draws, phi, offset):
    """R-hat to rounding.  ESS within 5 %: the pair before the cut is made monotone here and not there."""
    array_stats = pytest.importorskip("arviz_stats.base").array_stats
    x = autoregressive(chains, draws, phi, seed=draws, offset=offset)
    ours = convergence(x)
    assert ours.reason is None
    assert float(ours.r_hat) == pytest.approx(float(array_stats.rhat(x, chain_axis=0, draw_axis=1)), rel=1e-10)
    theirs = float(array_stats.ess(x, chain_axis=0, draw_axis=1, method="bulk"))
    assert float(ours.ess) == pytest.approx(theirs, rel=0.05)


def test_effective_sample_size_of_a_known_process():
    """AR(1): S(1−φ)/(1+φ), within 10 % for 40 000 draws."""
    x = autoregressive(4, 10_000, 0.6, seed=0)
    assert float(convergence(x).ess) == pytest.approx(40_000 * 0.4 / 1.6, rel=0.1)
    assert float(convergence(x).r_hat) == pytest.approx(1, abs=0.005)


def test_disagreement_in_location_and_in_scale_is_seen():
    x = autoregressive(4, 200, 0.0, seed=1)
    shifted, wider = x.copy(), x.copy()
    shifted[0] += 3
    wider[0] *= 10
    assert float(convergence(x).r_hat) < 1.02
    assert float(convergence(shifted).r_hat) > 1.3
    assert float(convergence(wider).r_hat) > 1.2


def test_many_quantities_keep_their_shape():
    x = np.random.default_rng(0).standard_normal((3, 20, 2, 5))
    result = convergence(x)
    assert result.r_hat.shape == result.ess.shape == (2, 5)
    assert result.r_hat[1, 3] == pytest.approx(float(convergence(x[:, :, 1, 3]).r_hat))


def test_undefined_values_come_with_a_reason():
    few = convergence(np.random.default_rng(0).standard_normal((8, 19, 2)))
    assert np.isnan(few.r_hat).all()
    assert np.isnan(few.ess).all()
    assert few.reason == "19 draws per chain are too few for R-hat and ESS: at least 20 are needed"
    broken = convergence(np.stack([np.ones((2, 20)), np.random.default_rng(0).standard_normal((2, 20))], axis=-1))
    assert np.isnan(broken.r_hat).tolist() == [True, False]
    assert "the same in every draw" in broken.reason
    with pytest.raises(InputError, match="chains, draws"):
        convergence(np.zeros(5))


def test_r_hat_of_the_fewest_draws_is_near_one():
    """The largest of 16 quantities, independent draws.  With 8 draws it would be 1.2, with 4 even 1.6."""
    rng = np.random.default_rng(0)
    largest = {n: np.median(convergence(rng.normal(size=(4, n, 20, 16))).r_hat.max(-1)) for n in (20, 100)}
    assert largest[20] < 1.1
    assert largest[100] < 1.03


def test_student_quantile():
    stats = pytest.importorskip("scipy.stats")
    for degrees in (2, 3, 7, 50):
        for probability in (0.975, 0.9995):
            expected = float(stats.t.ppf(probability, degrees))
            assert _student_quantile(probability, degrees) == pytest.approx(expected, rel=1e-4)


def gaussian_chains(runs: int, chains: int, ends: int, ρ: float, parameters: int = 200) -> np.ndarray:
    """θ [runs, K, C, P] at the ends of cycles, N(0, I), with the correlation ρ from one end to the next."""
    rng = np.random.default_rng(int(100 * ρ) + ends)
    theta = rng.standard_normal((runs, chains, ends, parameters), dtype=np.float32)
    for c in range(1, ends):
        theta[:, :, c] = ρ * theta[:, :, c - 1] + np.sqrt(1 - ρ**2) * theta[:, :, c]
    return theta


@pytest.mark.parametrize("ends", [3, 8])
@pytest.mark.parametrize("ρ", [0.0, 0.5, 0.9])
def test_chains_in_equilibrium_are_seldom_said_to_move(ρ, ends):
    """A Gaussian target, u = θ²/2.  At the level 0.05, so that few runs tell: at most 5 % of 1000 runs (and 2 %, three
    standard deviations), whatever the correlation.  The sizes of the weights and of the change of predictions as well.
    """
    theta, level, share = gaussian_chains(1000, 4, ends, ρ), 0.05, 0.07
    squares = np.square(theta).sum(-1)
    assert np.mean([drift(u / 2, np.sqrt(200 / 2), level).moving for u in squares]) < share
    assert np.mean([drift(q / 200, 2 * np.sqrt(q.mean() / 200 / 200), level).moving for q in squares]) < share
    assert np.mean([growth(f, level).moving for f in theta[..., :16]]) < share


def test_false_alarms_are_as_rare_as_stated_where_the_bound_is_sharp():
    """The drift of u over two of three uncorrelated ends: not far below the level, so that the test has power."""
    squares = np.square(gaussian_chains(2000, 4, 3, 0.0)).sum(-1) / 2
    found = [drift(u, 10.0, 0.05) for u in squares]
    assert np.mean([each.moving for each in found]) > 0.02
    assert np.std([each.slope for each in found]) == pytest.approx(found[0].deviation, rel=0.03)
    assert largest_slope_deviation(3) == pytest.approx(np.sqrt(0.5))


def test_the_sampler_itself_is_in_equilibrium():
    """Fifty times four chains on a Gaussian with curvatures from 1 to 10, at the ends of five cycles: u scatters by
    √(P/2), and at most 5 % of the fours (and 9 %, three standard deviations) are said to move."""
    stiffness = torch.linspace(1, 10, 32, dtype=torch.float64)

    def density(position, indices, step, plan):
        return SimpleNamespace(gradient=position * stiffness)

    schedule = Schedule(BurnIn(300, 0.1, 0.1), Cycles("rise_and_fall", 5, 50, 0.1))
    draws = sample(density, torch.zeros(200, 32, dtype=torch.float64), schedule, seed=3)
    u = 0.5 * (draws.square() * stiffness).sum(-1).T.numpy()
    assert u.std() == pytest.approx(4, rel=0.1)
    assert np.mean([drift(four, 4.0, 0.05).moving for four in u.reshape(50, 4, -1)]) < 0.14


def test_drifts_are_found():
    """A chain that descends by its scatter of 10 per cycle, one of four that does, and one from a cold start."""
    equilibrium = np.square(gaussian_chains(1, 4, 6, 0.3)).sum(-1)[0] / 2
    down, rise = -10.0 * np.arange(6), 100 * (1 - np.exp(-np.arange(6) / 2))
    assert not drift(equilibrium, 10).moving
    assert drift(equilibrium + down, 10).moving
    assert drift(equilibrium + down, 10).mean == pytest.approx(-10, abs=3)
    assert drift(equilibrium + down * [[0], [0], [2], [0]], 10).moving
    assert drift(equilibrium + rise - 100, 10).moving
    predictions = gaussian_chains(1, 8, 6, 0.0)[0, ..., :16]
    assert not growth(predictions).moving
    wider = growth(predictions * np.exp(0.7 * np.arange(6))[:, None])
    assert wider.moving
    assert wider.slope == pytest.approx(0.7, abs=0.2)
    assert np.isnan(growth(predictions[:2]).slope), "two chains give no error"
    assert np.isnan(growth(np.ones((4, 5, 3))).slope), "nothing changes"


def test_a_stiff_direction_spoils_the_configurational_temperature_of_one_state():
    """The exact gradient at independent draws; λ = 1e8 about μ = 1 in one of 1000 directions: √Σ(2 + λμ²)/d = 10."""
    rng = torch.Generator().manual_seed(0)
    stiffness, mean = torch.ones(1000, dtype=torch.float64), torch.zeros(1000, dtype=torch.float64)
    stiffness[0], mean[0] = 1e8, 1.0
    theta = mean + torch.randn(4000, 1000, generator=rng, dtype=torch.float64) / stiffness.sqrt()
    gradient = stiffness * (theta - mean)
    assert float(configurational_temperature(theta, gradient).std()) == pytest.approx(10, rel=0.05)
    centred = configurational_temperature(theta, gradient, {"all": slice(0, 1000)}, center=mean)["all"]
    assert float(centred.std()) == pytest.approx(np.sqrt(2 / 1000), rel=0.05)
