"""Checkpoints of SevenNet give the same energies, forces and stress here as in SevenNet itself."""

import os
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from equibayes.data import Structure
from equibayes.data.elements import atomic_number
from equibayes.errors import InputError
from equibayes.network.nequip import NequIP
from equibayes.network.pretrained import find
from equibayes.network.sevennet import convert_sevennet, load_sevennet
from equibayes.network.sevennet_checkpoint import read_sevennet
from tests import sevennet
from tests.official import assert_equal, relative_error
from tests.samples import ethanol, salt, silicon

pytest.importorskip(
    "sevenn", reason="the sevenn package is not installed; it brings the checkpoints (pip install sevenn)"
)

MODELS = {"7net-0": None, "7net-l3i5": None, "7net-mf-0": "PBE"}


def every_element(names: list[str]) -> Structure:
    """Some or all elements of a model on a distorted cubic lattice."""
    count = len(names)
    side = int(np.ceil(count ** (1 / 3)))
    sites = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)[:count] * 2.7
    positions = sites + np.random.default_rng(0).normal(scale=0.1, size=(count, 3))
    return Structure([atomic_number(name) for name in names], positions, 2.7 * side * np.eye(3), [True] * 3)


SLOW = ("7net-l3i5", "7net-mf-0")


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in MODELS]
)
def both(request):
    path, _ = find(request.param)
    return load_sevennet(path, MODELS[request.param]), sevennet.calculator(str(path), MODELS[request.param])


def test_same_numbers_in_both_precisions(both):
    ours, theirs = both
    all_elements = ours.config.num_features == [128, 64, 32]  # of the cheapest model
    names = ours.config.type_names[:: 1 if all_elements else 5]
    structures = [ethanol(), silicon(), salt(), every_element(names)]
    for structure in structures:
        expected = sevennet.in_single_precision(theirs, structure)
        assert_equal(sevennet.evaluate_ours(ours, structure, torch.float32), expected, 1e-5)
    sevennet.make_double(theirs)
    for structure in structures:
        expected = sevennet.in_double_precision(theirs, structure)
        assert_equal(sevennet.evaluate_ours(ours, structure, torch.float64), expected, 1e-10)
        symbols = structure.to_atoms().get_chemical_symbols()
        shift = sevennet.total_shift(ours, symbols)  # shifts are large and hide the energy of interaction
        found = sevennet.evaluate_ours(ours, structure, torch.float64)["energy"]
        assert relative_error(found - shift, expected["energy"] - shift) < 1e-10


def test_rows_of_other_species_can_be_left_out():
    path, _ = find("7net-0")
    whole = load_sevennet(path)
    part = whole.restricted(["H", "C", "O"])
    assert part.weights.shape[1] < whole.weights.shape[1]
    for structure in (ethanol(1), ethanol(2)):
        assert_equal(
            sevennet.evaluate_ours(part, structure, torch.float64),
            sevennet.evaluate_ours(whole, structure, torch.float64),
            1e-12,
        )
    with pytest.raises(InputError, match="Es is not among the species of the pretrained network"):
        whole.restricted(["H", "Es"])


@pytest.fixture(scope="module")
def read():
    return read_sevennet(find("7net-0")[0])


class TestFiles:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"is_parity": True}, "is_parity=True is not supported here; only False is"),
            ({"self_connection_type": "nequip"}, "self_connection_type=nequip"),
            ({"readout_as_fcn": True}, "readout_as_fcn=True"),
            ({"cutoff_function": {"cutoff_function_name": "cosine"}}, "the cutoff function cosine"),
            ({"lmax": 1, "irreps_manual": False}, "weights and settings do not belong together"),
        ],
        ids=lambda changes: "",
    )
    def test_what_would_be_computed_differently_is_refused(self, read, changes, message):
        settings, state = read
        with pytest.raises(InputError, match=message):
            convert_sevennet(settings | changes, state)

    def test_old_files_without_a_normalisation_are_refused(self, read):
        settings, state = read
        with pytest.raises(InputError, match="_normalize_sph=False"):
            convert_sevennet({name: value for name, value in settings.items() if name != "_normalize_sph"}, state)

    def test_paths_sorted_as_in_newer_files(self, read):
        """From 0.11 on they are in our order: reading them so gives another, wrong function of this old file."""
        settings, state = read
        old, new = convert_sevennet(settings, state), convert_sevennet(settings | {"version": "0.11.0"}, state)
        views, others = (NequIP(each.config).layout.views(each.weights) for each in (old, new))
        assert [name for name in views if not torch.equal(views[name], others[name])] == [
            f"layer{i}.radial.2" for i in (1, 2, 3)
        ]

    def test_different_denominators(self, read):
        """A block with four times as many neighbours is one with half the weights."""
        settings, state = read
        doubled = state | {"2_convolution.denominator": 2 * state["2_convolution.denominator"]}
        halved = state | {"2_self_interaction_1.linear.weight": state["2_self_interaction_1.linear.weight"] / 2}
        assert torch.equal(convert_sevennet(settings, doubled).weights, convert_sevennet(settings, halved).weights)

    def test_fidelities(self, read):
        path = find("7net-mf-0")[0]
        with pytest.raises(InputError, match="choose one of its fidelities R2SCAN, PBE, for instance"):
            load_sevennet(path)
        with pytest.raises(InputError, match="choose one of its fidelities R2SCAN, PBE"):
            load_sevennet(path, "B3LYP")
        with pytest.raises(InputError, match="has no fidelities to choose from; leave :PBE out"):
            load_sevennet(find("7net-0")[0], "PBE")
        one, other = (
            sevennet.evaluate_ours(load_sevennet(path, name), salt(), torch.float64) for name in ("PBE", "R2SCAN")
        )
        assert 1e-3 < relative_error(one["forces"], other["forces"]) < 0.5

    def test_nothing_is_executed(self, tmp_path):
        class Harm:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "harm"),)

        torch.save({"config": Harm(), "model_state_dict": {}}, tmp_path / "bad.pth")
        (tmp_path / "worse.pth").write_bytes(pickle.dumps(Harm()))
        for name in ("bad.pth", "worse.pth"):
            with pytest.raises(InputError, match=f"{name}: not a readable SevenNet checkpoint"):
                read_sevennet(tmp_path / name)
        assert not (tmp_path / "harm").exists()

    def test_other_files(self, tmp_path):
        torch.save({"state_dict": {}}, tmp_path / "other.pth")
        with pytest.raises(InputError, match="not a SevenNet checkpoint"):
            read_sevennet(tmp_path / "other.pth")
        with pytest.raises(InputError, match="no such file"):
            read_sevennet(tmp_path / "none.pth")


def test_names():
    with pytest.raises(InputError, match="7net-1: no such file, and not one of the known models 7net-0, 7net-l3i5"):
        find("7net-1")
    path, named = find("7net-0")
    assert path.exists()
    assert named is not None
    assert "MIT licence" in named.origin


def test_a_name_whose_package_is_missing(monkeypatch):
    from equibayes.network import pretrained

    missing = replace(pretrained.NAMES["7net-0"], package="no_such_package")
    monkeypatch.setitem(pretrained.NAMES, "7net-0", missing)
    with pytest.raises(InputError, match="pip install no_such_package, or give the path of the file checkpoint_seven"):
        find("7net-0")
