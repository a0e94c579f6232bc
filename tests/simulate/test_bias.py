"""Dynamics biased towards uncertainty: exact forces of a stated energy, and the frames that it is there for."""

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.io import read as ase_read

from equibayes.errors import InputError
from equibayes.posterior.file import load
from equibayes.simulate.bias import SMOOTH, BiasedCalculator
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.log import read_log
from equibayes.simulate.md import run_md
from equibayes.simulate.observables import member_energies
from equibayes.simulate.watch import Watch
from tests.samples import salt
from tests.simulate.posteriors import ETHANOL, ethanol_start, random_posterior

POSTERIOR, CRYSTAL = load(ETHANOL), random_posterior()
STRENGTH = 4.0


def displaced(atoms: Atoms, amplitude: float = 0.05) -> Atoms:
    moved = atoms.copy()
    moved.positions += np.random.default_rng(0).normal(scale=amplitude, size=moved.positions.shape)
    return moved


def biased(start: Atoms, **options: object) -> BiasedCalculator:
    """Begun at a start."""
    posterior = CRYSTAL if start.pbc.any() else POSTERIOR
    calculator = BiasedCalculator(posterior, strength=STRENGTH, device="cpu", **options)
    start.copy().calc = calculator
    calculator.get_forces(start)
    return calculator


def test_the_bias_is_the_spread_of_energy_differences() -> None:
    start = ethanol_start()
    calculator, moved = biased(start), displaced(start)
    assert calculator.results["bias"] == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(calculator.results["forces"], POSTERIOR.predict(start).forces, atol=1e-9)
    energy = calculator.get_potential_energy(moved)
    plain = Calculator(POSTERIOR, device="cpu", members=True)
    differences = np.subtract(*np.array(member_energies(plain, [moved, start])).T)
    expected = -STRENGTH * (np.hypot(differences.std(), SMOOTH) - SMOOTH)
    assert calculator.results["bias"] == pytest.approx(expected, rel=1e-9)
    assert expected < -0.01
    assert energy - expected == pytest.approx(plain.get_potential_energy(moved), abs=1e-9)
    assert calculator.results["energy_model"] == pytest.approx(plain.get_potential_energy(moved), abs=1e-9)
    np.testing.assert_allclose(calculator.results["forces_model"], plain.get_forces(moved), atol=1e-9)


@pytest.mark.parametrize("start", [ethanol_start(), salt().to_atoms()], ids=["molecule", "crystal"])
def test_forces_and_stress_are_its_derivatives(start: Atoms) -> None:
    calculator, moved = biased(start), displaced(start)
    direction = np.random.default_rng(1).normal(size=moved.positions.shape)
    h = 1e-4

    def at(step: float) -> float:
        other = moved.copy()
        other.positions += step * direction
        return calculator.get_potential_energy(other)

    slope = (at(h) - at(-h)) / (2 * h)
    assert -(calculator.get_forces(moved) * direction).sum() == pytest.approx(slope, rel=1e-5)
    assert np.abs(calculator.results["forces"] - calculator.results["forces_model"]).max() > 0.01
    if start.pbc.all():

        def strained(step: float) -> float:
            other = moved.copy()
            other.set_cell(moved.cell.array @ (np.eye(3) + step * np.diag([1.0, 0, 0])), scale_atoms=True)
            return calculator.get_potential_energy(other)

        slope = (strained(h) - strained(-h)) / (2 * h) / moved.get_volume()
        assert calculator.get_stress(moved)[0] == pytest.approx(slope, rel=2e-4)


def spread_of_differences(frames: list[Atoms]) -> np.ndarray:
    """[frames] eV: the deviation over the samples of energies relative to the first frame."""
    energies = np.array(member_energies(Calculator(POSTERIOR, device="cpu", members=True), frames))
    return (energies - energies[:, :1]).std(0)


def test_it_finds_uncertain_frames_sooner_and_resumes(tmp_path: Path) -> None:
    """Same velocities and random numbers; files say what the model predicts, the log what the bias adds."""
    conditions, watch = Conditions("langevin", 300.0, 0.5, tau=50.0, seed=3), Watch(every=5, save_every=40)
    calculators = {
        "plain": lambda: Calculator(POSTERIOR, device="cpu"),
        "biased": lambda: BiasedCalculator(POSTERIOR, strength=STRENGTH, device="cpu"),
    }
    for name, make in calculators.items():
        run_md(make(), ethanol_start(), conditions, 80, tmp_path / f"{name}.xyz", watch=watch)
    logs = {name: read_log(tmp_path / f"{name}-md/md.log") for name in calculators}
    assert "bias" not in logs["plain"]
    frames = {name: ase_read(tmp_path / f"{name}.xyz", ":") for name in calculators}
    spread = {name: spread_of_differences(each)[8:].mean() for name, each in frames.items()}
    assert spread["biased"] > 1.3 * spread["plain"]
    last = frames["biased"][-1]
    np.testing.assert_allclose(last.get_forces(), POSTERIOR.predict(last).forces, atol=1e-5)
    assert logs["biased"]["potential"][-1] == pytest.approx(last.get_potential_energy(), abs=1e-6)
    assert logs["biased"]["bias"][-1] == pytest.approx(last.info["bias"], abs=1e-6)
    assert logs["biased"]["bias"][-1] < -0.01
    run_md(calculators["biased"](), ethanol_start(), conditions, 40, tmp_path / "parts.xyz", watch=watch)
    parts = {"watch": watch, "resume": True}
    run_md(calculators["biased"](), ethanol_start(), conditions, 80, tmp_path / "parts.xyz", **parts)
    assert (tmp_path / "parts.xyz").read_bytes() == (tmp_path / "biased.xyz").read_bytes()
    weaker = BiasedCalculator(POSTERIOR, strength=1.0, device="cpu")
    with pytest.raises(InputError, match=r"--resume: bias was 4\.0 and is 1\.0 now"):
        run_md(weaker, ethanol_start(), conditions, 120, tmp_path / "parts.xyz", **parts)


def test_what_cannot_be_biased() -> None:
    with pytest.raises(InputError, match="one sample has no spread"):
        BiasedCalculator(POSTERIOR, strength=1.0, k=1, device="cpu")
    for strength in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="its strength must be above 0"):
            BiasedCalculator(POSTERIOR, strength=strength, device="cpu")
