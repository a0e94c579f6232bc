"""Priors: normalised densities, gradients by autograd, widths by group."""

import pytest
import torch

from equibayes.bayes.prior import CentredNormal, StandardNormal, group_widths
from equibayes.errors import InputError

THETA = torch.linspace(-2, 3, 12, dtype=torch.float64).reshape(2, 6)


def autograd(prior, theta):
    theta = theta.clone().requires_grad_()
    return torch.autograd.grad(prior.neg_log_density(theta).sum(), theta)[0]


def test_standard_normal():
    prior = StandardNormal()
    expected = -torch.distributions.Normal(0.0, 1.0).log_prob(THETA).sum(1)
    torch.testing.assert_close(prior.neg_log_density(THETA), expected)
    torch.testing.assert_close(prior.gradient(THETA), autograd(prior, THETA))
    assert prior.gradient(THETA).data_ptr() != THETA.data_ptr()  # a caller may add to it


@pytest.mark.parametrize("per_chain", [False, True])
@pytest.mark.parametrize("scalar", [False, True])
def test_centred_normal(per_chain, scalar):
    center = torch.randn(2 if per_chain else 1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    center = center if per_chain else center[0]
    width = torch.tensor(0.3, dtype=torch.float64) if scalar else torch.linspace(0.1, 2, 6, dtype=torch.float64)
    prior = CentredNormal(center, width)
    expected = -torch.distributions.Normal(center, width).log_prob(THETA).sum(1)
    torch.testing.assert_close(prior.neg_log_density(THETA), expected)
    torch.testing.assert_close(prior.gradient(THETA), autograd(prior, THETA))


def test_centred_at_zero_with_width_one_is_standard():
    prior = CentredNormal(torch.zeros(6, dtype=torch.float64), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(prior.neg_log_density(THETA), StandardNormal().neg_log_density(THETA))


def test_widths_by_group():
    groups = {"embedding": slice(0, 2), "radial": slice(2, 5), "head": slice(5, 6)}
    widths = group_widths(groups, {"radial": 0.1, "head": 3.0}, 6, default=0.5)
    assert widths.tolist() == [0.5, 0.5, 0.1, 0.1, 0.1, 3.0]
    with pytest.raises(InputError, match=r"'raidal'.*embedding, radial, head"):
        group_widths(groups, {"raidal": 0.1}, 6)


@pytest.mark.parametrize(
    ("center", "width", "message"),
    [
        (torch.zeros(3), torch.tensor([1.0, 0.0, 1.0]), "positive"),
        (torch.zeros(3), torch.tensor([1.0, torch.inf, 1.0]), "finite"),
        (torch.tensor([0.0, torch.nan, 0.0]), torch.ones(3), "centre"),
        (torch.zeros(3), torch.ones(4), "4 widths for 3 parameters"),
    ],
)
def test_senseless_priors_are_refused(center, width, message):
    with pytest.raises(InputError, match=message):
        CentredNormal(center, width)
