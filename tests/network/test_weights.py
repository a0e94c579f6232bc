"""The flat buffer of weights and its named views."""

import pytest
import torch

from equibayes.bayes.model import StochasticModel
from equibayes.network.config import preset
from equibayes.network.weights import Layout, Parameter
from tests.models import full_config


@pytest.fixture(scope="module")
def layout():
    return StochasticModel(full_config(preset("tiny"))).layout


def test_views_share_memory(layout):
    """Writing through a name writes into the vector that the sampler moves."""
    flat = layout.start(3, 0)
    views = layout.views(flat)
    assert all(view.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr() for view in views.values())
    views["readout"][1] = 42.0
    assert int((flat[1] == 42.0).sum()) == views["readout"][1].numel()
    assert not (flat[[0, 2]] == 42.0).any()


def test_names_and_sizes(layout):
    views = layout.views(layout.start(2, 0))
    assert list(views) == layout.names
    assert {"embedding", "bessel", "layer0.radial.0", "layer1.linear_2.0e", "readout"} <= set(views)
    assert {"force_head.weight0", "energy_head.bias2"} <= set(views)
    assert sum(view[0].numel() for view in views.values()) == layout.size
    for parameter in layout.parameters:
        assert views[parameter.name].shape == (2, *parameter.shape)


def test_paper_network_has_a_million_weights():
    """Species matrices in the self-connection, pruned paths: not 8 million."""
    size = StochasticModel(preset("paper", type_names=["H", "C", "O"])).layout.size
    assert 0.9e6 < size < 2.5e6


def test_flatten_inverts_views(layout):
    flat = layout.start(2, 5, torch.float64)
    assert torch.equal(layout.flatten(layout.views(flat)), flat)


def test_forward_weights_are_scaled(layout):
    flat = layout.start(2, 0, torch.float64)
    stored, used = layout.views(flat), layout.forward_weights(flat)
    for p in layout.parameters:
        torch.testing.assert_close(used[p.name], stored[p.name] * p.scale)
    assert {p.name: p.scale for p in layout.parameters}["layer1.linear_1.1o"] == pytest.approx(1 / 2)  # 1/√4 channels


def test_groups_cover_everything_once(layout):
    """Each group is what its name says, and together they are the whole buffer."""
    marks = torch.zeros(layout.size)
    for group, place in layout.groups.items():
        marks[place] += 1
        size = sum(p.size for p in layout.parameters if p.name.split(".")[0] == group)
        assert len(marks[place]) == size
    assert torch.equal(marks, torch.ones(layout.size))
    assert list(layout.groups) == ["embedding", "bessel", "layer0", "layer1", "readout", "force_head", "energy_head"]


class TestStart:
    def test_depends_on_seed_and_chain_alone(self, layout):
        together = layout.start(4, seed=7)
        for chains in (1, 2, 3):
            assert torch.equal(layout.start(chains, seed=7), together[:chains])

    def test_leaves_global_randomness_alone(self, layout):
        torch.manual_seed(0)
        first = layout.start(1, seed=7)
        before = torch.get_rng_state()
        torch.manual_seed(1)
        assert torch.equal(layout.start(1, seed=7), first)
        torch.manual_seed(0)
        assert torch.equal(torch.get_rng_state(), before)

    def test_chains_and_seeds_differ(self, layout):
        drawn = [*layout.start(3, seed=7), *layout.start(3, seed=8)]
        for i, one in enumerate(drawn):
            for other in drawn[:i]:
                assert not torch.equal(one, other)

    def test_normal_and_constant_entries(self, layout):
        views = layout.views(layout.start(2, seed=0, dtype=torch.float64))
        normal = torch.cat([views[p.name].flatten() for p in layout.parameters if p.start == "normal"])
        assert normal.mean().item() == pytest.approx(0, abs=0.1)
        assert normal.std().item() == pytest.approx(1, abs=0.1)
        for p in layout.parameters:
            if p.start != "normal":
                assert torch.equal(views[p.name], torch.full_like(views[p.name], p.start))
        assert torch.equal(views["bessel"], torch.zeros_like(views["bessel"]))

    def test_precision(self, layout):
        assert torch.equal(layout.start(1, 0, torch.float64).float(), layout.start(1, 0, torch.float32))


def test_names_must_be_distinct():
    with pytest.raises(ValueError, match="distinct"):
        Layout([Parameter("a", (1,)), Parameter("a", (2,))])
