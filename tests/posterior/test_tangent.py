"""The linearised posterior: its predictions, its physics, its file, its command."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import equibayes
from equibayes.data import Dataset, Structure
from equibayes.data.reference import EnergyReference
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.jacobian import COMPONENTS, STRESS, rows_of
from equibayes.posterior.sample import sample
from equibayes.posterior.seen import marks_of, split_known
from equibayes.posterior.tangent import NOISES, _resident, best_factor, refine
from tests import physics
from tests.cli import program
from tests.copper import copper
from tests.runs import ethanol_frames, small_config


@pytest.fixture(scope="module")
def data() -> Dataset:
    return ethanol_frames(24)


@pytest.fixture(scope="module")
def plain(data: Dataset) -> Posterior:
    """A short run of two chains in float64, 16 frames to learn from."""
    settings = {
        "burn_in": {"steps": 600, "initial": 3e-2, "final": 1e-4, "decay": "linear", "noise_free": 0.95},
        "network": {"model_dtype": "float64"},
        "data": {"validation": 8},
    }
    return sample(data, small_config(settings), device="cpu")


@pytest.fixture(scope="module")
def refined(plain: Posterior, data: Dataset) -> Posterior:
    return refine(plain, *split_known(marks_of(plain), data), draws=2)


@pytest.fixture(scope="module")
def crystals() -> Dataset:
    """Copper, every third cell without stress."""
    return copper(24, bare=8)


@pytest.fixture(scope="module")
def solid(crystals: Dataset) -> Posterior:
    """A short run on them, 16 frames to learn from."""
    settings = {
        "burn_in": {"steps": 300, "initial": 3e-2, "final": 1e-3, "decay": "linear", "noise_free": 0.95},
        "network": {"model_dtype": "float64"},
        "data": {"validation": 8},
    }
    return sample(crystals, small_config(settings), device="cpu")


@pytest.fixture(scope="module")
def refined_solid(solid: Posterior, crystals: Dataset) -> Posterior:
    return refine(solid, *split_known(marks_of(solid), crystals), draws=2)


def force_error(posterior: Posterior, frames: Dataset) -> float:
    predictions = posterior.predict(list(frames))
    return float(np.mean([np.abs(p.forces - s.forces).mean() for p, s in zip(predictions, frames)]))


def test_pairs_of_a_centre_and_a_draw(plain: Posterior, refined: Posterior) -> None:
    """Two draws around the last sample of each of two chains; only the biases of σ differ from the centres."""
    assert refined.chain.tolist() == [0, 1, 0, 1]
    assert refined.tangent is not None
    last = plain.samples[[2, 3, 2, 3]]
    views, centres = plain.model.layout.views(refined.samples), plain.model.layout.views(last)
    changed = {name for name in views if not torch.equal(views[name], centres[name])}
    assert changed <= {"force_head.bias2", "energy_head.bias2"}
    assert not torch.equal(refined.tangent[0], refined.tangent[2])


def test_predictions_are_those_of_the_linear_model(refined: Posterior, data: Dataset) -> None:
    """f(θ) + J δ with the exact Jacobian, for forces and energies; from finite differences to 1e-4 of the change."""
    frames = data.subset(range(3))
    assert refined.tangent is not None
    for number in range(2):
        rows = rows_of(refined.model, refined.samples[number], _resident(refined, frames))
        moved = (rows.jacobian.double() @ refined.tangent[number]).numpy()
        for frame, structure in enumerate(frames):
            prediction = refined.take([number]).predict(structure)
            energy = prediction.energy - refined.reference.total(structure.numbers)
            own = rows.frame == frame
            found = np.append(prediction.forces.ravel(), energy) - rows.value[own]
            np.testing.assert_allclose(found, moved[own], atol=2e-4 * np.abs(moved).max())


@pytest.mark.parametrize("name", ["molecule", "solid"])
def test_rows_are_derivatives_by_single_weights(name: str, request: pytest.FixtureRequest) -> None:
    """Central differences along a random direction of the weights."""
    posterior: Posterior = request.getfixturevalue("plain" if name == "molecule" else "solid")
    frames: Dataset = request.getfixturevalue("data" if name == "molecule" else "crystals")
    position = posterior.samples[0]
    resident = _resident(posterior, frames.subset([0, 1]))
    direction = torch.randn(len(position), generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def values(shift: float) -> np.ndarray:
        return rows_of(posterior.model, position + shift * direction, resident).value

    numeric = (values(1e-5) - values(-1e-5)) / 2e-5
    rows = rows_of(posterior.model, position, resident)
    np.testing.assert_allclose(rows.jacobian.double() @ direction, numeric, rtol=1e-5, atol=1e-6 * abs(numeric).max())
    # the first of the two crystals has no stress
    assert np.bincount(rows.kind, minlength=3).tolist() == ([54, 2, 0] if name == "molecule" else [24, 2, 6])
    assert len(rows.label) == len(rows.sigma) == len(rows.frame) == len(numeric)


def test_labels_of_stress_are_those_of_the_likelihood(solid: Posterior, crystals: Dataset) -> None:
    """Six virials per atom whose squares add up to that of the tensor, with the σ of the head for each."""
    frame = next(structure for structure in crystals if structure.stress is not None)
    resident = _resident(solid, Dataset([frame]))
    rows = rows_of(solid.model, solid.samples[0], resident)
    own = rows.kind == STRESS
    per_atom = frame.volume / len(frame)
    assert (rows.label[own] ** 2).sum() == pytest.approx((frame.stress**2).sum() * per_atom**2)
    predicted = solid.take([0]).predict(frame)
    six = np.einsum("cij,ij->c", COMPONENTS.numpy(), predicted.stress) * per_atom
    np.testing.assert_allclose(rows.value[own], six, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(rows.sigma[own], predicted.stress_aleatoric[0, 0] * per_atom, rtol=1e-6)


def test_stress_is_refined(solid: Posterior, refined_solid: Posterior, crystals: Dataset) -> None:
    """With its labels errors fall, and further than by forces and energies alone; predictions are those of f + J δ."""

    def error(posterior: Posterior, frames: Dataset) -> float:
        pairs = [(p.stress, s.stress) for p, s in zip(posterior.predict(list(frames)), frames) if s.stress is not None]
        return float(np.mean([np.abs(found - label).mean() for found, label in pairs]))

    known, held = split_known(marks_of(solid), crystals)
    bare = refine(solid, *(Dataset([replace(s, stress=None) for s in part]) for part in (known, held)), draws=2)
    unseen = copper(20, seed=1)
    assert error(refined_solid, known) < 0.5 * error(solid, known)
    assert error(refined_solid, unseen) < 0.8 * min(error(solid, unseen), error(bare, unseen))
    assert refined_solid.verdict["tangent"]["stress_sigma_factor"] > 0
    frame = next(structure for structure in unseen)
    rows = rows_of(refined_solid.model, refined_solid.samples[0], _resident(refined_solid, Dataset([frame])))
    own = rows.kind == STRESS
    assert refined_solid.tangent is not None
    moved = (rows.jacobian[own].double() @ refined_solid.tangent[0]).numpy()
    stress = refined_solid.take([0]).predict(frame).stress * frame.volume / len(frame)
    found = np.einsum("cij,ij->c", COMPONENTS.numpy(), stress)
    np.testing.assert_allclose(found - rows.value[own], moved, atol=2e-4 * np.abs(moved).max())


def test_labels_are_learned(plain: Posterior, refined: Posterior, data: Dataset) -> None:
    """Errors fall on the frames learned from and on those held back."""
    known, held = split_known(marks_of(plain), data)
    assert force_error(refined, known) < 0.6 * force_error(plain, known)
    assert force_error(refined, held) < 0.95 * force_error(plain, held)


def test_new_labels_are_learned_without_sampling(plain: Posterior, data: Dataset) -> None:
    known, held = split_known(marks_of(plain), data)
    added, rest = held.subset(range(4)), held.subset(range(4, 8))
    without, with_new = refine(plain, known), refine(plain, Dataset([*known, *added]))
    assert force_error(with_new, added) < 0.7 * force_error(without, added)
    assert split_known(marks_of(with_new), Dataset([*added, *rest]))[0].structures == added.structures


def test_physics_of_one_linearised_network(refined: Posterior) -> None:
    one = replace(refined.take([0]), reference=EnergyReference("given", dict.fromkeys((1, 6, 8), 0.0)))

    def evaluate(structure: Structure) -> physics.Evaluation:
        found = one.predict(structure)
        return physics.Evaluation(found.energy, found.forces, found.stress, found.energy_std, found.forces_std[:, 0])

    molecule = ethanol_frames(1)[0]
    physics.check_permutation(evaluate, molecule)
    physics.check_numeric_forces(evaluate, molecule, directions=3)
    physics.check_equivariance(evaluate, molecule)
    crystal = replace(molecule, cell=np.diag([5.0, 5.5, 6.0]), pbc=[True] * 3)
    physics.check_numeric_stress(evaluate, crystal)


def test_a_batch_is_its_frames_one_by_one(refined: Posterior, data: Dataset) -> None:
    for together, frame in zip(refined.predict(list(data.subset(range(3)))), data):
        np.testing.assert_allclose(together.forces, refined.predict(frame).forces, rtol=1e-9, atol=1e-10)


def test_energy_is_conserved(refined: Posterior) -> None:
    """200 fs of NVE dynamics by the mean of four linearised networks."""
    from ase import units
    from ase.md.velocitydistribution import thermalize_momenta
    from ase.md.verlet import VelocityVerlet

    atoms = ethanol_frames(1)[0].to_atoms()
    atoms.calc = equibayes.Calculator(refined)
    thermalize_momenta(atoms, temperature_K=50, rng=np.random.default_rng(0))
    energies = []
    dynamics = VelocityVerlet(atoms, 0.25 * units.fs)
    dynamics.attach(lambda: energies.append(atoms.get_total_energy()))
    dynamics.run(200)
    assert np.ptp(energies) < 1e-3, "eV"


def test_sigma_factor_of_known_errors() -> None:
    """The factor on a known aleatoric σ is found, with and without a known epistemic part."""
    rng = np.random.default_rng(0)
    for epistemic in (0.0, 4.0):
        error = rng.normal(0, np.sqrt(epistemic + 9.0), 2_000)
        factor, _ = best_factor(error, np.full(2_000, epistemic), np.ones(2_000))
        assert factor == pytest.approx(3.0, rel=0.08)


def test_file(refined: Posterior, tmp_path: Path) -> None:
    refined.save(tmp_path / "a.posterior")
    again = load(tmp_path / "a.posterior")
    assert again.tangent is not None
    assert torch.equal(again.tangent, refined.tangent)
    molecule = ethanol_frames(1)[0]
    np.testing.assert_array_equal(again.predict(molecule).forces, refined.predict(molecule).forces)
    np.testing.assert_array_equal(
        again.subset(2).predict(molecule, members=True).members["forces"],
        refined.predict(molecule, members=True).members["forces"][:2],
    )
    assert again.verdict["tangent"]["noise"] in NOISES


@pytest.mark.parametrize("change", [{"dropout": 0.1}, {"tangent": torch.zeros(4, 3)}])
def test_what_cannot_be_refined(plain: Posterior, data: Dataset, change: dict) -> None:
    with pytest.raises(InputError, match="only once"):
        refine(replace(plain, **change), data)


def test_program(tmp_path: Path, plain: Posterior) -> None:
    plain.save(tmp_path / "a.posterior")
    status, out, err = program.run(["refine", "a.posterior", "bundled:ethanol@0:24", "-o", "b.posterior"], tmp_path)
    assert (status, err) == (0, "")
    assert "4 linearised networks written to b.posterior" in out
    assert "chosen on 8 held-back frames" in out
    _, out, _ = program.run(["info", "b.posterior"], tmp_path)
    assert "each network linearised and moved by exact inference from 16 frames" in out
    status, _, err = program.run(["refine", "b.posterior", "bundled:ethanol@0:24", "-o", "c.posterior"], tmp_path)
    assert (status, err.count("\n")) == (2, 1)
    status, _, err = program.run(["refine", "a.posterior", "bundled:ethanol@test", "-o", "c.posterior"], tmp_path)
    assert "learned from none of these frames" in err


def test_many_labels_are_thinned(plain: Posterior, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evenly spread frames up to the limit, which is said."""
    said: list[str] = []
    monkeypatch.setattr("equibayes.posterior.tangent.MOST_LABELS", 100)
    known, held = split_known(marks_of(plain), data)
    found = refine(plain, known, held, draws=1, say=said.append)
    assert said == ["448 labels in 16 frames; 3 of them are used (at most 100 labels)"]
    assert found.verdict["tangent"]["frames"] == 3


@pytest.mark.parametrize("name", ["molecule", "solid"])
def test_rows_by_the_compiled_engine(
    name: str, data: Dataset, crystals: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same Jacobian in float32, up to rounding."""
    frames = data if name == "molecule" else crystals
    posterior = sample(frames, small_config({"burn_in": {"steps": 40}, "data": {"validation": 4}}), device="cpu")
    resident, found = _resident(posterior, frames.subset([0, 1])), {}
    for engine in ("reference", "native"):
        monkeypatch.setenv("EQUIBAYES_ENGINE", engine)
        found[engine] = rows_of(posterior.model, posterior.samples[0], resident).jacobian
    difference = (found["native"] - found["reference"]).norm(dim=1) / found["reference"].norm(dim=1)
    assert float(difference.max()) < 1e-5
