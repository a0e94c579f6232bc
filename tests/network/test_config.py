"""Settings of the network: presets, checks, and what is taken from the data."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from ase.build import bulk

from equibayes.bayes.model import StochasticModel
from equibayes.data.graph import graph_of
from equibayes.errors import InputError
from equibayes.network.config import PRESETS, NetworkConfig, preset
from equibayes.network.scales import fit_scales, force_scale, mean_neighbors
from tests.models import random_weights
from tests.samples import ethanol, rattled, salt, water


def labelled(structure, seed):
    return replace(structure, forces=np.random.default_rng(seed).normal(size=(len(structure), 3)))


def test_paper_preset_is_the_papers_network():
    """Appendix A.1: 5 blocks, 64 channels, l ≤ 2 with both parities, cutoff 4 Å, 8 Bessel functions, radial net
    64-64."""
    config = preset("paper")
    assert (config.num_layers, config.channels, config.l_max, config.parity) == (5, [64, 64, 64], 2, True)
    assert (config.r_max, config.num_bessels, config.radial_mlp_depth, config.radial_mlp_width) == (4.0, 8, 2, 64)


def test_presets():
    assert list(PRESETS) == ["paper", "medium", "small", "tiny"]
    assert preset("tiny", l_max=2).l_max == 2
    with pytest.raises(InputError, match="choose one of paper, medium, small, tiny"):
        preset("huge")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"l_max": 4}, "l_max=4: must be between 0 and 3"),
        ({"l_max": -1}, "l_max=-1"),
        ({"r_max": 0.0}, "r_max=0.0"),
        ({"r_max": -3.0}, "r_max=-3.0"),
        ({"num_layers": 0}, "num_layers"),
        ({"radial_mlp_depth": 0}, "radial_mlp_depth"),
        ({"polynomial_cutoff_p": 1}, "polynomial_cutoff_p=1"),
        ({"xplor_on": 4.0}, "xplor_on=4.0: must be below network.r_max=4.0"),
        ({"self_connection": "none"}, "self_connection=none"),
        ({"num_features": [4, 4]}, "needs l_max \\+ 1 = 3 numbers"),
        ({"num_features": 0}, "must be at least 1"),
        ({"model_dtype": "float16"}, "must be one of float32, float64"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_settings(changes, message):
    with pytest.raises(InputError, match=message) as caught:
        NetworkConfig(**changes)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("network")


def test_every_setting_is_documented():
    assert all(field.metadata["help"] for field in fields(NetworkConfig))


def test_round_trip():
    config = preset("tiny", num_features=[4, 3], type_names=["H", "O"], per_type_energy_shifts={"H": 1.0, "O": 2.0})
    assert NetworkConfig(**config.to_dict()) == config


def test_scales_from_data():
    data = [labelled(ethanol(), 0), labelled(water(), 1)]
    config = fit_scales(preset("tiny"), data)
    assert config.type_names == ["H", "C", "O"]
    forces = np.concatenate([s.forces for s in data])
    assert config.per_type_energy_scales == pytest.approx(np.sqrt((forces**2).mean()))
    # all atoms of these molecules are within 4 Å of each other, except for a few of ethanol
    distances = [np.linalg.norm(s.positions[:, None] - s.positions, axis=2) for s in data]
    neighbors = sum(((d > 0) & (d < 4.0)).sum() for d in distances)
    assert config.avg_num_neighbors == pytest.approx(neighbors / 12)


def test_given_scales_stay():
    given = preset(
        "tiny",
        type_names=["O", "H"],
        avg_num_neighbors=3.0,
        per_type_energy_scales={"O": 1.0, "H": 2.0},
        per_type_energy_shifts_trainable=True,
        stress_head=False,
    )
    assert fit_scales(given, [labelled(water(), 0)]) == given


def test_neighbors_of_a_crystal_include_images():
    assert mean_neighbors([salt()], 3.5) > 5


def test_isolated_atoms_have_no_neighbors():
    alone = replace(water(), numbers=[8], positions=np.zeros((1, 3)))
    assert mean_neighbors([alone], 4.0) == 1.0


def test_no_forces():
    with pytest.raises(InputError, match="no forces"):
        force_scale([water()])
    with pytest.raises(InputError, match="all forces in the training data are 0"):
        force_scale([replace(water(), forces=np.zeros((3, 3)))])


def test_energies_of_species_are_sampled_where_structures_are_large():
    """They move energies and nothing else, each atom's by its own number; small molecules do without, unless somebody
    wants them."""
    small, large = labelled(ethanol(), 0), labelled(rattled(bulk("Si", cubic=True) * (3, 2, 1), 0.1, 0), 1)
    assert fit_scales(preset("tiny"), [small]).per_type_energy_shifts_trainable is False
    assert fit_scales(preset("tiny"), [large]).per_type_energy_shifts_trainable is True
    unwanted = preset("tiny", per_type_energy_shifts_trainable=False)
    assert fit_scales(unwanted, [large]).per_type_energy_shifts_trainable is False
    config = fit_scales(preset("tiny", per_type_energy_shifts_trainable=True), [small])
    model = StochasticModel(config)
    graph = graph_of(small, r_max=config.r_max, species_of={1: 0, 6: 1, 8: 2})
    flat = random_weights(model, chains=1)
    weights = model.layout.views(flat)
    before = model(flat, graph)
    weights["shift"] += torch.tensor([[1.0], [2.0], [4.0]])
    after = model(flat, graph)
    moved = config.per_type_energy_scales * (6 * 1.0 + 2 * 2.0 + 1 * 4.0)
    assert float(after.energy - before.energy) == pytest.approx(moved)
    assert torch.equal(after.forces, before.forces)
    assert torch.equal(after.log_sigma_energy, before.log_sigma_energy)
