"""Weights of official NequIP models give the same energies, forces and stress here."""

from dataclasses import replace

import pytest
import torch

from equibayes.errors import InputError
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import Irrep, plan_layers
from equibayes.network.nequip import NequIP
from equibayes.network.official import convert_official
from equibayes.posterior.predict import predict
from equibayes.posterior.pretrained import as_posterior
from tests.official import (
    ENLARGE,
    assert_equal,
    build,
    evaluate_official,
    evaluate_ours,
    relative_error,
    settings,
    total_shift,
)
from tests.samples import SPECIES, ethanol, salt, silicon

STRUCTURES = {"ethanol": ethanol(), "silicon": silicon(), "salt": salt()}
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


def compare(arguments, structures=STRUCTURES, **options):
    dtype = arguments["model_dtype"]
    theirs = build(**arguments, **options)
    ours = convert_official(arguments, theirs.state_dict())
    for structure in structures.values():
        expected = evaluate_official(theirs, structure, arguments["type_names"], arguments["r_max"])
        result = evaluate_ours(ours, structure, getattr(torch, dtype))
        assert_equal(result, expected, TOLERANCE[dtype])
        if dtype == "float64":  # shifts are large and hide the energy of interaction
            shift = total_shift(ours, structure)
            assert relative_error(result["energy"] - shift, expected["energy"] - shift) <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("layers", [2, 3, 4, 5])
@pytest.mark.parametrize("parity", [True, False])
@pytest.mark.parametrize("l_max", [1, 2, 3])
def test_architectures(l_max, parity, layers, dtype):
    features = [5, 4, 3, 2][: l_max + 1]
    compare(settings(l_max=l_max, parity=parity, num_layers=layers, num_features=features, model_dtype=dtype))


@pytest.mark.parametrize(
    "changes",
    [
        {"avg_num_neighbors": {name: 6.0 + 3 * i for i, name in enumerate(SPECIES)}},
        {"type_embed_num_features": 7, "num_layers": 3, "l_max": 2},
        {"bessel_trainable": False},
        {"num_features": 6, "num_layers": 3},
        {"radial_mlp_depth": 1},
        {"radial_mlp_depth": 3, "radial_mlp_width": 5},
        {"num_bessels": 5, "polynomial_cutoff_p": 4},
        {"per_type_energy_scales": 2.5, "per_type_energy_shifts": -7.25},
        {"per_type_energy_scales": None, "per_type_energy_shifts": None},
        {"r_max": 5.1},
        {"l_max": 0, "num_layers": 3},
        {"num_layers": 1},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_settings(changes):
    compare(settings(**changes))


def test_pseudoscalars():
    """Six layers are the first depth at which 0o, with its tanh, can reach the energy."""
    arguments = settings(num_layers=6, num_features=6)
    assert any(Irrep(0, -1) in layer.outputs for layer in plan_layers(NetworkConfig(num_layers=6, l_max=1)))
    compare(arguments, enlarge=1.4)


@pytest.mark.parametrize("compressed", [1.0, 0.7], ids=["equilibrium", "compressed"])
def test_repulsion_of_nuclei(compressed):
    """ZBL, as in NequIP's foundation models: the same numbers when it is added as a baseline."""
    zbl = {"_target_": "nequip.nn.pair_potential.ZBL", "units": "metal", "chemical_species": list(SPECIES)}
    arguments = settings(pair_potential=zbl)
    theirs = build(**arguments)
    posterior = as_posterior(convert_official(arguments, theirs.state_dict()))
    for structure in (ethanol(), salt()):
        closer = replace(structure, positions=structure.positions * compressed, cell=structure.cell * compressed)
        expected = evaluate_official(theirs, closer, list(SPECIES), 4.0)
        found = next(predict(posterior, [closer], device="cpu"))
        assert_equal({name: getattr(found, name) for name in ("energy", "forces", "stress")}, expected, 1e-10)
        plain = evaluate_ours(convert_official(arguments, theirs.state_dict()), closer, torch.float64)
        assert relative_error(plain["forces"], expected["forces"]) > 1e-3, "the term counts"


def test_published_preset():
    """NequIP's own size S; its builder fills in the rest."""
    from nequip.model import PresetNequIPGNNModel

    build(**settings())  # prepares the package's global state
    plain = {k: v for k, v in settings().items() if k not in ("num_layers", "l_max", "num_features")}
    arguments = {k: v for k, v in plain.items() if not k.startswith("radial_mlp")} | {"preset": "S"}
    theirs = PresetNequIPGNNModel(**arguments)
    ours = convert_official(arguments, theirs.state_dict())
    assert ours.config.num_features == [128, 64]
    expected = evaluate_official(theirs, ethanol(), list(SPECIES), 4.0)
    assert_equal(evaluate_ours(ours, ethanol(), torch.float64), expected, 1e-10)


def test_start_scales_of_both_agree():
    """A fresh official model and fresh weights of ours have the same spread: e3nn's normalisation, weight by weight.

    The self-connection is left out, because theirs is a product of two drawn matrices.
    """
    arguments = settings(num_layers=3, num_features=16, radial_mlp_width=32, bessel_trainable=False)
    ours = convert_official(arguments, build(**arguments).state_dict())
    for name, value in NequIP(ours.config).layout.views(ours.weights).items():
        if "self_connection" not in name and name != "bessel" and value.numel() > 200:
            assert value.std().item() / ENLARGE == pytest.approx(1.0, abs=0.2), name


@pytest.fixture(scope="module")
def state():
    return build(**settings()).state_dict()


class TestRefusals:
    """What would be computed differently is refused in one line that names it."""

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"pair_potential": {"_target_": "nequip.nn.pair_potential.LennardJones"}}, "pair_potential="),
            ({"pair_potential": {"_target_": "nequip.nn.pair_potential.ZBL", "units": "real"}}, "pair_potential="),
            ({"per_edge_type_cutoff": {"H": 2.0}}, "per_edge_type_cutoff="),
            ({"readout_mlp_hidden_layers_depth": 1}, "readout_mlp_hidden_layers_depth=1"),
            ({"convnet_resnet": True}, "convnet_resnet=True"),
            ({"convnet_nonlinearity_scalars": {"e": "tanh", "o": "tanh"}}, "convnet_nonlinearity_scalars="),
            ({"l_max": 4, "num_features": 4}, "l_max=4: must be between 0 and 3"),
            ({"preset": "XL"}, "preset=XL is not supported here"),
            ({"a_setting_of_tomorrow": 3}, "a_setting_of_tomorrow=3 is not known here"),
            ({"_target_": "allegro.model.AllegroModel"}, "built by allegro.model.AllegroModel"),
            ({"num_layers": 3}, "weights and settings do not belong together"),
            ({"num_features": 5}, "weights and settings do not belong together"),
            ({"radial_mlp_width": 9}, "weights and settings do not belong together"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_settings(self, state, changes, message):
        with pytest.raises(InputError, match=message) as caught:
            convert_official(settings(**changes), state, source="best.ckpt")
        assert "\n" not in str(caught.value)
        if "network." not in str(caught.value):
            assert str(caught.value).startswith("best.ckpt: ")

    def test_missing_settings(self, state):
        arguments = settings()
        del arguments["r_max"]
        with pytest.raises(InputError, match="no r_max in the settings"):
            convert_official(arguments, state)

    def test_foreign_state_dict(self):
        with pytest.raises(InputError, match="is this a NequIP GNN"):
            convert_official(settings(), torch.nn.Linear(2, 2).state_dict())

    def test_two_models(self, state):
        twice = {f"{name}.{key}": value for name in ("a", "b") for key, value in state.items()}
        with pytest.raises(InputError, match="holds 2 models"):
            convert_official(settings(), twice)


def test_any_prefix(state):
    renamed = {f"somewhere.else.{key}": value for key, value in state.items()} | {"other": torch.zeros(3)}
    assert torch.equal(convert_official(settings(), state).weights, convert_official(settings(), renamed).weights)
