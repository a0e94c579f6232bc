"""Reweighting: exact for Gaussians, and the ensemble of the mean from a biased one."""

from pathlib import Path

import numpy as np
import pytest
from ase import units
from scipy.stats import norm

from equibayes.errors import InputError
from equibayes.posterior.file import load
from equibayes.simulate.bias import BiasedCalculator
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.md import run_md
from equibayes.simulate.observe import _kept, observe, parse_observables
from equibayes.simulate.reweight import effective, log_weights, reweighted
from equibayes.simulate.watch import Watch
from tests.simulate.posteriors import ETHANOL, ethanol_start

FRAMES = 100_000
X = norm.ppf((np.random.default_rng(0).permutation(FRAMES) + 0.5) / FRAMES)
"""A normal variable in random order."""
SLOPES = np.array([0.0, 0.3, -0.6])
"""Sample i has the energy (x²/2 + a x) kT: its x is normal around −a."""
WARM = Conditions("langevin", 300.0, 0.5, tau=50.0, seed=2)


def test_means_of_shifted_gaussians() -> None:
    found = reweighted(np.stack([X, X**2], 1), -SLOPES[:, None] * X)
    np.testing.assert_allclose(found.members[:, 0], -SLOPES, atol=1e-3)
    np.testing.assert_allclose(found.members[:, 1], 1 + SLOPES**2, atol=2e-3)
    assert found.spread[0] == pytest.approx(SLOPES.std(), abs=1e-3)
    assert found.sampling[0] == pytest.approx(1 / np.sqrt(FRAMES), rel=0.7)


def test_effective_number_of_frames() -> None:
    """That of a Gaussian shifted by a is n exp(−a²)."""
    np.testing.assert_allclose(effective(-SLOPES[:, None] * X), FRAMES * np.exp(-(SLOPES**2)), rtol=2e-3)
    assert effective(np.array([[0.0, -np.inf, -1e9]])).tolist() == [1.0]
    assert effective(np.full((1, 7), -3.0)) == pytest.approx(7.0)


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """plain.xyz and biased.xyz."""
    folder, posterior = tmp_path_factory.mktemp("reweight"), load(ETHANOL).subset(2)
    makers = {
        "plain": Calculator(posterior, device="cpu"),
        "biased": BiasedCalculator(posterior, strength=2.0, device="cpu"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("equibayes.simulate.plot.plot_log", lambda *_, **__: None)
        for name, calculator in makers.items():
            run_md(calculator, ethanol_start(), WARM, 120, folder / f"{name}.xyz", watch=Watch(every=5))
    return folder


@pytest.mark.parametrize("name", ["plain", "biased"])
def test_weights_of_a_trajectory(trajectories: Path, name: str) -> None:
    """Those of two samples around their mean are opposite; a bias is taken off both."""
    calculator = Calculator(load(ETHANOL).subset(2), device="cpu", members=True)
    frames = _kept(trajectories / f"{name}.xyz", 0, 120)
    found = log_weights(calculator, frames, 300.0)
    assert found.max(1).tolist() == [0.0, 0.0]
    both = found.sum(0)
    bias = np.array([frame.info.get("bias", 0.0) for frame in frames]) / (units.kB * 300.0)
    np.testing.assert_allclose(both - both[0], 2 * (bias - bias[0]), atol=1e-5)
    assert (name == "biased") == bool(np.ptp(bias) > 0.1)


def test_observables_from_one_trajectory(trajectories: Path) -> None:
    posterior, words = load(ETHANOL).subset(2), ("energy", "distance 0 1", "rdf C H")
    calculator, start = Calculator(posterior, device="cpu", members=True), ethanol_start()
    wanted, output = parse_observables(words, start), trajectories / "plain.xyz"
    found = observe(wanted, calculator, start, WARM, 120, output, every=5, discard=10, reweight=True)
    assert list(found) == list(words)
    for each in found.values():
        assert len(each["effective_frames"]) == 2
        assert all(1 <= count <= 22 for count in each["effective_frames"])
        assert "reweighted, " in each["words"]
        assert "effective of 22 frames" in each["words"]
        assert "too few, use one simulation per sample" in each["words"]
    frames = _kept(output, 10, 120)
    lengths = np.array([frame.get_distance(0, 1) for frame in frames])
    weights = np.exp(log_weights(calculator, frames, 300.0))
    expected = (weights * lengths).sum(1) / weights.sum(1)
    np.testing.assert_allclose(found["distance 0 1"]["samples"], expected, rtol=1e-10)
    assert not list((trajectories / "plain-md").glob("member-*")), "no further simulations"
    with pytest.raises(InputError, match="nve has no temperature"):
        observe(wanted, calculator, start, Conditions("nve", 300.0), 120, output, reweight=True)
