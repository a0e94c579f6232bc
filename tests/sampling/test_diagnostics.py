"""Temperatures by group; R-hat and ESS against an independent implementation."""

import numpy as np
import pytest
import torch

from equibayes.errors import InputError
from equibayes.sampling.diagnostics import (
    configurational_temperature,
    convergence,
    kinetic_temperature,
    temperature_rise_bound,
)
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


@pytest.mark.parametrize(("chains", "draws"), [(2, 4), (4, 5), (4, 37), (4, 100), (3, 1000), (4, 101)])
@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.8, 0.95])
@pytest.mark.parametrize("offset", [0.0, 2.0])
def test_agreement_with_arviz(chains, draws, phi, offset):
    """R-hat to rounding.  ESS within 5 %: the pair before the cut is made monotone here and not there.  Below 10
    draws arviz cannot see any correlation and reports S log10 S whatever the draws are; ours, which uses one pair, is
    not above it."""
    array_stats = pytest.importorskip("arviz_stats.base").array_stats
    x = autoregressive(chains, draws, phi, seed=draws, offset=offset)
    ours = convergence(x)
    assert ours.reason is None
    assert float(ours.r_hat) == pytest.approx(float(array_stats.rhat(x, chain_axis=0, draw_axis=1)), rel=1e-10)
    theirs = float(array_stats.ess(x, chain_axis=0, draw_axis=1, method="bulk"))
    if draws < 10:
        assert 0 < float(ours.ess) <= theirs * (1 + 1e-12)
    else:
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
    few = convergence(np.zeros((8, 3, 2)))
    assert np.isnan(few.r_hat).all()
    assert np.isnan(few.ess).all()
    assert "3 draws per chain are too few" in few.reason
    broken = convergence(np.stack([np.ones((2, 8)), np.random.default_rng(0).standard_normal((2, 8))], axis=-1))
    assert np.isnan(broken.r_hat).tolist() == [True, False]
    assert "the same in every draw" in broken.reason
    with pytest.raises(InputError, match="chains, draws"):
        convergence(np.zeros(5))


def test_r_hat_of_few_draws_says_little():
    """The largest of 16 quantities, independent draws: 1.2 to 1.6 with 4 to 8 draws per chain, near 1 with 100."""
    rng = np.random.default_rng(0)
    largest = {n: np.median(convergence(rng.normal(size=(4, n, 20, 16))).r_hat.max(-1)) for n in (4, 8, 20, 100)}
    assert largest[4] == pytest.approx(1.6, abs=0.1)
    assert largest[8] == pytest.approx(1.2, abs=0.05)
    assert largest[20] < 1.1
    assert largest[100] < 1.03
