"""Predictions: the mixture's mean and variance, the same in every batch, lazily."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ase.io import read as ase_read

from equibayes.data import Structure
from equibayes.data.graph import concatenate
from equibayes.data.reference import EnergyReference
from equibayes.engine import select
from equibayes.engine.interface import DynamicsOutput
from equibayes.errors import InputError
from equibayes.posterior import predict as module
from equibayes.posterior.extxyz import write_predictions
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import ReadyPosterior, predict, predict_each
from equibayes.posterior.prediction import Prediction
from equibayes.posterior.sampled import Sampled
from tests.models import graph, small_model
from tests.samples import SPECIES_OF, ethanol, salt, silicon, slab, water

REFERENCE = EnergyReference("given", {z: -10.0 * z for z in SPECIES_OF})
MIXED = [ethanol(), water(), salt(), silicon(), slab(), ethanol(1)]
FIELDS = ("energy", "forces")


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    """Four samples of a network in double precision that knows all species of `MIXED`."""
    model, weights = small_model(4)
    return Posterior(weights, torch.arange(4), torch.zeros(4, dtype=torch.int64), model.config, REFERENCE)


def assert_equal(one: Prediction, other: Prediction, rtol: float = 1e-9) -> None:
    for field in FIELDS:
        for part in ("", "_std", "_epistemic", "_aleatoric"):
            np.testing.assert_allclose(getattr(one, field + part), getattr(other, field + part), rtol=rtol, atol=1e-10)
    assert (one.stress is None) == (other.stress is None)
    if one.stress is not None:
        np.testing.assert_allclose(one.stress, other.stress, rtol=rtol, atol=1e-12)
        np.testing.assert_allclose(one.stress_std, other.stress_std, rtol=rtol, atol=1e-12)


def test_mean_and_variance_are_those_of_the_mixture(posterior: Posterior) -> None:
    """Against the model's own output, by the definition: E[y²] − E[y]² of k Gaussians with equal weights."""
    structure = salt()
    output = posterior.model(posterior.samples, graph(structure))
    got = posterior.predict(structure)
    energies = output.energy[:, 0].numpy() + REFERENCE.total(structure.numbers)
    forces = output.forces.numpy()
    for mean, std, members, sigma in (
        (got.energy, got.energy_std, energies, output.sigma_energy[:, 0].numpy()),
        (got.forces, got.forces_std, forces, output.sigma_forces.numpy()[:, :, None]),
    ):
        np.testing.assert_allclose(mean, members.mean(0), rtol=1e-12)
        centred = members - members.mean(0)  # or the large energy would eat the digits
        np.testing.assert_allclose(np.square(std), (centred**2 + sigma**2).mean(0), rtol=1e-9)
    np.testing.assert_allclose(got.energy_epistemic, energies.std(), rtol=1e-9)
    np.testing.assert_allclose(got.forces_std**2, got.forces_epistemic**2 + got.forces_aleatoric**2, rtol=1e-12)
    np.testing.assert_allclose(got.stress, output.stress[:, 0].numpy().mean(0), rtol=1e-10)
    np.testing.assert_allclose(got.stress_std, output.stress[:, 0].numpy().std(0), rtol=1e-9)


@pytest.mark.parametrize("structure", [salt(), ethanol()], ids=["crystal", "molecule"])
def test_what_dynamics_computed_is_the_same_prediction(posterior: Posterior, structure: Structure) -> None:
    """An engine for moving atoms gives plain arrays of k samples, with the virial in place of the stress."""
    output = posterior.model(posterior.samples, graph(structure))
    volume = structure.volume if structure.pbc.all() else 1.0
    found = DynamicsOutput(
        energy=output.energy[:, 0].numpy(),
        forces=output.forces.numpy(),
        virial=output.stress[:, 0].numpy() * volume,
        log_sigma_energy=output.log_sigma_energy[:, 0].numpy(),
        log_sigma_virial=np.full(len(output.energy), np.nan),
        log_sigma_forces=output.log_sigma_forces.numpy(),
        invariants=output.invariants[0].numpy(),
    )
    ready = ReadyPosterior(posterior, "cpu")
    got = ready.prediction(structure, ready.sampled_by_dynamics(structure, found))
    assert_equal(got, posterior.predict(structure))
    assert got.members is None


@pytest.mark.parametrize(("edges", "batches"), [(1, [1] * 6), (600, [2, 1, 2, 1]), (10**9, [6])])
def test_batch_equals_single(
    posterior: Posterior, edges: int, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alone, a few together, all together."""
    singles, sizes = [posterior.predict(structure) for structure in MIXED], []
    monkeypatch.setitem(select.EDGES_AT_ONCE, "cpu", edges)
    monkeypatch.setattr(module, "concatenate", lambda graphs: sizes.append(len(graphs)) or concatenate(graphs))
    for one, other in zip(singles, posterior.predict(MIXED), strict=True):
        assert_equal(one, other)
    assert sizes == batches


@pytest.mark.parametrize("kind", ["plain", "dropout", "linearised"])
def test_samples_evaluated_in_parts(posterior: Posterior, kind: str) -> None:
    """As several processes do it, each with samples of its own."""
    tangent = torch.randn(posterior.samples.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    changes = {"plain": {}, "dropout": {"dropout": 0.2}, "linearised": {"tangent": 0.01 * tangent}}
    whole, structure = replace(posterior, **changes[kind]), salt()
    parts = [ReadyPosterior(whole, "cpu", own=own) for own in (range(0, 1), range(1, 4))]
    found = Sampled.joined([ready.sampled([structure], graph(structure)) for ready in parts])
    got = parts[0].prediction(structure, found, members=True)
    expected = whole.predict(structure, members=True)
    assert_equal(got, expected)
    np.testing.assert_allclose(got.members["forces"], expected.members["forces"], rtol=1e-9, atol=1e-10)
    assert np.ptp(got.members["energy"]) > 1e-3, "else the parts may be swapped"


def test_stress_only_where_there_is_a_volume(posterior: Posterior) -> None:
    assert [p.stress is not None for p in posterior.predict(MIXED)] == [False, False, True, True, False, False]


def test_fewer_samples(posterior: Posterior) -> None:
    both = list(predict_each(posterior, MIXED, [2, 4, 1]))
    for structure, (two, four, one) in zip(MIXED, both):
        assert_equal(two, posterior.subset(2).predict(structure))
        assert_equal(four, posterior.predict(structure))
        assert one.energy_epistemic == 0
        assert not one.forces_epistemic.any(), "one sample cannot disagree with itself"
        assert abs(two.forces - four.forces).max() > 1e-6


def test_members(posterior: Posterior) -> None:
    prediction = posterior.predict(salt(), members=True)
    members = prediction.members
    assert {name: values.shape for name, values in members.items()} == {
        "energy": (4,),
        "forces": (4, 8, 3),
        "stress": (4, 3, 3),
    }
    for k in range(4):
        alone = replace(posterior, samples=posterior.samples[k : k + 1], chain=torch.zeros(1), step=torch.zeros(1))
        assert members["energy"][k] == pytest.approx(alone.predict(salt()).energy, rel=1e-10)
        np.testing.assert_allclose(members["forces"][k], alone.predict(salt()).forces, rtol=1e-8, atol=1e-10)
    assert posterior.predict(salt()).members is None
    assert "stress" not in posterior.predict(water(), members=True).members


def test_structures_are_taken_as_they_are_needed(posterior: Posterior) -> None:
    """No more than a batch ahead: millions may come."""
    taken = 0

    def endless() -> Iterator[Structure]:
        nonlocal taken
        while True:
            taken += 1
            yield water(taken % 5)

    predictions = predict(posterior, endless())
    for _ in range(5):
        next(predictions)
    a_batch = select.EDGES_AT_ONCE["cpu"] // len(posterior) // graph(water()).sender.numel()
    assert 5 <= taken <= a_batch + 2


def test_ase_atoms_and_lists(posterior: Posterior) -> None:
    atoms = salt().to_atoms()
    assert_equal(posterior.predict(atoms), posterior.predict(salt()))
    assert [len(p.forces) for p in posterior.predict([atoms, water()])] == [8, 3]


def test_energies_that_hold_up_to_a_constant(posterior: Posterior) -> None:
    reference = EnergyReference("per_structure", REFERENCE.shifts, {"H2O": -5.0})
    known, unknown = replace(posterior, reference=reference).predict([water(), ethanol()])
    assert known.energy_known
    assert not unknown.energy_known


def test_species_the_model_does_not_know(posterior: Posterior) -> None:
    helium = Structure(numbers=[2], positions=[[0, 0, 0]], source="a.xyz, frame 3")
    with pytest.raises(InputError, match=r"a\.xyz, frame 3: species He unknown to this model, which knows H, C, O"):
        posterior.predict([water(), helium])


def test_written_and_read_back(posterior: Posterior, tmp_path: Path) -> None:
    labelled = [
        replace(s, energy=-1.5, forces=np.full((len(s), 3), 0.25), stress=None if s.volume == 0 else 0.01 * np.eye(3))
        for s in MIXED
    ]
    structures = [replace(labelled[0], config_type="first"), *labelled[1:3], *MIXED[3:]]
    predictions = posterior.predict(structures, members=True)
    assert write_predictions(tmp_path / "p.xyz", zip(structures, predictions), level=0.9) == len(MIXED)
    frames = ase_read(tmp_path / "p.xyz", ":")
    assert [path.name for path in tmp_path.iterdir()] == ["p.xyz"]
    for structure, prediction, atoms in zip(structures, predictions, frames, strict=True):
        columns = {"atol": 6e-9, "rtol": 0}  # eight decimals
        np.testing.assert_array_equal(atoms.numbers, structure.numbers)
        np.testing.assert_allclose(atoms.positions, structure.positions, **columns)
        assert (atoms.pbc == structure.pbc).all()
        assert atoms.get_potential_energy() == pytest.approx(prediction.energy, rel=1e-14)
        np.testing.assert_allclose(atoms.get_forces(), prediction.forces, **columns)
        for part in ("std", "epistemic", "aleatoric"):
            assert atoms.info[f"energy_{part}"] == pytest.approx(getattr(prediction, f"energy_{part}"), rel=1e-14)
            np.testing.assert_allclose(atoms.arrays[f"forces_{part}"], getattr(prediction, f"forces_{part}"), **columns)
        expected = np.sqrt((prediction.forces_std**2).sum(1) / 3)
        np.testing.assert_allclose(atoms.arrays["atom_sigma"], expected, **columns)
        half_energy, half_forces = prediction.interval(0.9)
        assert atoms.info["interval_coverage"] == 0.9
        assert atoms.info["energy_interval"] == pytest.approx(half_energy)
        np.testing.assert_allclose(atoms.arrays["forces_interval"], half_forces, **columns)
        ensemble = atoms.arrays["forces_ensemble"].reshape(-1, 3, 4)
        np.testing.assert_allclose(ensemble.mean(-1), prediction.forces, **columns)
        np.testing.assert_allclose(ensemble[..., 2], prediction.members["forces"][2], **columns)
        np.testing.assert_allclose(atoms.info["energy_ensemble"], prediction.members["energy"], rtol=1e-14)
        if prediction.stress is None:
            assert "stress" not in atoms.calc.results
            assert "stress_std" not in atoms.info
        else:
            np.testing.assert_allclose(atoms.get_stress(voigt=False), prediction.stress, rtol=1e-12)
            np.testing.assert_allclose(atoms.info["stress_std"], prediction.stress_std, rtol=1e-12)
            ensemble = atoms.info["stress_ensemble"].reshape(3, 3, 4)
            np.testing.assert_allclose(ensemble[..., 1], prediction.members["stress"][1], rtol=1e-12)
        assert ("REF_energy" in atoms.info) == (structure.energy is not None)
    assert frames[0].info["config_type"] == "first"
    assert frames[0].info["REF_energy"] == -1.5
    np.testing.assert_allclose(frames[2].arrays["REF_forces"], 0.25)
    np.testing.assert_allclose(frames[2].info["REF_stress"], 0.01 * np.eye(3))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_large_structure_gets_a_few_samples_at_a_time(
    posterior: Posterior, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    posterior = replace(posterior, dropout=dropout)
    forward, seen = posterior.model.forward, []
    (at_once,) = predict(posterior, [salt()])

    def watched(weights: dict[str, torch.Tensor], *rest: object, **options: object) -> object:
        seen.append(len(weights["embedding"]))
        return forward(weights, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(posterior.model, "forward", watched)
    monkeypatch.setitem(select.EDGES_AT_ONCE, "cpu", 3 * graph(salt()).sender.numel())
    (in_parts,) = predict(posterior, [salt()])
    assert seen == [3, 1]
    assert_equal(at_once, in_parts)
