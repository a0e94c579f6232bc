"""The linearised posterior: its predictions, its physics, its file, its command."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import equibayes
from equibayes.data import Dataset, Structure
from equibayes.data.reference import EnergyReference
from equibayes.engine.rows import SIX
from equibayes.errors import InputError
from equibayes.learning.select import select_structures
from equibayes.posterior.conclude import wanted
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.jacobian import STRESS, Rows, Sight, rows_of
from equibayes.posterior.predict import predict
from equibayes.posterior.sample import sample
from equibayes.posterior.seen import marks_of, split_known
from equibayes.posterior.subspace import Subspace, moving_weights
from equibayes.posterior.tangent import Inference, centres, refine, resident, space_of
from equibayes.posterior.tangent_choice import (
    DEFAULT_NOISE,
    FARTHEST,
    NARROWEST,
    best_factor,
    choose,
    narrowing,
    warnings_of,
)
from equibayes.posterior.tangent_plan import NOISES, Plan
from equibayes.posterior.tangent_store import Draws
from equibayes.run import Run
from equibayes.sampling.noise import NoiseKey
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


def all_rows(posterior: Posterior, position: torch.Tensor, frames: Dataset) -> Rows:
    """All labels by all weights; the columns are the weights, without those of the heads at their end."""
    space = Subspace.of(posterior.model, posterior.model.layout.size, 0)
    return rows_of(posterior.model, position, Sight(resident(posterior, frames)), space)


def test_pairs_of_a_centre_and_a_draw(plain: Posterior, refined: Posterior) -> None:
    """Two draws around the last sample of each of two chains; only the biases of σ differ from the centres."""
    assert refined.chain.tolist() == [0, 1, 0, 1]
    assert refined.tangent is not None
    last = plain.samples[[2, 3, 2, 3]]
    views, centres = plain.model.layout.views(refined.samples), plain.model.layout.views(last)
    changed = {name for name in views if not torch.equal(views[name], centres[name])}
    assert changed <= {"force_head.bias2", "energy_head.bias2"}
    assert not torch.equal(refined.tangent[0], refined.tangent[2])
    size = refined.tangent.norm() / refined.samples.norm()
    assert refined.verdict["tangent"]["relative_size"] == pytest.approx(float(size), rel=1e-2)


def test_predictions_are_those_of_the_linear_model(refined: Posterior, data: Dataset) -> None:
    """f(θ) + J δ with the exact Jacobian, for forces and energies; from finite differences to 1e-4 of the change."""
    frames = data.subset(range(3))
    assert refined.tangent is not None
    for number in range(2):
        rows = all_rows(refined, refined.samples[number], frames)
        moved = (rows.jacobian.double() @ refined.tangent[number][: rows.jacobian.shape[1]]).numpy()
        for frame, structure in enumerate(frames):
            prediction = refined.take([number]).predict(structure)
            energy = prediction.energy - refined.reference.total(structure.numbers)
            own = (rows.frame == frame).numpy()
            found = np.append(prediction.forces.ravel(), energy) - rows.value[own].numpy()
            np.testing.assert_allclose(found, moved[own], atol=2e-4 * np.abs(moved).max())


@pytest.mark.parametrize("name", ["molecule", "solid"])
def test_rows_are_derivatives_by_single_weights(name: str, request: pytest.FixtureRequest) -> None:
    """Central differences along a random direction of the weights."""
    posterior: Posterior = request.getfixturevalue("plain" if name == "molecule" else "solid")
    frames: Dataset = request.getfixturevalue("data" if name == "molecule" else "crystals").subset([0, 1])
    position = posterior.samples[0]
    direction = torch.randn(len(position), generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def values(shift: float) -> np.ndarray:
        return all_rows(posterior, position + shift * direction, frames).value.numpy()

    numeric = (values(1e-5) - values(-1e-5)) / 2e-5
    rows = all_rows(posterior, position, frames)
    exact = rows.jacobian.double() @ direction[: rows.jacobian.shape[1]]
    np.testing.assert_allclose(exact, numeric, rtol=1e-5, atol=1e-6 * np.abs(numeric).max())
    # the first of the two crystals has no stress
    assert np.bincount(rows.kind, minlength=3).tolist() == ([54, 2, 0] if name == "molecule" else [24, 2, 6])


def six(stress: np.ndarray) -> np.ndarray:
    """As in `LabelRows`."""
    return np.array([stress[i, j] * (1 if i == j else np.sqrt(2)) for i, j in SIX])


def test_labels_of_stress_are_those_of_the_likelihood(solid: Posterior, crystals: Dataset) -> None:
    """Six numbers whose squares add up to that of the tensor, with the σ of the head for each."""
    frame = next(structure for structure in crystals if structure.stress is not None)
    rows = all_rows(solid, solid.samples[0], Dataset([frame]))
    own = (rows.kind == STRESS).numpy()
    assert (rows.label.numpy()[own] ** 2).sum() == pytest.approx((frame.stress**2).sum())
    predicted = solid.take([0]).predict(frame)
    np.testing.assert_allclose(rows.value[own], six(predicted.stress), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(rows.sigma[own], predicted.stress_aleatoric[0, 0], rtol=1e-6)


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
    rows = all_rows(refined_solid, refined_solid.samples[0], Dataset([frame]))
    own = (rows.kind == STRESS).numpy()
    assert refined_solid.tangent is not None
    moved = (rows.jacobian[own].double() @ refined_solid.tangent[0][: rows.jacobian.shape[1]]).numpy()
    found = six(refined_solid.take([0]).predict(frame).stress) - rows.value.numpy()[own]
    np.testing.assert_allclose(found, moved, atol=2e-4 * np.abs(moved).max())


@pytest.mark.parametrize("labels", [0, 10**6], ids=["Gram matrix", "normal equations"])
def test_exact_where_the_network_is_linear(plain: Posterior, data: Dataset, labels: int) -> None:
    """Energies and forces are affine in the readout: regression on how they change with each of its weights."""
    known = split_known(marks_of(plain), data)[0].subset(range(6))
    weights = moving_weights(plain.model, ["readout"])
    count = len(weights)
    plan = replace(Plan.of(plain, known), groups=("readout",), weights=count, directions=count, labels=labels)
    inference = Inference(plain, 2, plan, NoiseKey(0, [0]))
    inference.learn(resident(plain, known))
    assert inference.found is not None
    zeros = torch.zeros(1, count).double(), torch.zeros(1, len(inference.found)).double()
    (found,) = inference.found.solve([1.0], *zeros)

    position = plain.samples[2]
    rows = all_rows(plain, position, known)
    moved = [all_rows(plain, position.index_add(0, j[None], torch.ones(1).double()), known).value for j in weights]
    design = torch.stack(moved, 1) - rows.value[:, None]
    precision = design.mT / rows.variance @ design + torch.eye(count, dtype=torch.float64)
    mean = torch.linalg.solve(precision, design.mT @ (rows.residual / rows.variance))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-10)
    misfit = (rows.residual.square() / rows.variance).sum() - mean @ precision @ mean
    assert found.scale == pytest.approx(float(misfit) / len(rows.residual), rel=1e-8)
    there = all_rows(plain, position.index_add(0, weights, mean), known).value
    np.testing.assert_allclose(rows.value + design @ mean, there, rtol=1e-8, atol=1e-9)


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


def test_weights_are_not_moved_far(plain: Posterior, data: Dataset) -> None:
    """Of the λ that move the weights by little enough, the likeliest is chosen, here the smallest."""
    rows = all_rows(plain, plain.samples[0], data[:1])
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=(len(NOISES), 4, len(rows.label))))
    errors = torch.logspace(0, -len(NOISES) + 1, len(NOISES), dtype=torch.float64)
    members = rows.label + errors[:, None, None] * noise
    found = [Draws(torch.ones(len(NOISES)), torch.zeros(len(NOISES), 4, 1), members, rows)]
    last, far = len(NOISES) - 1, FARTHEST + 0.1
    assert choose(found, [0.1] * len(NOISES)).noise == last
    assert choose(found, [0.1] * (last - 1) + [far, far]).noise == last - 2
    assert choose(found, [far] * len(NOISES)).noise == 0


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


def test_what_cannot_be_refined(plain: Posterior, data: Dataset) -> None:
    with pytest.raises(InputError, match="dropout masks"):
        refine(replace(plain, dropout=0.1), data)


def test_refined_again(plain: Posterior, refined: Posterior, data: Dataset) -> None:
    """The same networks, with one more frame."""
    known, held = split_known(marks_of(plain), data)
    again = refine(refined, Dataset([*known, held[0]]), held.subset(range(1, 8)))
    assert force_error(again, known) < 0.6 * force_error(plain, known)
    assert again.chain.tolist() == [0, 1, 0, 1]


def test_the_end_of_a_run(data: Dataset, tmp_path: Path) -> None:
    """`tangent: on` gives the posterior that `refine` makes, with the draws that `samples` asks for."""
    settings = {"burn_in": {"steps": 60}, "data": {"validation": 8}}
    plain = sample(data, small_config(settings), device="cpu")
    found = sample(data, small_config(settings | {"tangent": "on"}), output=tmp_path / "a.posterior", device="cpu")
    expected = refine(plain, *split_known(marks_of(plain), data), draws=len(plain) // 2)
    assert found.tangent is not None
    assert torch.equal(found.tangent, expected.tangent)
    assert torch.equal(load(tmp_path / "a.posterior").tangent, found.tangent)
    assert not (tmp_path / "a.run" / "refine").exists()


@pytest.mark.parametrize(
    ("labels", "steps", "asked"), [("few", 10**4, True), ("few", 10, False), ("many", 10**4, False)]
)
def test_auto_means_where_it_is_cheap(
    plain: Posterior, data: Dataset, labels: str, steps: int, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config({"burn_in": {"steps": steps}, "tangent": "auto"})
    if labels == "many":
        monkeypatch.setattr("equibayes.posterior.tangent_plan.LABELS", 100)
    assert wanted(plain, config, data, Run(device="cpu")) == asked
    assert not wanted(plain, replace(config, tangent="off"), data, Run(device="cpu"))


def test_program(tmp_path: Path, plain: Posterior) -> None:
    plain.save(tmp_path / "a.posterior")
    status, out, err = program.run(["refine", "a.posterior", "bundled:ethanol@0:24", "-o", "b.posterior"], tmp_path)
    assert (status, err) == (0, "")
    assert "4 linearised networks written to b.posterior" in out
    assert "chosen on 8 held-back frames" in out
    _, out, _ = program.run(["info", "b.posterior"], tmp_path)
    assert "each network linearised and moved by exact inference from 16 frames" in out
    assert not (tmp_path / "b.refine").exists()
    status, _, err = program.run(["refine", "a.posterior", "bundled:ethanol@test", "-o", "c.posterior"], tmp_path)
    assert "learned from none of these frames" in err


def test_a_share_of_many_labels(plain: Posterior, data: Dataset) -> None:
    """All energies and a random share of the forces, others around each network, which is said."""
    said: list[str] = []
    known, held = split_known(marks_of(plain), data)
    found = refine(plain, known, held, labels=300, say=said.append)
    assert "2 networks, 304 labels of 16 frames (66 % of the force components, at random)" in said[0]
    assert force_error(found, known) < 0.8 * force_error(plain, known)
    frames = resident(plain, known)
    chosen = [Sight(frames, 0.3, seed).of([0, 1])[3] for seed in (0, 0, 1)]
    assert torch.equal(chosen[0], chosen[1])
    assert not torch.equal(chosen[0], chosen[2])
    assert chosen[0][27]  # the energy


def test_random_directions(plain: Posterior, data: Dataset) -> None:
    """Few directions leave normal equations; rows by directions are sums of those by weights, as δ is of u."""
    known, held = split_known(marks_of(plain), data)
    found = refine(plain, known, held, directions=200)
    assert found.verdict["tangent"]["directions"] == 200
    assert force_error(found, held) < force_error(plain, held)
    space = Subspace.of(plain.model, 200, 5)
    rows = rows_of(plain.model, plain.samples[0], Sight(resident(plain, known[:1])), space).jacobian
    every = all_rows(plain, plain.samples[0], known[:1]).jacobian
    moves = torch.randn(3, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = every @ space.expand(moves)[:, : every.shape[1]].mT
    np.testing.assert_allclose(rows @ moves.mT, expected, rtol=1e-6, atol=1e-8)


def test_the_last_layer_alone(plain: Posterior, data: Dataset) -> None:
    """Only its weights and those of the readout move, and held-back frames are predicted better."""
    said: list[str] = []
    known, held = split_known(marks_of(plain), data)
    found = refine(plain, known, held, last_layer=True, say=said.append)
    last = f"layer{plain.network.num_layers - 1}"
    assert f"weights of {last} and readout: " in said[0]
    assert found.tangent is not None
    moved = {name for name, part in plain.model.layout.groups.items() if bool(found.tangent[:, part].any())}
    assert moved == {last, "readout"}
    assert force_error(found, held) < force_error(plain, held)


def test_without_held_back_frames_the_mean_over_networks_is_better_than_each(plain: Posterior, data: Dataset) -> None:
    """Draws around each network are narrowed by what the networks differ in, and their means stay."""
    known, held = split_known(marks_of(plain), data)
    found = refine(plain, known, draws=2)
    factor = found.verdict["tangent"]["narrowed"]
    assert NARROWEST <= factor < 1
    key = [NoiseKey(0, [number]) for number in (0, 1)]
    plan = Plan.of(plain, known)
    parts = []
    for number, centre in enumerate(centres(plain)):
        inference = Inference(plain, centre, plan, key[number])
        inference.learn(resident(plain, known))
        parts.append(inference.draws(2, None))
    wide = parts[0].moves[NOISES.index(DEFAULT_NOISE)]
    moves = found.tangent[[0, 2]]
    expected = space_of(plain, 0, plan, key[0]).expand(wide)
    torch.testing.assert_close(moves.mean(0), expected.mean(0).to(moves), rtol=1e-4, atol=1e-6)
    half = factor * (expected[0] - expected[1]).to(moves)
    torch.testing.assert_close(moves[0] - moves[1], half, rtol=1e-4, atol=1e-6)
    errors, variances = torch.stack([each.left_out for each in parts]).unbind(1)
    b, v = float(errors.var(0, correction=0).mean()), float(variances.mean())
    assert factor == pytest.approx(max(NARROWEST, max(0.0, 1 - b / v) ** 0.5))
    assert narrowing(parts[:1]) == 1.0


def test_an_interrupted_refinement_goes_on(plain: Posterior, data: Dataset, tmp_path: Path) -> None:
    """With the networks that are done; other settings begin again."""
    known, held = split_known(marks_of(plain), data)
    whole = refine(plain, known, held)

    class Stop(Exception):
        pass

    def interrupt(items: Iterable[int], what: str) -> Iterable[int]:
        if what == "network 2 of 2: noise levels":
            raise Stop
        return items

    with pytest.raises(Stop):
        refine(plain, known, held, folder=tmp_path, watch=interrupt)
    titles: list[str] = []

    def note(items: Iterable[int], what: str) -> Iterable[int]:
        titles.append(what)
        return items

    again = refine(plain, known, held, folder=tmp_path, watch=note)
    assert titles == [f"network 2 of 2: {stage}" for stage in ("labels", "Gram matrix", "noise levels")]
    assert torch.equal(again.tangent, whole.tangent)
    assert torch.equal(again.samples, whole.samples)
    refine(plain, known, held, folder=tmp_path, watch=note, seed=1)
    assert {title[:14] for title in titles[3:]} == {"network 1 of 2", "network 2 of 2"}


def test_a_linearisation_that_fails_is_said() -> None:
    (worse,) = warnings_of({"held_back_force_mae": (0.030, 0.040), "relative_size": 0.7})
    assert "larger force error on held-back frames (40.0 meV/Å)" in worse
    (unchecked,) = warnings_of({"held_back_force_mae": None, "relative_size": 1.3})
    assert "by 130 % of their size" in unchecked
    assert not warnings_of({"held_back_force_mae": (0.04, 0.03), "relative_size": 1.3})


def test_what_takes_a_posterior(data: Dataset) -> None:
    """In float32: the calculator, whose evaluator LAMMPS and i-PI share, calibration, evaluation, selection."""
    posterior = sample(data, small_config({"burn_in": {"steps": 200}, "data": {"validation": 8}}), device="cpu")
    known, held = split_known(marks_of(posterior), data)
    found = refine(posterior, known, held)
    atoms = held[0].to_atoms()
    atoms.calc = equibayes.Calculator(found, device="cpu")
    atoms.get_forces()
    atoms.positions[0, 0] += 0.05  # within the skin
    expected = found.predict(atoms)
    np.testing.assert_allclose(atoms.get_forces(), expected.forces, rtol=1e-3, atol=2e-3)
    np.testing.assert_allclose(atoms.calc.results["forces_std"], expected.forces_std, rtol=2e-2)
    calibrated = equibayes.calibrate(found, ethanol_frames(36).subset(range(24, 36)))
    assert calibrated.tangent is not None
    assert calibrated.predict(atoms).interval(0.9)[1].shape == (9, 3)
    assert equibayes.evaluate(found, held).force_sigma.shape == (72, 3)
    chosen = select_structures("bald", [0, 1, 2], 2, predictions=list(predict(found, held[:3], members=True)), seed=[0])
    assert len(chosen) == 2


@pytest.mark.parametrize("name", ["molecule", "solid"])
def test_rows_by_the_compiled_engine(
    name: str, data: Dataset, crystals: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same Jacobian, values and σ in float32, up to rounding; also of some labels alone."""
    frames = data if name == "molecule" else crystals
    posterior = sample(frames, small_config({"burn_in": {"steps": 40}, "data": {"validation": 4}}), device="cpu")
    found, some = {}, {}
    for engine in ("reference", "native"):
        monkeypatch.setenv("EQUIBAYES_ENGINE", engine)
        found[engine] = all_rows(posterior, posterior.samples[0], frames.subset([0, 1]))
        space, sight = Subspace.of(posterior.model, 100, 0), Sight(resident(posterior, frames.subset([0, 1])), 0.3)
        some[engine] = rows_of(posterior.model, posterior.samples[0], sight, space)
    for one, other in ((found["native"], found["reference"]), (some["native"], some["reference"])):
        difference, size = ((x - y).norm(dim=1) for x, y in ((one.jacobian, other.jacobian), (other.jacobian, 0.0)))
        for kind in other.kind.unique():  # a row may be small because its terms cancel: rounding is that of the others
            own = other.kind == kind
            assert float((difference[own] / size[own].clamp_min(size[own].mean())).max()) < 1e-5
        np.testing.assert_allclose(one.value, other.value, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(one.sigma, other.sigma, rtol=1e-5)
        assert torch.equal(one.kind, other.kind)
