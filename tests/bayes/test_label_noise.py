"""Labels with a noise of their own: the likelihood, every engine, files, and what they do not count for."""

from dataclasses import replace
from math import log, pi
from pathlib import Path

import numpy as np
import pytest
import torch
from ase.io import write

from equibayes.bayes.label_noise import widened
from equibayes.bayes.likelihood import log_likelihood
from equibayes.bayes.potential import Evaluation, Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data import Dataset, read
from equibayes.data.extxyz import read_exact, write_exact
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.native.potential import NativePotential
from equibayes.posterior.sample import sample
from equibayes.run.prepare import prepare
from tests.copper import copper
from tests.runs import ethanol_frames, small_config

NOISES = [0.0, 0.3, 0.0, 2.0, 0.0, 0.0]
FRAMES = ethanol_frames(6)
NOISY = Dataset([replace(frame, noise=noise) for frame, noise in zip(FRAMES, NOISES)])


def potential_of(data: Dataset, dtype: str, model_of: Dataset | None = None) -> Potential:
    config = small_config({"data": {"validation": 0}, "network": {"model_dtype": dtype}})
    ready = prepare(model_of or data, config)
    return Potential(ready.model, ready.resident(data, "cpu"), StandardNormal())


def test_the_noise_is_added_to_the_variance_of_the_heads() -> None:
    potential = potential_of(NOISY, "float64", FRAMES)
    frames = torch.arange(6)[None].expand(2, -1)
    graph, labels = potential.data.batch(frames)
    output = potential.model(potential.model.layout.start(2, 1, torch.float64), graph)
    found = log_likelihood(widened(output, graph, labels), graph, labels)
    noise = torch.tensor(NOISES, dtype=torch.float64)
    n = 9
    force = (output.sigma_forces.reshape(2, 6, n)[..., None] ** 2 + noise[:, None, None] ** 2).double()
    energy = output.sigma_energy.double() ** 2 + n * noise**2
    error = (labels.forces - output.forces).reshape(2, 6, n, 3).double()
    expected = -0.5 * (error**2 / force + force.log() + log(2 * pi)).sum((2, 3))
    expected += -0.5 * ((labels.energy - output.energy) ** 2 / energy + energy.log() + log(2 * pi))
    torch.testing.assert_close(found, expected)


@pytest.mark.skipif(why_no_compiler() is not None, reason="no compiler")
@pytest.mark.parametrize("balance", [0.0, 0.5])
def test_the_compiled_engine_agrees(balance: float) -> None:
    solids = copper(6)
    for plain, noises in ((FRAMES, NOISES), (solids, [0.0, 0.05, 0.5, 0.0, 0.0, 0.0])):
        noisy = Dataset([replace(frame, noise=noise) for frame, noise in zip(plain, noises)])
        potential = potential_of(noisy, "float32", plain)
        position = potential.model.layout.start(2, 1, torch.float32)
        frames = torch.arange(len(plain))[None].expand(2, -1).contiguous()
        expected = potential(position, frames, balance=balance)
        found = NativePotential(potential)(position, frames, balance=balance)
        _assert_equal(found, expected)
        without = potential_of(plain, "float32")(position, frames, balance=balance)
        assert not torch.allclose(without.gradient, expected.gradient, rtol=1e-2)


def _assert_equal(found: Evaluation, expected: Evaluation) -> None:
    torch.testing.assert_close(found.potential, expected.potential, rtol=1e-5, atol=1e-3)
    scale = float(expected.gradient.abs().max())
    torch.testing.assert_close(found.gradient, expected.gradient, rtol=0, atol=1e-4 * scale)
    torch.testing.assert_close(found.force_sigma, expected.force_sigma, rtol=1e-5, atol=0)


def test_noise_in_files_and_fingerprints(tmp_path: Path) -> None:
    write_exact(tmp_path / "a.xyz", NOISY.structures)
    write(tmp_path / "b.xyz", [frame.to_atoms() for frame in NOISY], format="extxyz")
    NOISY.save_npz(tmp_path / "c.npz")
    for found in (read_exact(tmp_path / "a.xyz"), read(tmp_path / "b.xyz"), read(tmp_path / "c.npz")):
        np.testing.assert_array_equal(found.noises, NOISES)
    same = Dataset([replace(frame, noise=0.0) for frame in NOISY])
    assert same.fingerprint() == FRAMES.fingerprint() != NOISY.fingerprint()


def test_noisy_frames_count_neither_for_scales_nor_for_novelty() -> None:
    """They are learned all the same."""
    data, config = ethanol_frames(), small_config({"data": {"validation": 0}})
    far = [replace(frame, positions=1.5 * frame.positions, forces=3 * frame.forces, noise=1.0) for frame in data[:4]]
    more = Dataset([*data, *far])
    assert prepare(more, config).network == prepare(data, config).network
    assert prepare(more, config).reference == prepare(data, config).reference
    posterior = sample(more, config, device="cpu")
    assert posterior.novelty is not None
    assert posterior.novelty.about["frames"] == len(data)
    assert posterior.predict(far[0]).novelty.max() > 1  # type: ignore[union-attr]
    assert not torch.equal(posterior.samples, sample(data, config, device="cpu").samples)
