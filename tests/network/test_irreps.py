"""The plan of the layers, and that what was pruned could not reach the energy."""

from dataclasses import replace

import pytest
import torch

from equibayes.network.config import preset
from equibayes.network.irreps import SCALAR, Irrep, plan_layers
from equibayes.network.nequip import NequIP
from equibayes.network.pruning import prune_weights
from tests.models import full_config, graph
from tests.samples import ethanol, silicon

CONFIGS = [
    preset("tiny", l_max=l_max, parity=parity, num_layers=layers, num_features=[5, 4, 3, 2][: l_max + 1])
    for l_max, parity, layers in [(0, True, 2), (1, True, 2), (1, False, 3), (2, True, 3), (2, False, 2), (3, True, 4)]
]
IDS = [f"l{c.l_max}-{'parity' if c.parity else 'plain'}-{c.num_layers}" for c in CONFIGS]


def number_of_paths(config, **options):
    return sum(len(layer.paths) for layer in plan_layers(config, **options))


def test_numbers_of_paths_in_the_papers_network():
    assert number_of_paths(preset("paper"), prune=False) == 78
    assert number_of_paths(preset("paper")) == 61


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
class TestPlan:
    def test_unpruned_paths_are_those_of_e3nn(self, config):
        """The instructions that NequIP would build: sources × harmonics × targets that exist and whose parity fits."""
        o3 = pytest.importorskip("e3nn.o3")
        for layer in plan_layers(config, prune=False):
            expected = {
                (source, edge, target)
                for source in layer.inputs
                for edge in range(config.l_max + 1)
                for target in layer.outputs
                if o3.Irrep(str(target)) in o3.Irrep(str(source)) * o3.Irrep(edge, (-1) ** edge)
            }
            assert set(layer.paths) == expected
            assert len(layer.paths) == len(expected)

    def test_layers_fit_together(self, config):
        for options in ({}, {"prune": False}):
            layers = plan_layers(config, **options)
            assert layers[0].inputs == {SCALAR: config.embedding_channels}
            assert layers[-1].outputs == {SCALAR: config.channels[0]}
            assert layers[0].self_connection == (), "isolated atoms must have energy 0"
            for one, following in zip(layers, layers[1:]):
                assert one.outputs == following.inputs

    def test_every_remaining_path_reaches_the_energy(self, config):
        layers = plan_layers(config)
        for one, following in zip(layers, layers[1:]):
            read = set(following.sources) | set(following.self_connection)
            assert {path.target for path in one.paths} == set(one.outputs) <= read

    def test_pruned_network_is_the_same_function(self, config):
        config = full_config(config)
        full, pruned = NequIP(config, prune=False), NequIP(config)
        flat = full.layout.start(2, 0, torch.float64)
        flat += 0.1 * torch.randn(flat.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        narrow = prune_weights(full, pruned, flat)
        assert narrow.shape == (2, pruned.layout.size)
        for structure in (ethanol(), silicon()):
            atoms = graph(structure)
            expected = full(full.layout.forward_weights(flat), atoms)
            result = pruned(pruned.layout.forward_weights(narrow), atoms)
            for name in ("energy", "forces", "virial", "features"):
                torch.testing.assert_close(getattr(result, name), getattr(expected, name), atol=1e-12, rtol=1e-12)

    def test_gradients_agree_and_vanish_on_pruned_weights(self, config):
        """∂/∂θ of a function of energy and forces: equal on what remains, exactly 0 on what was pruned."""
        config = full_config(config)
        full, pruned = NequIP(config, prune=False), NequIP(config)
        flat = full.layout.start(1, 3, torch.float64).requires_grad_()
        narrow = prune_weights(full, pruned, flat.detach()).requires_grad_()

        def gradient(network, weights):
            output = network(network.layout.forward_weights(weights), graph(ethanol()), differentiable=True)
            (result,) = torch.autograd.grad(output.energy.sum() + (output.forces**3).sum(), weights)
            return result

        of_full, of_pruned = gradient(full, flat), gradient(pruned, narrow)
        torch.testing.assert_close(prune_weights(full, pruned, of_full), of_pruned, atol=1e-12, rtol=1e-10)
        # which entries of the full buffer remain: mark them by their position
        position = torch.arange(1, full.layout.size + 1, dtype=torch.float64)[None]
        kept = prune_weights(full, pruned, position)[0].long() - 1
        rest = torch.ones(full.layout.size, dtype=torch.bool).index_fill(0, kept, False)
        assert int(rest.sum()) == full.layout.size - pruned.layout.size
        assert torch.count_nonzero(of_full[0, rest]) == 0


def test_pruning_saves_weights():
    """17 of 78 paths of the paper's network, and the channels that only they fed."""
    config = full_config(preset("paper"))
    assert NequIP(config).layout.size < 0.9 * NequIP(config, prune=False).layout.size


def test_names():
    assert str(Irrep(2, -1)) == "2o"
    assert str(SCALAR) == "0e"
    assert Irrep(3, 1).dim == 7


def test_embedding_of_another_width():
    config = replace(preset("tiny"), type_embed_num_features=7)
    assert plan_layers(config)[0].inputs == {SCALAR: 7}
