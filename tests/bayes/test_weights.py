"""Weights of frames: a frame of weight 2 is a frame given twice, one of weight 0 a frame left out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ase.io import write

from equibayes.bayes.potential import Evaluation, Objective, Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data import Dataset, Structure, read
from equibayes.data.extxyz import read_exact, write_exact
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.select import make_stepper
from equibayes.errors import InputError
from equibayes.posterior.sample import sample
from equibayes.run.prepare import Prepared, prepare
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.sghmc import SGHMCConfig, init
from tests.runs import ethanol_frames, small_config

DOUBLE = {"network": {"model_dtype": "float64"}}
FRAMES = ethanol_frames(6)


def evaluated(ready: Prepared, frames: list[Structure], objective: Objective) -> Evaluation:
    """û over all frames, at two random positions."""
    data = ready.resident(Dataset(frames), "cpu")
    potential = Potential(ready.model, data, StandardNormal(), objective=objective)
    return potential(ready.model.layout.start(2, 1, torch.float64), torch.arange(len(frames))[None].expand(2, -1))


@pytest.mark.parametrize("objective", ["gaussian", "squares"])
def test_a_weight_counts_frames(objective: Objective) -> None:
    ready = prepare(FRAMES, small_config(DOUBLE, {"data": {"validation": 0}}))
    weights = [2.0, 0.0, 1.0, 1.0, 3.0, 1.0]
    repeated = [frame for frame, weight in zip(FRAMES, weights) for _ in range(int(weight))]
    weighted = [replace(frame, weight=weight) for frame, weight in zip(FRAMES, weights)]
    first, second = evaluated(ready, weighted, objective), evaluated(ready, repeated, objective)
    torch.testing.assert_close(first.potential, second.potential, rtol=1e-12, atol=0)
    torch.testing.assert_close(first.gradient, second.gradient, rtol=1e-9, atol=1e-9)
    assert (first.potential - evaluated(ready, list(FRAMES), objective).potential).abs().min() > 1


def test_weights_of_one_change_no_bit(tmp_path: Path) -> None:
    config = small_config({"burn_in": {"steps": 8}, "samples": 2})
    ones = [replace(frame, weight=1.0) for frame in ethanol_frames()]
    found = [sample(data, config, device="cpu") for data in (ethanol_frames(), Dataset(ones, "bundled:ethanol@0:20"))]
    assert torch.equal(found[0].samples, found[1].samples)
    assert found[0].data == found[1].data
    other = [replace(frame, weight=0.5) for frame in ethanol_frames()]
    assert not torch.equal(sample(Dataset(other), config, device="cpu").samples, found[0].samples)


def test_weights_in_files(tmp_path: Path) -> None:
    weights = [1.0, 0.1 + 0.2, 0.0]
    frames = [replace(frame, weight=weight) for frame, weight in zip(FRAMES, weights)]
    data = Dataset(frames)
    write_exact(tmp_path / "a.xyz", frames)
    write(tmp_path / "b.xyz", [frame.to_atoms() for frame in frames], format="extxyz")
    data.save_npz(tmp_path / "c.npz")
    assert (tmp_path / "a.xyz").read_text().count("config_weight") == 2
    for found in (read_exact(tmp_path / "a.xyz"), read(tmp_path / "b.xyz"), read(tmp_path / "c.npz")):
        np.testing.assert_array_equal(found.weights, weights)
    assert [Structure.from_atoms(frame.to_atoms()).weight for frame in frames] == weights
    summary = str(data.summary())
    assert "weights" in summary
    assert "0 to 1; in all as much as 1.3 frames of weight 1" in summary
    assert "weights" not in str(FRAMES.summary())


def test_weights_are_part_of_the_fingerprint() -> None:
    other = Dataset([replace(FRAMES[0], weight=2.0), *FRAMES.structures[1:]])
    same = Dataset([replace(FRAMES[0], weight=1.0), *FRAMES.structures[1:]])
    assert same.fingerprint() == FRAMES.fingerprint() != other.fingerprint()


@pytest.mark.parametrize("bad", ["-1", "nan", "inf", "heavy"])
def test_weights_that_make_no_sense(bad: str, tmp_path: Path) -> None:
    write_exact(tmp_path / "a.xyz", FRAMES.structures[:2])
    text = (tmp_path / "a.xyz").read_text()
    (tmp_path / "a.xyz").write_text(text.replace("REF_energy=", f"config_weight={bad} REF_energy=", 1))
    with pytest.raises(InputError, match=r"a\.xyz, frame 0: config_weight is .*, not a number from 0 on; correct"):
        read(tmp_path / "a.xyz")


def test_nothing_to_learn_from() -> None:
    with pytest.raises(InputError, match="every frame to learn from has config_weight=0"):
        prepare(Dataset([replace(frame, weight=0.0) for frame in FRAMES]), small_config({"data": {"validation": 2}}))


def test_an_engine_that_knows_of_no_weights_makes_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled engine knows of them, the kernels for GPUs do not."""
    ready = prepare(FRAMES, small_config({"data": {"validation": 0}}))
    weighted = Dataset([replace(frame, weight=2.0) for frame in FRAMES])
    potential = Potential(ready.model, ready.resident(weighted, "cpu"), StandardNormal())
    assert potential.unfused_because("native") is None
    state, key = init(ready.model.layout.start(2, 1, torch.float32)), NoiseKey(0, (0, 1))
    options = {"longest": 5, "batch_size": 2, "precision": "float32"}
    monkeypatch.setenv("EQUIBAYES_ENGINE", "triton")
    with pytest.raises(InputError, match=r"engine triton: cannot be used .frames have weights."):
        make_stepper(potential, state, key, SGHMCConfig(), **options)
    monkeypatch.setenv("EQUIBAYES_ENGINE", "native")
    if why_no_compiler() is None:
        assert make_stepper(potential, state, key, SGHMCConfig(), **options).engine.startswith("native-")
