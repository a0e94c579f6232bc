"""The two deviation heads: their formula written out by hand, their unit, where they start."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from equibayes.bayes.heads import log_sigma_energy, log_sigma_forces
from equibayes.bayes.model import StochasticModel
from equibayes.data.graph import concatenate, pad_graph
from equibayes.network.config import preset
from equibayes.units import KCAL_PER_MOL
from tests.models import full_config, graph, small_model
from tests.samples import ethanol, silicon, water


def by_hand(stored: dict[str, np.ndarray], name: str, v: np.ndarray) -> np.ndarray:
    """σ of each atom [n] in eV(/Å) from features [n, C]: C → 32 → 16 → 1, silu between, exp at the end, in kcal/mol."""
    for i, width in enumerate((v.shape[1], 32, 16)):
        gain = 1.0 if i == 0 else np.sqrt(2)
        v = v / (1 + np.exp(-v)) if i else v
        v = v @ (stored[f"{name}.weight{i}"] * gain / np.sqrt(width)) + stored[f"{name}.bias{i}"]
    return np.exp(v[:, 0]) * KCAL_PER_MOL


@pytest.fixture(scope="module")
def case():
    """Model, weights [2, P], a batch of three structures, its output."""
    model, weights = small_model(2)
    atoms = concatenate([graph(s) for s in (ethanol(), water(), silicon())])
    return model, weights, atoms, model(weights, atoms)


def test_sigma_forces(case):
    model, weights, _, output = case
    for k in range(2):
        stored = {name: x[k].numpy() for name, x in model.layout.views(weights).items()}
        expected = by_hand(stored, "force_head", output.features[k].numpy())
        assert expected.std() > 1e-4, "atoms must differ, or this shows nothing"
        np.testing.assert_allclose(output.sigma_forces[k].numpy(), expected, rtol=1e-12)


def test_sigma_energy_is_the_mean_over_the_atoms_of_a_structure(case):
    model, weights, _, output = case
    for k in range(2):
        stored = {name: x[k].numpy() for name, x in model.layout.views(weights).items()}
        per_atom = by_hand(stored, "energy_head", output.features[k].numpy())
        expected = [part.mean() for part in np.split(per_atom, [9, 12])]
        np.testing.assert_allclose(output.sigma_energy[k].numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("start_sigma", [0.03, 1.0, 12.5])
def test_start(start_sigma):
    """Before any step both deviations are `start_sigma`, for every atom and structure."""
    model = StochasticModel(full_config(preset("tiny")), start_sigma)
    output = model(model.layout.start(2, 0, torch.float64), concatenate([graph(ethanol()), graph(water())]))
    torch.testing.assert_close(output.sigma_forces, torch.full((2, 12), start_sigma, dtype=torch.float64))
    torch.testing.assert_close(output.sigma_energy, torch.full((2, 2), start_sigma, dtype=torch.float64))


def test_unit_is_kcal_per_mol():
    """All weights 0: exp(0) = 1 kcal/mol and 1 kcal/(mol Å), whatever else."""
    model, weights = small_model(1)
    output = model(torch.zeros_like(weights), graph(water()))
    assert output.sigma_energy.item() == pytest.approx(0.0433641, rel=1e-6)
    assert output.sigma_forces[0, 0].item() == pytest.approx(0.0433641, rel=1e-6)


def test_heads_do_not_touch_the_means(case):
    model, weights, atoms, output = case
    changed = weights.clone()
    views = model.layout.views(changed)
    for name in ("force_head.weight0", "energy_head.bias2"):
        views[name].add_(0.7)
    after = model(changed, atoms)
    assert torch.equal(after.energy, output.energy)
    assert torch.equal(after.forces, output.forces)
    assert not torch.allclose(after.sigma_forces, output.sigma_forces)
    assert not torch.allclose(after.sigma_energy, output.sigma_energy)


def test_extreme_deviations_stay_finite():
    """Kept as ln σ: neither huge nor tiny deviations overflow in float32, forward or backward."""
    model, weights = small_model(1)
    atoms = graph(ethanol()).to(dtype=torch.float32)
    for bias in (-80.0, 80.0):
        flat = weights.float().clone()
        for name in ("force_head.bias2", "energy_head.bias2"):
            model.layout.views(flat)[name].fill_(bias)
        flat.requires_grad_()
        output = model(flat, atoms, differentiable=True)
        total = output.log_sigma_energy.sum() + output.log_sigma_forces.sum()
        (gradient,) = torch.autograd.grad(total, flat)
        assert total.isfinite()
        assert gradient.isfinite().all()


def test_padding_atoms_do_not_count(case):
    model, weights, _, _ = case
    views = model.layout.forward_weights(weights)
    features = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    atoms = graph(water())
    wide = pad_graph(atoms, 5, 2)
    torch.testing.assert_close(
        log_sigma_energy(views, features, wide), log_sigma_energy(views, features[:, :3], atoms), rtol=1e-14, atol=1e-14
    )
    assert log_sigma_forces(views, features).shape == (2, 5)


def test_means_without_scales():
    """per_type_energy_scales multiply energies and forces, never the deviations or features."""
    config = full_config(preset("tiny"))
    model = StochasticModel(config)
    doubled = StochasticModel(
        replace(config, per_type_energy_scales={k: 2 * v for k, v in config.per_type_energy_scales.items()})
    )
    weights = model.layout.start(1, 0, torch.float64) + 0.1
    one, two = model(weights, graph(ethanol())), doubled(weights, graph(ethanol()))
    torch.testing.assert_close(two.energy, 2 * one.energy)
    torch.testing.assert_close(two.forces, 2 * one.forces)
    assert torch.equal(two.log_sigma_energy, one.log_sigma_energy)
    assert torch.equal(two.features, one.features)
