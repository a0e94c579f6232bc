"""The stochastic model as a function of its weights."""

import torch

from tests.models import graph, small_model
from tests.samples import silicon, water


def test_outputs_can_be_differentiated_only_on_request() -> None:
    """A prediction keeps no graph of its operations, whatever the weights ask for."""
    model, weights = small_model(1)
    flat = weights.requires_grad_()
    forward = model.layout.forward_weights(flat)
    for output in (model(flat, graph(water())), model.forward(forward, graph(water()))):
        assert not output.energy.requires_grad
        assert not output.forces.requires_grad
        assert not output.log_sigma_energy.requires_grad
    output = model(flat, graph(water()), differentiable=True)
    assert output.forces.requires_grad
    assert output.log_sigma_forces.requires_grad


def test_stress_is_the_virial_over_the_volume_where_there_is_one() -> None:
    model, weights = small_model(2)
    crystal, molecule = graph(silicon()), graph(water())
    with torch.no_grad():
        virial = model.network(model.layout.forward_weights(weights), crystal, differentiable=False).virial
    torch.testing.assert_close(model(weights, crystal).stress, virial / silicon().volume)
    assert bool(model(weights, molecule).stress.isnan().all())
