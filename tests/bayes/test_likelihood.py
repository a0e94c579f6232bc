"""The Gaussian likelihood against scipy, and its gradient against finite differences."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm

from equibayes.bayes.likelihood import gaussian_log_density, log_likelihood
from equibayes.data import Structure
from equibayes.data.resident import ResidentData
from tests.models import small_model
from tests.samples import SPECIES_OF, ethanol, silicon, water


def labelled(structure: Structure, seed: int, energy: float | None) -> Structure:
    return replace(structure, energy=energy, forces=np.random.default_rng(seed).normal(size=(len(structure), 3)))


STRUCTURES = [
    labelled(ethanol(), 0, -3.2),
    labelled(water(), 1, None),
    labelled(silicon(), 2, 5.5),
    labelled(water(3), 3, 0.25),
]
REFERENCE = [0.5, 1.0, -2.0, 0.0]


def resident(dtype=torch.float64):
    return ResidentData(STRUCTURES, r_max=4.0, species_of=SPECIES_OF, reference=REFERENCE, dtype=dtype)


def by_scipy(model, weights, k, frame):
    """ln p of one structure: its energy, where known, plus 3n force components, all added up."""
    structure = STRUCTURES[frame]
    graph, _ = ResidentData([structure], r_max=4.0, species_of=SPECIES_OF, reference=[0.0], dtype=torch.float64).batch(
        torch.tensor([[0]])
    )
    output = model(weights[k : k + 1], graph)
    total = 0.0
    if structure.energy is not None:
        mean, sigma = output.energy.item(), output.sigma_energy.item()
        total += norm.logpdf(structure.energy - REFERENCE[frame], mean, sigma)
    mean, sigma = output.forces[0].numpy(), output.sigma_forces[0].numpy()[:, None]
    return total + norm.logpdf(structure.forces, mean, sigma).sum()


@pytest.mark.parametrize(
    "frames", [[[0, 1, 2, 3]], [[0, 2], [1, 3]], [[3, 3], [1, 0]]], ids=["shared", "own", "repeated"]
)
def test_equals_scipy(frames):
    """Batches of mixed sizes, shared by the chains or one for each, with a missing energy in them."""
    model, weights = small_model(2)
    graph, labels = resident().batch(torch.tensor(frames))
    result = log_likelihood(model(weights, graph), graph, labels)
    assert result.dtype == torch.float64
    for k in range(2):
        row = frames[k % len(frames)]
        expected = [by_scipy(model, weights, k, frame) for frame in row]
        np.testing.assert_allclose(result[k].numpy(), expected, rtol=1e-11)


def test_missing_energy_leaves_finite_gradients():
    """A NaN label must neither count nor poison: the gradient is that of the forces alone."""
    model, weights = small_model(1)
    flat = weights.requires_grad_()
    graph, labels = resident().batch(torch.tensor([[1]]))
    assert labels.energy.isnan().all()
    total = log_likelihood(model(flat, graph, differentiable=True), graph, labels).sum()
    (gradient,) = torch.autograd.grad(total, flat)
    assert gradient.isfinite().all()
    of_energy_head = model.layout.views(gradient)["energy_head.weight2"]
    assert torch.count_nonzero(of_energy_head) == 0
    assert torch.count_nonzero(model.layout.views(gradient)["force_head.weight2"]) > 0


@pytest.mark.parametrize("changes", [{}, {"l_max": 2, "parity": False, "num_layers": 3}], ids=["tiny", "l2"])
def test_gradient_by_finite_differences(changes):
    """∂ ln p / ∂θ for some entries of every parameter array: forces, energies and deviations are all differentiated."""
    model, weights = small_model(1, **changes)
    graph, labels = resident().batch(torch.tensor([[0, 1, 2]]))

    def value(flat):
        return log_likelihood(model(flat, graph, differentiable=True), graph, labels).sum()

    flat = weights.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(flat), flat)
    rng, first, step = np.random.default_rng(0), 0, 1e-5
    for parameter in model.layout.parameters:
        for entry in rng.choice(parameter.size, size=min(2, parameter.size), replace=False):
            move = torch.zeros_like(weights)
            move[0, first + entry] = step
            numeric = (value(weights + move) - value(weights - move)).item() / (2 * step)
            exact = gradient[0, first + entry].item()
            assert exact == pytest.approx(numeric, rel=1e-5, abs=1e-5), parameter.name
        first += parameter.size
    assert first == model.layout.size


def test_float32_likelihood_is_close():
    model, weights = small_model(2)
    values = []
    for dtype in (torch.float64, torch.float32):
        graph, labels = resident(dtype).batch(torch.tensor([[0, 1, 2, 3]]))
        values.append(log_likelihood(model(weights.to(dtype), graph), graph, labels))
    torch.testing.assert_close(values[1], values[0], rtol=2e-5, atol=0)


def test_density_by_hand():
    """A deviation of 2 and an error of 3: -9/8 - ln 2 - ln(2π)/2."""
    result = gaussian_log_density(torch.tensor(3.0).double(), torch.tensor(np.log(2.0)))
    assert result.item() == pytest.approx(-9 / 8 - np.log(2) - np.log(2 * np.pi) / 2, rel=1e-12)
