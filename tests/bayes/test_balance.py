"""Energies and stress that pull at least as much as in a point estimate, in the gradient alone."""

import pytest
import torch

from equibayes.bayes.balance import balanced
from equibayes.bayes.likelihood import gaussian_log_density
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import Flat
from tests.bayes.test_stress import FRAMES, resident
from tests.models import small_model

FOUR = torch.tensor([[0, 1, 2, 3]])
BALANCE = 50.0


@pytest.fixture(scope="module")
def learned():
    return small_model(2, stress_head=True)


@pytest.fixture(scope="module")
def batch():
    return resident().batch(FOUR)


def test_only_the_gradient_changes(learned):
    model, weights = learned
    potential = Potential(model, resident(), Flat())
    plain, pulled = potential(weights, FOUR), potential(weights, FOUR, balance=BALANCE)
    torch.testing.assert_close(pulled.potential, plain.potential)
    assert torch.equal(potential(weights, FOUR, balance=0.0).gradient, plain.gradient)
    assert not torch.allclose(pulled.gradient, plain.gradient)
    gradients = [model.layout.views(each.gradient) for each in (plain, pulled)]
    for name in gradients[0]:
        if "head" in name:  # the last layer of a head is not part of the means
            same = torch.allclose(gradients[0][name], gradients[1][name])
            assert same, name


def test_means_are_pulled_as_by_the_deviations_of_a_point_estimate(learned, batch):
    """In a Gaussian, ∂/∂mean has the larger of 1/σ² and the bound; ∂/∂ln σ stays."""
    model, weights = learned
    (graph, labels), flat = batch, weights.clone().requires_grad_()
    output = model(flat, graph, differentiable=True)
    own = balanced(output, graph, BALANCE)
    torch.testing.assert_close(own.energy, output.energy)
    (found,) = torch.autograd.grad(
        gaussian_log_density(labels.energy - own.energy, output.log_sigma_energy).sum(),
        output.energy,
        retain_graph=True,
    )
    member = graph.structure.unsqueeze(-1) == torch.arange(len(FRAMES))
    forces = (output.sigma_forces.square()[..., None] * member).sum(1).detach()
    precision = torch.maximum(output.sigma_energy.detach() ** -2, 3 * BALANCE / forces)
    assert bool((precision > output.sigma_energy.detach() ** -2).any())
    torch.testing.assert_close(found, (labels.energy - output.energy).detach() * precision)


def test_stress_is_pulled_as_a_virial(learned, batch):
    model, weights = learned
    graph, _ = batch
    output = model(weights.clone().requires_grad_(), graph, differentiable=True)
    own = balanced(output, graph, BALANCE)
    torch.testing.assert_close(own.stress, output.stress, equal_nan=True)
    factors = torch.autograd.grad(own.stress.nan_to_num().sum(), output.stress)[0][..., 0, 0]
    member = graph.structure.unsqueeze(-1) == torch.arange(len(FRAMES))
    forces = (output.sigma_forces.square()[..., None] * member).sum(1).detach()
    expected = BALANCE * (graph.volume * output.sigma_stress.detach()) ** 2 / (3 * forces)
    inside = expected.isfinite()
    torch.testing.assert_close(factors[inside], expected[inside].clamp(min=1).to(factors))
