"""The stress in the likelihood: its density, in every orientation, and what must not change without it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from equibayes.bayes.likelihood import STRESS_COMPONENTS, log_likelihood, squared_errors
from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import Flat
from equibayes.data import Structure
from equibayes.data.resident import ResidentData
from equibayes.network.config import preset
from equibayes.network.scales import fit_scales, virial_scale
from tests.models import full_config, graph, random_weights, small_model
from tests.periodic import repeat
from tests.physics import random_rotation
from tests.samples import SPECIES_OF, salt, silicon, slab, water


def labelled(structure: Structure, seed: int, stress: bool = True) -> Structure:
    rng = np.random.default_rng(seed)
    label = rng.normal(size=(3, 3)) * 0.05
    forces = rng.normal(size=(len(structure), 3))
    return replace(structure, energy=float(rng.normal()), forces=forces, stress=(label + label.T) if stress else None)


FRAMES = [
    labelled(silicon(), 0),
    labelled(water(), 1, stress=False),
    labelled(salt(), 2, stress=False),
    labelled(salt(1), 3),
]


def resident(frames=FRAMES, stress=True):
    options = {"r_max": 4.0, "species_of": SPECIES_OF, "reference": [0.0] * len(frames), "dtype": torch.float64}
    return ResidentData(frames, stress=stress, **options)


@pytest.fixture(scope="module")
def learned():
    return small_model(2, stress_head=True)


@pytest.fixture(scope="module")
def frames():
    return resident().batch(torch.tensor([[0, 1, 2, 3]]))


def gradient(function, model, weights, batch):
    flat = weights.clone().requires_grad_()
    output = model(flat, batch[0], differentiable=True)
    return torch.autograd.grad(function(output, *batch).sum(), flat)[0]


def test_equals_scipy(learned, frames):
    """The elements that the density is written for: three on the diagonal, and √2 times those off it."""
    model, weights = learned
    atoms, labels = frames
    output = model(weights, atoms)
    without = log_likelihood(output, atoms, replace(labels, stress=None))
    found = (log_likelihood(output, atoms, labels) - without).numpy()
    factor = np.sqrt(2) * np.ones((3, 3)) - (np.sqrt(2) - 1) * np.eye(3)
    upper = np.triu_indices(3)
    for k in range(2):
        for b, frame in enumerate(FRAMES):
            expected = 0.0
            if frame.stress is not None:
                error = ((frame.stress - output.stress[k, b].numpy()) * factor)[upper]
                expected = norm.logpdf(error, 0, output.sigma_stress[k, b].item()).sum()
            assert found[k, b] == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_density_is_the_same_in_every_orientation(learned):
    model, weights = learned
    matrix = random_rotation(np.random.default_rng(0))
    frame = FRAMES[0]
    turned = replace(
        frame,
        positions=frame.positions @ matrix.T,
        cell=frame.cell @ matrix.T,
        forces=frame.forces @ matrix.T,
        stress=matrix @ frame.stress @ matrix.T,
    )
    for function in (log_likelihood, squared_errors):
        one, two = (
            function(model(weights, data[0]), *data)
            for data in (resident([each]).batch(torch.tensor([[0]])) for each in (frame, turned))
        )
        torch.testing.assert_close(two, one, rtol=1e-10, atol=0)


def test_sigma_of_the_elements_is_that_of_a_tensor_without_direction():
    """The covariance that `STRESS_COMPONENTS` states for the six elements does not change when the tensor is turned."""
    upper = np.triu_indices(3)
    covariance = np.diag(np.array(STRESS_COMPONENTS)[upper] ** 2)
    matrix = random_rotation(np.random.default_rng(1))
    turn = np.zeros((6, 6))
    for column, (i, j) in enumerate(zip(*upper)):
        element = np.zeros((3, 3))
        element[i, j] = element[j, i] = 1.0
        turn[:, column] = (matrix @ element @ matrix.T)[upper]
    np.testing.assert_allclose(turn @ covariance @ turn.T, covariance, atol=1e-14)
    error = np.random.default_rng(2).normal(size=6)
    density = multivariate_normal(np.zeros(6), covariance)
    assert density.logpdf(turn @ error) == pytest.approx(density.logpdf(error), rel=1e-12)


def test_gradient_by_finite_differences(learned, frames):
    """Of the likelihood and of squared errors: the virial is differentiated by every parameter array."""
    model, weights = learned
    weights = weights[:1]
    for function in (log_likelihood, squared_errors):
        exact = gradient(function, model, weights, frames)[0]
        without = gradient(function, model, weights, (frames[0], replace(frames[1], stress=None)))[0]
        assert (exact - without).abs().max() > 1e-3 * exact.abs().max(), "stress must matter, or this shows nothing"
        rng, first, step = np.random.default_rng(0), 0, 1e-5
        for parameter in model.layout.parameters:
            entry = first + int(rng.integers(parameter.size))
            move = torch.zeros_like(weights)
            move[0, entry] = step
            numeric = sum(
                sign * function(model(weights + sign * move, frames[0]), *frames).sum().item() for sign in (1, -1)
            ) / (2 * step)
            assert exact[entry].item() == pytest.approx(numeric, rel=2e-5, abs=2e-5), parameter.name
            first += parameter.size


def test_squared_errors_are_those_of_the_virial_per_atom(learned):
    """Against the errors of the energy per atom: one eV² each, the nine elements averaged."""
    model, weights = learned
    atoms, labels = resident(FRAMES[3:]).batch(torch.tensor([[0]]))
    output = model(weights, atoms)
    found = squared_errors(output, atoms, labels) - squared_errors(output, atoms, replace(labels, stress=None))
    frame = FRAMES[3]
    error = (output.stress[:, 0].numpy() - frame.stress) * frame.volume / len(frame)
    expected = -0.5 * 3 * len(frame) * np.square(error).mean((1, 2))
    np.testing.assert_allclose(found[:, 0].numpy(), expected, rtol=1e-12)


def test_frames_without_stress_neither_count_nor_poison(learned):
    """A NaN label, no volume at all, two periodic directions: gradients are finite, those of the head 0."""
    model, weights = learned
    frames = [FRAMES[1], FRAMES[2], labelled(slab(), 5), FRAMES[0]]
    data = resident(frames)
    assert data.stress.isnan().flatten(1).any(1).tolist() == [True, True, True, False]
    batch = data.batch(torch.tensor([[0, 1, 2]]))
    for function in (log_likelihood, squared_errors):
        found = gradient(function, model, weights, batch)
        assert found.isfinite().all()
        expected = gradient(function, model, weights, (batch[0], replace(batch[1], stress=None)))
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert torch.count_nonzero(found[:, model.layout.groups["stress_head"]]) == 0


def test_a_model_without_the_head_takes_no_notice_of_stress():
    """Same parameters, same bits as ever."""
    model, weights = small_model(1)
    larger = StochasticModel(replace(model.config, stress_head=True))
    assert model.layout.names == larger.layout.names[: len(model.layout.names)]
    assert torch.equal(model.layout.start(1, 3), larger.layout.start(1, 3)[:, : model.layout.size])
    assert model(weights, graph(silicon())).sigma_stress.isnan().all()
    for function in (log_likelihood, squared_errors):
        one = gradient(function, model, weights, resident().batch(torch.tensor([[0, 1]])))
        two = gradient(function, model, weights, resident(stress=False).batch(torch.tensor([[0, 1]])))
        assert torch.equal(one, two)


def test_supercells_agree(learned):
    """1 and 2×2×2 cells: energy and force labels per atom alike; σ of stress and total energy are those of one cell."""
    model, weights = learned
    one, many = (model(weights, graph(each)) for each in (silicon(), repeat(silicon(), (2, 2, 2))))
    options = {"rtol": 1e-9, "atol": 1e-12}
    torch.testing.assert_close(many.energy, 8 * one.energy, **options)
    torch.testing.assert_close(many.forces, one.forces.repeat(1, 8, 1), **options)
    torch.testing.assert_close(many.stress, one.stress, **options)
    torch.testing.assert_close(many.sigma_forces, one.sigma_forces.repeat(1, 8), **options)
    torch.testing.assert_close(many.sigma_stress, one.sigma_stress, **options)
    torch.testing.assert_close(many.sigma_energy, one.sigma_energy, **options)


def test_the_potential_and_weights_of_frames(learned):
    """A frame with weight 2 counts like the frame twice, its stress included."""
    model, weights = learned
    once = [replace(FRAMES[0], weight=2.0), FRAMES[1]]
    twice = [FRAMES[0], FRAMES[0], FRAMES[1]]
    found = Potential(model, resident(once), Flat())(weights, torch.tensor([[0, 1]]))
    expected = Potential(model, resident(twice), Flat())(weights, torch.tensor([[0, 1, 2]]))
    torch.testing.assert_close(found.gradient, expected.gradient, rtol=1e-9, atol=1e-9)


def test_it_is_learned_where_there_are_labels():
    """And starts at the RMS of the labels, as the virial of an atom."""
    assert fit_scales(preset("tiny"), FRAMES).stress_head is True
    assert fit_scales(preset("tiny"), FRAMES[1:3]).stress_head is False
    assert fit_scales(preset("tiny"), [labelled(slab(), 5), FRAMES[1]]).stress_head is False, "it has no volume"
    assert fit_scales(preset("tiny", stress_head=False), FRAMES).stress_head is False
    virial = [frame.stress * frame.volume / len(frame) for frame in (FRAMES[0], FRAMES[3])]
    scale = virial_scale(FRAMES)
    assert scale == pytest.approx(np.sqrt(np.mean(np.square(virial))), rel=1e-12)
    assert virial_scale(FRAMES[1:2]) is None
    model = StochasticModel(replace(full_config(preset("tiny")), stress_head=True), 1.0, 1.0, scale)
    output = model(model.layout.start(1, 0, torch.float64), graph(salt()))
    volume = salt().volume / len(salt())
    assert output.sigma_stress.item() == pytest.approx(scale / volume, rel=1e-10)


def test_outputs_of_frames_together_are_those_of_each_alone(learned, frames):
    model, weights = learned
    together = model(weights, frames[0])
    for b, frame in enumerate(FRAMES):
        alone: ModelOutput = model(weights, graph(frame))
        expected = alone.log_sigma_stress[:, 0]
        torch.testing.assert_close(together.log_sigma_stress[:, b], expected, rtol=1e-12, atol=0, equal_nan=True)


def test_random_weights_reach_the_head(learned):
    """Otherwise the tests above would compare constants."""
    model, _ = learned
    weights = random_weights(model, 1)
    sigma = [model(weights, graph(each)).sigma_stress.item() * each.volume / len(each) for each in (silicon(), salt())]
    assert abs(np.log(sigma[0] / sigma[1])) > 1e-3
