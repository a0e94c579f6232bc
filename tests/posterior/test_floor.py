"""σ grows with novelty, in every number that is made of it, and stays as it was where nothing is novel."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from equibayes.data import Dataset, Structure
from equibayes.data.neighbors import neighbor_list
from equibayes.errors import InputError
from equibayes.posterior.calibrate import calibrate
from equibayes.posterior.file import Posterior, load, read, write
from equibayes.posterior.floor import MOST_NOVEL, USUAL, floors
from equibayes.posterior.prediction import Prediction
from equibayes.simulate.calculator import Calculator
from tests.runs import ethanol_frames
from tests.samples import salt
from tests.simulate.posteriors import ethanol_posterior


def without(posterior: Posterior) -> Posterior:
    return replace(posterior, novelty=None)


def stretched(factor: float) -> Structure:
    frame = ethanol_frames(1)[0]
    return replace(frame, positions=factor * frame.positions)


def test_its_size() -> None:
    """F/2 (ν − 1/2)², and no more than that of 30."""
    novelty = np.array([0.0, 0.5, 1.0, 2.5, 30.0, 1000.0])
    expected = [0.0, 0.0, 0.25, 4.0, 2 * 29.5**2 / 2, 2 * 29.5**2 / 2]
    assert USUAL(novelty, 2.0) == pytest.approx(expected)
    assert MOST_NOVEL == 30.0


def test_neighbours_of_a_novel_atom_share_it() -> None:
    line = Structure(np.array([6, 6, 6]), np.array([[0.0, 0, 0], [2.0, 0, 0], [5.0, 0, 0]]))
    energy, forces = floors([line, line], np.array([2.5, 0, 0, 0, 0.5, 0]), 1.0, 4.0)
    assert forces == pytest.approx([2.0, 2.0 * (1 - 4 / 16), 0, 0, 0, 0])
    assert energy == pytest.approx([2.0, 0.0])
    assert floors([line], np.array([0.5, 0.2, 0.0]), 1.0, 4.0) is None
    assert floors([line], np.array([9.0, 9.0, 9.0]), 0.0, 4.0) is None, "forces that are not known"


@pytest.mark.parametrize("repeat", [1, 2, 3])
def test_neighbours_across_the_cell(repeat: int) -> None:
    """The nearest image is enough in a large cell; in a small one every image counts."""
    small = salt()
    atoms = small.to_atoms().repeat(repeat)
    structure = Structure(atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc)
    rng = np.random.default_rng(0)
    novelty = np.where(rng.uniform(size=len(structure)) < 0.2, 3 * rng.uniform(size=len(structure)), 0.0)
    novelty[0] = 2.0
    _, forces = floors([structure], novelty, 1.0, 4.0)
    own, expected = USUAL(novelty, 1.0), np.zeros(len(structure))
    pairs = neighbor_list(structure.positions, structure.cell, structure.pbc, 4.0)
    for i, j, vector in zip(pairs.receiver, pairs.sender, pairs.vector):
        expected[i] = max(expected[i], own[j] * (1 - vector @ vector / 16))
    assert forces == pytest.approx(np.hypot(own, expected))


def parts(prediction: Prediction) -> list[np.ndarray]:
    return [np.asarray(getattr(prediction, name)) for name in ("energy_std", "forces_std", "energy_epistemic")]


def test_it_is_in_every_sigma_where_atoms_are_novel() -> None:
    posterior = ethanol_posterior()
    scale = posterior.novelty.force_scale
    for structure in (stretched(1.3), stretched(3.0)):
        plain, prediction = (each.predict(structure) for each in (without(posterior), posterior))
        energy, forces = floors([structure], prediction.novelty, scale, posterior.network.r_max)
        assert (forces > scale).all()
        assert prediction.forces_std == pytest.approx(np.hypot(plain.forces_std, forces[:, None]))
        assert prediction.forces_epistemic == pytest.approx(np.hypot(plain.forces_epistemic, forces[:, None]))
        assert prediction.energy_std == pytest.approx(np.hypot(plain.energy_std, energy[0]))
        assert np.array_equal(prediction.forces_aleatoric, plain.forces_aleatoric)
        assert np.array_equal(prediction.forces, plain.forces)
    far = posterior.predict(stretched(4.0))
    assert (far.forces_std > 100 * scale).all(), "atoms alone: the model does not know"


def test_stress_and_simulations_have_it() -> None:
    """The calculator's results are those of `predict`; the stress has the floor of the energy over the volume."""
    posterior, structure = ethanol_posterior(), stretched(1.2)
    cell = replace(structure, cell=12 * np.eye(3), pbc=np.ones(3, dtype=bool))
    plain, prediction = (each.predict(cell) for each in (without(posterior), posterior))
    energy, _ = floors([cell], prediction.novelty, posterior.novelty.force_scale, posterior.network.r_max)
    least = float(energy[0]) / cell.volume
    assert prediction.pressure_std == pytest.approx(np.hypot(plain.pressure_std, least / np.sqrt(3)))
    assert prediction.stress_std[0, 0] == pytest.approx(np.hypot(plain.stress_std[0, 0], least))
    assert prediction.stress_std[0, 1] == pytest.approx(np.hypot(plain.stress_std[0, 1], least / np.sqrt(2)))
    atoms = cell.to_atoms()
    atoms.calc = Calculator(posterior, device="cpu", novelty=(None, None))
    atoms.get_forces()
    assert atoms.calc.results["forces_std"] == pytest.approx(prediction.forces_std, rel=1e-4)
    assert atoms.calc.results["energy_std"] == pytest.approx(prediction.energy_std, rel=1e-4)


def test_usual_frames_hardly_change() -> None:
    """The median σ of frames like the training frames grows by less than 2 %."""
    posterior, frames = ethanol_posterior(), list(ethanol_frames(400)[300:])
    plain, now = (
        np.concatenate([p.forces_std.ravel() for p in each.predict(frames)]) for each in (without(posterior), posterior)
    )
    assert (now >= plain).all()
    assert np.median(now) < 1.02 * np.median(plain)


def test_the_calibration_is_found_where_nothing_is_novel() -> None:
    """An atom that is torn off has an error far beyond all others, and σ from its floor: it does not widen the rest."""
    posterior, frames = ethanol_posterior(), ethanol_frames(60)[40:]
    wide = frames[0].positions.copy()
    wide[-1] += 3 * (wide[-1] - wide.mean(0))
    mixed = Dataset([replace(frames[0], positions=wide, forces=5 * frames[0].forces), *frames], "mixed")
    usual, found, misled = (
        calibrate(each, data, method="scale", device="cpu").calibration["forces"]
        for each, data in ((posterior, frames), (posterior, mixed), (without(posterior), mixed))
    )
    factor = {
        name: each["by_k"]["2"]["factor"] for name, each in (("usual", usual), ("found", found), ("misled", misled))
    }
    assert factor["found"] == pytest.approx(factor["usual"], rel=0.05)
    assert factor["misled"] > 1.2 * factor["usual"]


def test_the_calibration_does_not_see_it() -> None:
    """It is found without the floor, which is added afterwards, also to intervals."""
    posterior, frames = ethanol_posterior(), ethanol_frames(60)[40:]
    novel = [p.floor is not None and (p.floor[1] > 0.01).any() for p in posterior.predict(list(frames))]
    frames = frames.subset(np.flatnonzero(~np.array(novel)))
    found = calibrate(posterior, frames, method="scale", device="cpu")
    apart = calibrate(without(posterior), frames, method="scale", device="cpu")
    assert found.calibration == apart.calibration
    structure = stretched(1.3)
    plain, prediction = replace(apart, novelty=None).predict(structure), found.predict(structure)
    energy, forces = floors([structure], prediction.novelty, posterior.novelty.force_scale, posterior.network.r_max)
    assert prediction.forces_std == pytest.approx(np.hypot(plain.forces_std, forces[:, None]))
    (old_energy, old_forces), (new_energy, new_forces) = plain.interval(0.68), prediction.interval(0.68)
    assert new_energy == pytest.approx(np.hypot(old_energy, 0.99446 * energy[0]), rel=1e-4)
    assert new_forces == pytest.approx(np.hypot(old_forces, 0.99446 * forces[:, None]), rel=1e-4)


@pytest.mark.parametrize("value", [-1.0, "1", None, True])
def test_a_force_scale_without_sense(value: object, tmp_path: Path) -> None:
    ethanol_posterior().save(tmp_path / "a.posterior")
    header, tensors = read(tmp_path / "a.posterior")
    header["novelty"] = header["novelty"] | {"force_scale": value}
    write(tmp_path / "a.posterior", header, tensors)
    with pytest.raises(InputError, match=r"novelty\.force_scale"):
        load(tmp_path / "a.posterior")
