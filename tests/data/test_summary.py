"""The summary: numbers by hand, words for the user."""

import json

import numpy as np
import pytest

from equibayes.data import Dataset, Structure, bundled_ethanol


def test_numbers_by_hand() -> None:
    frames = [
        Structure(np.array([1, 1]), np.array([[0, 0, 0], [0, 0, 0.7]]), energy=-30.0, forces=np.full((2, 3), 2.0)),
        Structure(np.array([1, 1]), np.array([[0, 0, 0], [0, 0, 0.8]]), energy=-29.0, forces=np.full((2, 3), -1.0)),
        Structure(np.array([6]), np.zeros((1, 3)), np.eye(3) * 4, np.ones(3, bool), energy=-1030.0),
    ]
    values = Dataset(frames, "three", isolated_atoms={1: -13.6}).summary().to_dict()
    assert values["frames"] == 3
    assert values["atoms_per_frame"] == [1, 2]
    assert values["species"] == {"H": 4, "C": 1}
    assert values["formulas"] == {"H2": 2, "C": 1}
    assert values["energy_range"] == [-1030.0, -29.0]
    assert values["meV_per_atom_above_min"] == 500.0  # within H2; C is not its ground state
    assert values["rms_force"] == pytest.approx(np.sqrt((4 + 1) / 2))
    assert values["labels"]["forces"] == {"count": 2, "key": None}
    assert values["periodic"] == "no: 2 frames, yes: 1 frame"
    assert values["isolated_atoms"] == {"H": -13.6}
    assert json.loads(json.dumps(values)) == values


def test_words_for_bundled_data() -> None:
    text = str(bundled_ethanol("train").summary())
    for part in (
        "bundled:ethanol@train",
        "1000 (numbered from 0)",
        "9 per frame",
        "H 6000, C 2000, O 1000",
        "1000 of 1000 under 'energies'",
        "kcal/mol, Ang, kcal/mol/Ang (by the definition of the rMD17 archive)",
        "energy × 0.04336410424, force × 0.04336410424",
        "1.195 eV/Å",
        "lstsq (suggested)",
    ):
        assert part in text


def test_free_atoms_are_suggested_where_there_is_one_of_every_species() -> None:
    frame = Structure(np.array([1, 1]), np.array([[0, 0, 0], [0, 0, 0.7]]), energy=-30.0)
    text = str(Dataset([frame], "one", isolated_atoms={1: -13.6}).summary())
    assert "isolated (suggested)" in text
    text = str(Dataset([frame], "one", isolated_atoms={6: -1029.5}).summary())
    assert "lstsq (suggested; no free atom of H)" in text


def test_empty_set() -> None:
    assert "frames" in str(Dataset([], "none").summary())
