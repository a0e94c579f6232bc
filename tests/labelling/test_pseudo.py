"""Pseudo-labels: their geometries, their zero of energy and their noise."""

from dataclasses import replace

import numpy as np
import pytest

from equibayes.data import Dataset, Structure
from equibayes.errors import InputError
from equibayes.labelling.baseline import Baseline
from equibayes.labelling.pseudo import with_pseudo_labels
from equibayes.posterior.sample import sample
from equibayes.posterior.surroundings import UNSEEN
from equibayes.run.prepare import prepare
from tests.copper import copper
from tests.runs import ethanol_frames, small_config

EMT = Baseline("emt")


def labelled_by_emt(shift: float) -> Dataset:
    """Cells of copper, whose forces are 10 % larger than those of EMT."""
    frames = []
    for frame in copper(8):
        own = EMT.label(frame)
        frames.append(replace(frame, energy=own.energy + shift * len(frame), forces=1.1 * own.forces))
    return Dataset(frames, "copper")


def test_zero_and_noise_are_those_of_the_training_frames() -> None:
    train = labelled_by_emt(shift=3.0)
    found = with_pseudo_labels(train, EMT, 8, seed=1)
    assert found[: len(train)].structures == train.structures
    scale = np.sqrt(np.mean(np.square(np.concatenate([frame.forces for frame in train]))))
    for frame in found.structures[len(train) :]:
        label = EMT.label(frame)
        assert frame.energy == pytest.approx(label.energy + 3.0 * len(frame), abs=1e-6)
        np.testing.assert_allclose(frame.forces, label.forces)
        assert frame.noise == pytest.approx(0.1 / 1.1 * max(scale, np.sqrt(np.square(label.forces).mean())), rel=1e-6)
    kinds = " ".join(frame.source for frame in found.structures[len(train) :])
    assert all(word in kinds for word in ("scaled by 0.", "scaled by 1.", "displaced", "without an atom"))
    given = with_pseudo_labels(train, EMT, 8, noise=1.0, seed=1)
    assert given[-1].noise == pytest.approx(11 * found[-1].noise, rel=1e-6)


def test_molecules_are_torn_and_the_seed_counts() -> None:
    train = ethanol_frames(4)
    first, again, other = (with_pseudo_labels(train, Baseline("zbl"), 12, noise=1.0, seed=s) for s in (0, 0, 1))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    torn = [frame for frame in first if "torn off" in frame.source]
    assert torn
    assert all(len(frame) == 9 for frame in torn)
    assert len(first) == 16


def test_the_settings_add_them() -> None:
    prior = {"pseudo_labels": "zbl", "pseudo_frames": 5, "pseudo_noise": 1.0}
    ready = prepare(ethanol_frames(), small_config({"prior": prior}))
    assert (len(ready.train), len(ready.train.right)) == (21, 16)
    plain = prepare(ethanol_frames(), small_config())
    assert ready.reference == plain.reference
    assert ready.network == plain.network


@pytest.mark.slow
def test_free_atoms_are_learned() -> None:
    """They are the limit of every dissociation."""
    free = {1: -13.0, 6: -1030.0, 8: -2040.0}
    data = Dataset(ethanol_frames(), "ethanol", free)
    burn_in = {"steps": 1000, "noise_free": 0.9, "initial": 3e-2, "balance": 0.3, "decay": "linear"}
    changes = {"chains": 1, "samples": 1, "burn_in": burn_in, "prior": {"free_atoms": True}}
    ready = prepare(data, small_config(changes))
    assert (len(ready.train), len(ready.train.right), ready.reference.kind) == (19, 16, "isolated")
    posterior = sample(data, small_config(changes), device="cpu")
    for number, energy in free.items():
        found = posterior.predict(Structure([number], np.zeros((1, 3))))  # type: ignore[arg-type]
        assert found.energy == pytest.approx(energy, abs=0.3)
        assert found.novelty is not None
        assert found.novelty[0] == UNSEEN, "nothing is known about its bonds"
    with pytest.raises(InputError, match=r"prior\.free_atoms: no energy of a free O; add frames with config_type=Isol"):
        prepare(Dataset(ethanol_frames(), "ethanol", {1: -13.0, 6: -1030.0}), small_config(changes))


def test_an_engine_that_labels_nothing() -> None:
    uranium = Dataset([replace(frame, numbers=np.full(9, 92)) for frame in ethanol_frames(2)])
    with pytest.raises(InputError, match="the baseline emt has no answer"):
        with_pseudo_labels(uranium, EMT, 4, noise=1.0)
