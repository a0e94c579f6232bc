"""K weight sets in one pass are K passes; batching, padding and precision change nothing that they should not."""

from dataclasses import fields

import pytest
import torch

from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.data.graph import concatenate, pad_graph
from equibayes.network.config import preset
from tests.models import full_config, graph, random_weights, small_model, stack_chains
from tests.samples import ethanol, one_atom_cell, salt, silicon, water

CHAINS = 3
CHANGES = [{}, {"l_max": 2, "parity": False}, {"l_max": 3, "num_layers": 3, "num_features": [4, 3, 2, 2]}]
IDS = ["l1-parity", "l2", "l3-parity"]


def assert_output_equal(actual: ModelOutput, expected: ModelOutput, tolerance: float = 1e-12, k: int = 0) -> None:
    """For chain k; invariants are those of the first chain alone."""
    for field in fields(ModelOutput):
        if (k and field.name == "invariants") or getattr(expected, field.name) is None:
            continue
        a, b = getattr(actual, field.name), getattr(expected, field.name)
        torch.testing.assert_close(
            a, b, atol=tolerance, rtol=tolerance, equal_nan=True, msg=lambda m, f=field: f"{f.name}: {m}"
        )


@pytest.mark.parametrize("changes", CHANGES, ids=IDS)
class TestOnePass:
    def test_shared_graph(self, changes):
        """G = 1: all chains look at the same atoms."""
        model, weights = small_model(CHAINS, **changes)
        atoms = concatenate([graph(ethanol()), graph(silicon())])
        together = model(weights, atoms)
        assert together.energy.shape == (CHAINS, 2)
        assert together.energy.std(0).min() > 1e-3, "chains must differ, or this shows nothing"
        for k in range(CHAINS):
            assert_output_equal(chain(together, k), model(weights[k : k + 1], atoms), k=k)

    def test_graph_of_each_chain(self, changes):
        """G = K: every chain has its own minibatch, here of different molecules and sizes."""
        model, weights = small_model(CHAINS, **changes)
        structures = [ethanol(1), water(2), silicon(3)]
        graphs = [graph(structure) for structure in structures]
        atoms, slots = (max(g.sender.shape[axis] for g in graphs) for axis in (1, 2))
        together = model(weights, stack_chains([pad_graph(g, atoms, slots) for g in graphs]))
        for k, (structure, apart) in enumerate(zip(structures, graphs)):
            assert_output_equal(chain(together, k, len(structure)), model(weights[k : k + 1], apart), k=k)

    def test_gradients(self, changes):
        """The gradient of one chain does not know of the others."""
        model, weights = small_model(CHAINS, **changes)
        atoms = graph(ethanol())
        together = gradient(model, weights, atoms)
        for k in range(CHAINS):
            apart = gradient(model, weights[k : k + 1], atoms)
            torch.testing.assert_close(together[k : k + 1], apart, atol=1e-11, rtol=1e-11)


def chain(output: ModelOutput, k: int, atoms: int | None = None) -> ModelOutput:
    """Chain k of an output, cut to its first atoms."""
    per_atom = ("forces", "log_sigma_forces", "features", "invariants", "couplings")
    there = {f.name: x for f in fields(ModelOutput) if (x := getattr(output, f.name)) is not None}
    pieces = {name: x[k : k + 1] for name, x in there.items()} | {"invariants": output.invariants}
    return ModelOutput(**{name: x[:, :atoms] if name in per_atom else x for name, x in pieces.items()})


def gradient(model, weights, atoms):
    flat = weights.clone().requires_grad_()
    out = model(flat, atoms, differentiable=True)
    total = (out.energy**2).sum() + (out.forces * torch.exp(-out.log_sigma_forces[..., None])).pow(2).sum()
    (result,) = torch.autograd.grad(total + out.log_sigma_energy.sum() + out.stress.nan_to_num().sum(), flat)
    return result


def test_padding_changes_nothing():
    """More slots and more atoms: energies, forces and gradients of the others stay, and nothing becomes NaN."""
    model, weights = small_model(2)
    for structure in (ethanol(), silicon(), one_atom_cell()):
        small = graph(structure)
        atoms, slots = small.sender.shape[1:]
        wide = pad_graph(small, atoms + 3, slots + 5)
        expected, result = model(weights, small), model(weights, wide)
        for k in range(2):
            assert_output_equal(chain(result, k, atoms), chain(expected, k))
        assert torch.isfinite(result.forces).all()
        assert torch.equal(result.forces[:, atoms:], torch.zeros(2, 3, 3, dtype=torch.float64))
        torch.testing.assert_close(
            gradient(model, weights, wide), gradient(model, weights, small), atol=1e-11, rtol=1e-11
        )


def test_padding_cannot_shrink():
    small = graph(ethanol())
    with pytest.raises(ValueError, match="cannot pad"):
        pad_graph(small, 5, 20)


def test_concatenated_graphs_are_separate():
    model, weights = small_model(2)
    structures = [water(), salt(), ethanol(), one_atom_cell()]
    output, first = model(weights, concatenate([graph(s) for s in structures])), 0
    for i, structure in enumerate(structures):
        alone, last = model(weights, graph(structure)), first + len(structure)
        torch.testing.assert_close(output.energy[:, i : i + 1], alone.energy, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(output.forces[:, first:last], alone.forces, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(output.stress[:, i : i + 1], alone.stress, atol=1e-12, rtol=1e-12, equal_nan=True)
        first = last


@pytest.mark.parametrize("name", ["tiny", "small", "medium", "paper"])
def test_float32_is_close_to_float64(name):
    """Relative to the largest value; sums in float32 over about a thousand numbers."""
    model = StochasticModel(full_config(preset(name)))
    weights = random_weights(model, 1)
    for structure in (ethanol(), silicon()):
        exact, rounded = (
            model(weights, graph(structure)),
            model(weights.float(), graph(structure).to(dtype=torch.float32)),
        )
        assert rounded.forces.dtype == torch.float32
        assert rounded.energy.dtype == torch.float64, "energies are summed in float64"
        for field in ("energy", "forces", "features", "log_sigma_forces", "log_sigma_energy"):
            a, b = getattr(rounded, field).double(), getattr(exact, field)
            # atomic energies of the order of 1 eV cancel in the sum; rounding does not
            size = max(b.abs().max().item(), 0.1 if field == "energy" else 0.0)
            assert (a - b).abs().max() <= 1e-5 * size, field
        if structure.pbc.all():
            assert (rounded.stress.double() - exact.stress).abs().max() <= 1e-5 * exact.stress.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_the_same_bits_every_time(dtype):
    model, weights = small_model(2, l_max=2)
    atoms = concatenate([graph(ethanol()), graph(silicon())]).to(dtype=dtype)
    first = gradient(model, weights.to(dtype), atoms)
    for _ in range(3):
        assert torch.equal(gradient(model, weights.to(dtype), atoms), first)


def test_outputs_carry_no_graph_unless_asked():
    model, weights = small_model(1, stress_head=True)
    output = model(weights.requires_grad_(), graph(water()))
    assert not any(x.requires_grad for field in fields(ModelOutput) if (x := getattr(output, field.name)) is not None)
    output = model(weights, graph(water()), differentiable=True)
    # invariants describe atoms to the novelty and are no part of the density; couplings belong to other noise models
    described = {field.name for field in fields(ModelOutput)} - {"invariants", "couplings"}
    assert all(getattr(output, name).requires_grad for name in described)
