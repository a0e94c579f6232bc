"""The loop around the sampler: what each chain sees, when samples are taken, and what may not influence what."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.bayes.potential import Evaluation, Potential
from equibayes.bayes.prior import CentredNormal, Flat, StandardNormal
from equibayes.data import Dataset, Structure
from equibayes.data.graph import Graph
from equibayes.engine.select import reference_stepper
from equibayes.errors import InputError
from equibayes.posterior.center import load_center
from equibayes.posterior.sample import gather, sample
from equibayes.run import Run, validation
from equibayes.run.checkpoint import Checkpoint
from equibayes.run.loop import run
from equibayes.run.prepare import lay_out, make_prior, prepare
from equibayes.run.state import RunState
from equibayes.run.store import Store
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stretch
from tests.runs import Trial, ethanol_frames, runner_of, small_config
from tests.samples import salt, water


@pytest.fixture(scope="module")
def data() -> Dataset:
    return ethanol_frames()


@pytest.fixture(scope="module")
def together(data: Dataset) -> RunState:
    """Three chains in one pass, 64 steps in float64."""
    return runner_of(data, small_config({"chains": 3, "samples": 6, "network": {"model_dtype": "float64"}})).run()


def watch(runner: Trial) -> list[tuple[torch.Tensor, Evaluation]]:
    """The minibatch [K, B] and the evaluation of every step of a run to come."""
    seen: list[tuple[torch.Tensor, Evaluation]] = []
    runner.watch(lambda position, indices, evaluation: seen.append((indices, evaluation)))
    return seen


def first_momentum(trial: Trial, start: torch.Tensor, step: int = 0) -> torch.Tensor:
    """r [K, P] after one step from rest, planned as step number `step`."""
    chains, state = trial.chains, sghmc.init(start)
    stepper = reference_stepper(chains.potential, state, chains.key, chains.config.sampler)
    plan = trial.schedule.at(step)
    indices = chains.course.batches.indices(chains.key, step, plan)
    stepper.advance(Stretch(step, [plan], indices[None]), torch.full((1, len(start)), plan.learning_rate).double())
    return state.momentum


@pytest.mark.parametrize("chain", [0, 1, 2])
def test_chains_together_are_chains_alone(data: Dataset, together: RunState, chain: int) -> None:
    """Chain k of K in one pass is chain k by itself, to rounding: 7e-16 was seen after 64 steps in float64, 3e-7 in
    float32.

    Not bit for bit: a product of matrices adds up in an order that depends on how many stand beside each other in a
    batch. A wrong seed, minibatch or mass would differ in the first digits.
    """
    config = small_config({"chains": 3, "samples": 6, "network": {"model_dtype": "float64"}})
    alone = runner_of(data, config, identities=[chain]).run()
    assert len(alone.samples) == len(together.samples) == 2
    for ours, theirs in zip(alone.samples, together.samples):
        torch.testing.assert_close(ours[0], theirs[chain], rtol=0, atol=1e-12)
    for name in ("momentum", "position"):
        mine, other = getattr(alone.sampler, name), getattr(together.sampler, name)
        torch.testing.assert_close(mine[0], other[chain], rtol=0, atol=1e-12)
    torch.testing.assert_close(alone.sampler.mass.mass[0], together.sampler.mass.mass[chain], rtol=1e-12, atol=0)


def test_the_same_run_twice_has_the_same_bits(data: Dataset, together: RunState) -> None:
    again = runner_of(data, small_config({"chains": 3, "samples": 6, "network": {"model_dtype": "float64"}})).run()
    assert torch.equal(torch.stack(again.samples), torch.stack(together.samples))
    assert again.history == together.history


def test_another_seed_is_another_run(data: Dataset) -> None:
    first, second = (
        runner_of(data, small_config({"seed": seed, "burn_in": {"steps": 4}, "samples": 2})).run() for seed in (0, 1)
    )
    assert not torch.isclose(first.samples[0], second.samples[0]).all(1).any()


def test_every_chain_has_its_own_weights_noise_and_minibatches(data: Dataset) -> None:
    """Also with the same weights to begin with, chains part at once, by their minibatches, and without those by their
    noise."""
    config = small_config({"chains": 2, "samples": 2, "burn_in": {"steps": 8, "noise_free": 0.0}})
    runner = runner_of(data, config)
    seen = watch(runner)
    state = runner.run()
    start = runner.potential.model.layout.start(2, 0)
    random = [p.start == "normal" for p in runner.potential.model.layout.parameters for _ in range(p.size)]
    assert (start[0] != start[1])[torch.tensor(random)].all()
    assert not torch.equal(state.samples[-1][0], state.samples[-1][1])
    for epoch in (seen[:4], seen[4:8]):
        orders = torch.cat([indices for indices, _ in epoch], 1)
        assert orders.sort(dim=1).values.tolist() == [list(range(16))] * 2, "an epoch runs through every frame once"
        assert not torch.equal(orders[0], orders[1])
    first, second = (torch.cat([indices for indices, _ in seen[i : i + 4]], 1) for i in (0, 4))
    assert not torch.equal(first, second), "every epoch has another order"
    whole = small_config({"chains": 2, "samples": 2, "burn_in": {"steps": 8, "batch_size": 16, "noise_free": 0.0}})
    twins = runner_of(data, whole)
    momentum = first_momentum(twins, start[:1].repeat(2, 1))
    assert not torch.equal(momentum[0], momentum[1])


def test_validation_does_not_influence_the_chain(data: Dataset) -> None:
    """Looking at the held-back frames, often, seldom or never, changes no bit of the samples."""
    states = [
        runner_of(data, small_config({"samples": 2, "burn_in": {"steps": 24}, "output": {"validations": n}})).run()
        for n in (0, 1, 1000)
    ]
    assert "validation_force_mae" not in str(states[0].history)
    assert sum("validation_force_mae" in record for record in states[2].history) == 3
    for other in states[1:]:
        assert torch.equal(other.samples[0], states[0].samples[0])


def test_samples_come_after_the_freeze_and_the_mass_stays(data: Dataset) -> None:
    """No sample from a chain with a moving mass (it would have another law), not even if the user asks for a late
    freeze."""
    runner = runner_of(data, small_config({"burn_in": {"freeze_mass": 1.0}, "output": {"checkpoint_seconds": 0}}))
    masses: list[torch.Tensor] = []

    class Noting(Store):
        def save(self, step: int, state: Checkpoint) -> None:
            if state.record["samples"] > len(masses):
                assert step > runner.schedule.freeze_mass_at
                masses.append(state.tensors["sampler.mass.mass"].clone())

    state = run(runner.chains, Noting())
    assert len(state.samples) == len(masses) == 2
    assert torch.equal(masses[0], masses[1])
    assert int(state.sampler.mass.updates) == runner.schedule.freeze_mass_at == 39


def test_samples_are_spread_over_chains_and_cycles(data: Dataset) -> None:
    config = small_config({"chains": 3, "samples": 7, "burn_in": {"steps": 4}, "cycles": {"length": 8}})
    prepared = prepare(data, config)
    runner = runner_of(data, config, prepared=prepared)
    posterior = gather(prepared, runner.run())
    assert posterior.chain.tolist() == [2, 0, 1, 2, 0, 1, 2]
    assert posterior.step.tolist() == [3, 11, 11, 11, 19, 19, 19], "the last steps count; the rest is cut at the front"
    assert posterior.samples.shape == (7, runner.potential.model.layout.size)
    assert len({tuple(row.tolist()) for row in posterior.samples}) == 7


def test_fast_burn_in(data: Dataset) -> None:
    """Smaller batches in the first share of the burn-in, no noise in the first share; then as usual."""
    config = small_config(
        {"samples": 2, "burn_in": {"steps": 40, "noise_free": 0.25, "early": 0.5, "early_batch_size": 2}}
    )
    runner = runner_of(data, config)
    seen = watch(runner)
    state = runner.run()
    assert [indices.shape[1] for indices, _ in seen] == [2] * 20 + [4] * 20
    early = torch.cat([indices for indices, _ in seen[:8]], 1)
    assert early.sort(dim=1).values.tolist() == [list(range(16))] * 2, "the small batches, too, run through every frame"
    temperatures = {record["step"]: record["temperature"] for record in state.history}
    assert temperatures == {10: 0.0, 20: 1.0, 30: 1.0, 40: 1.0}
    cold, warm = state.history[0]["kinetic_temperature"], state.history[2]["kinetic_temperature"]
    assert max(cold) < 0.2 < 0.7 < min(warm)


def test_a_cold_start_leaves_the_prior_out(data: Dataset) -> None:
    """With it, and without noise, the chain would go where weights that the data leave free are 0, far from the
    posterior's mass."""
    config = small_config({"samples": 2, "burn_in": {"steps": 40, "noise_free": 0.5}})
    trial = runner_of(data, config)
    model, resident = trial.potential.model, trial.potential.data
    moved = {}
    for prior in (StandardNormal(), Flat()):
        own = Trial(replace(trial.chains, potential=Potential(model, resident, prior)))
        for step in (3, 30):
            moved[type(prior), step] = first_momentum(own, model.layout.start(config.chains, 0), step)
    assert torch.allclose(moved[StandardNormal, 3], moved[Flat, 3], rtol=1e-3, atol=1e-7)
    assert not torch.allclose(moved[StandardNormal, 30], moved[Flat, 30], rtol=1e-2)


def test_held_back_frames_are_looked_at_whatever_the_numbers(data: Dataset) -> None:
    """Also where the rhythms of records and of validations have no common multiple within the run."""
    options = {"samples": 2, "burn_in": {"steps": 48}, "guard": {"interval": 1}}
    for records, validations in ((7, 5), (10, 3), (400, 40)):
        output = {"records": records, "validations": validations}
        history = runner_of(data, small_config({**options, "output": output})).run().history
        looks = [record["step"] for record in history if "validation_force_mae" in record]
        assert len(looks) >= min(validations, 5), (records, validations, looks)
        assert len(history) <= 2 * max(records, 48)


def test_standard_prior_is_the_default(data: Dataset) -> None:
    assert isinstance(make_prior(prepare(data, small_config()), "cpu"), StandardNormal)


def test_prior_centred_on_a_posterior(data: Dataset, tmp_path: object) -> None:
    """A narrow prior around the samples of another posterior holds each chain at its own; a width by group lets one
    group go."""
    file = f"{tmp_path}/first.posterior"
    first = sample(data, small_config({"samples": 2, "burn_in": {"steps": 8}}), run=Run(file, device="cpu"))
    settings = {"center": file, "width": 1e-4, "group_widths": {"force_head": 1.0}}
    config = small_config({"samples": 2, "burn_in": {"steps": 40, "initial": 1e-4}, "prior": settings})
    prepared = prepare(data, config, center=load_center(file))
    prior = make_prior(prepared, "cpu")
    assert isinstance(prior, CentredNormal)
    heads = prepared.model.layout.groups["force_head"].start
    each = "two chains, each with a sample of the other posterior"
    assert torch.equal(prior.center[:, :heads], first.samples[:, :heads]), each
    alone = make_prior(prepared, "cpu", [1])
    assert isinstance(alone, CentredNormal)
    assert torch.equal(alone.center, prior.center[1:])
    groups = prepared.model.layout.groups
    assert torch.equal(prior.width[groups["force_head"]], torch.ones(705, dtype=torch.float32))
    assert torch.equal(prior.width[groups["layer0"]], torch.full((192,), 1e-4, dtype=torch.float32))
    gradient = prior.gradient(prior.center + 1e-4)
    torch.testing.assert_close(
        gradient[:, groups["layer0"]], torch.full((2, 192), 1e4, dtype=torch.float32), rtol=1e-2, atol=0
    )
    torch.testing.assert_close(
        gradient[:, groups["force_head"]], torch.full((2, 705), 1e-4, dtype=torch.float32), rtol=1e-2, atol=0
    )
    state = runner_of(data, config, prepared=prepared).run()
    away = (state.samples[-1] - prior.center).abs()
    assert away[:, groups["layer0"]].max() < 1e-3
    assert away[:, groups["force_head"]].mean() > 1e-2
    assert not torch.equal(state.samples[-1][0], state.samples[-1][1])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"group_widths": {"layer7": 1.0}}, "unknown parameter group 'layer7'; groups are: embedding, bessel, layer0"),
        ({"center": "nowhere.posterior"}, "nowhere.posterior: no such file"),
    ],
)
def test_prior_settings_that_cannot_be(data: Dataset, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_prior(prepare(data, small_config({"prior": settings}), center=load_center(settings.get("center"))), "cpu")


def test_prior_keeps_the_scales_of_its_centre(data: Dataset, tmp_path: object) -> None:
    """Other frames have other scales; with them the weights of the centre would be another function."""
    file = f"{tmp_path}/first.posterior"
    first = sample(data, small_config({"samples": 2, "burn_in": {"steps": 4}}), run=Run(file, device="cpu"))
    fewer = data.subset(range(len(data) - 5))
    alone = prepare(fewer, small_config()).network
    assert alone.per_type_energy_scales != first.network.per_type_energy_scales
    center = load_center(file)
    centred = prepare(fewer, small_config({"prior": {"center": file}}), center=center)
    assert centred.network.per_type_energy_scales == first.network.per_type_energy_scales
    assert centred.network.avg_num_neighbors == first.network.avg_num_neighbors


def test_the_network_is_that_of_the_centre(data: Dataset, tmp_path: object) -> None:
    file = f"{tmp_path}/first.posterior"
    first = sample(data, small_config({"samples": 2, "burn_in": {"steps": 4}}), run=Run(file, device="cpu"))
    config = small_config({"network": {"num_layers": 3, "avg_num_neighbors": 3.0}, "prior": {"center": file}})
    prepared = prepare(data, config, center=load_center(file))
    assert prepared.network.num_layers == prepared.config.network.num_layers == first.network.num_layers
    assert prepared.network.avg_num_neighbors == first.network.avg_num_neighbors


def without_energies(data: Dataset) -> Dataset:
    return Dataset([replace(structure, energy=None) for structure in data], "forces only")


def labelled(structure: Structure, seed: int) -> Structure:
    """With forces from springs to a random place: enough for a run."""
    pull = np.random.default_rng(seed).normal(size=(len(structure), 3))
    return replace(structure, energy=-10.0 * len(structure) + float(pull.sum()), forces=pull)


def mixed() -> Dataset:
    """3 and 9 atoms, other elements."""
    return Dataset([labelled(water(seed) if seed % 3 else ethanol_frames()[seed], seed) for seed in range(12)], "mixed")


def periodic() -> Dataset:
    return Dataset([labelled(salt(seed), seed) for seed in range(12)], "salt")


@pytest.mark.parametrize(
    "make",
    [lambda: without_energies(ethanol_frames(12)), mixed, periodic],
    ids=["forces only", "mixed sizes", "periodic"],
)
def test_kinds_of_data(make: Callable[[], Dataset]) -> None:
    data = make()
    posterior = sample(data, small_config({"burn_in": {"steps": 16}, "cycles": {"length": 4}}), run=Run(device="cpu"))
    assert posterior.samples.isfinite().all()
    assert posterior.data["frames"] == 8
    errors = [record["force_mae"] for record in posterior.history]
    assert np.isfinite(np.array(errors, dtype=float)).all()


def test_without_energies_the_forces_still_count(data: Dataset) -> None:
    """Without energy labels the energy head has no likelihood: its gradient is the prior's alone; others learn as
    before."""
    config = small_config()
    bare = without_energies(data)
    runner = runner_of(bare, config)
    theta = runner.potential.model.layout.start(2, 0) + 0.1
    gradient = runner.potential(theta, torch.arange(4)[None].repeat(2, 1)).gradient
    energy_head = runner.potential.model.layout.groups["energy_head"]
    torch.testing.assert_close(gradient[:, energy_head], theta[:, energy_head])
    assert (gradient[:, : energy_head.start] - theta[:, : energy_head.start]).abs().mean() > 0.5
    assert prepare(bare, config).reference.total([6, 6, 8]) == 0.0


def test_padding_of_mixed_sizes_does_not_count() -> None:
    """The potential of frames of different sizes in one minibatch is the sum of those of single frames (in float64)."""
    config = small_config({"network": {"model_dtype": "float64"}, "data": {"validation": 0}})
    runner = runner_of(mixed(), config)
    potential, theta = runner.potential, runner.potential.model.layout.start(1, 0, torch.float64) + 0.05
    prior = potential.prior.neg_log_density(theta)
    each = torch.stack([potential(theta, torch.tensor([[i]])).potential - prior for i in range(12)]).mean(0)
    all_at_once = potential(theta, torch.arange(12)[None]).potential - prior
    torch.testing.assert_close(all_at_once, each, rtol=1e-10, atol=0)


def test_repeated_frames_are_not_used_for_validation(data: Dataset) -> None:
    """A file with every frame twice: what is held back must not be known."""
    twice = Dataset([*data, *data], "twice")
    prepared = prepare(twice, small_config({"data": {"validation": 10}}))
    known = {structure.geometry_digest() for structure in prepared.train}
    assert len(prepared.train) == 30
    assert len(prepared.validation) < 10
    assert not known & {structure.geometry_digest() for structure in prepared.validation}


def test_frames_that_are_held_back_already(data: Dataset) -> None:
    """All of the data are learned from; what is known among the others is left out."""
    train, others = data[:10], Dataset([*data[12:15], data[3]], "others")
    prepared = prepare(train, small_config({"data": {"validation": 0}}), others)
    assert prepared.train.fingerprint() == train.fingerprint()
    assert [s.source for s in prepared.validation] == [s.source for s in data[12:15]]
    with pytest.raises(InputError, match=r"others: .* set data.validation=0"):
        prepare(train, small_config({"data": {"validation": 2}}), others)


def test_held_back_frames_are_evaluated_in_parts(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones do not fit the memory together; what is said of them does not depend on it."""
    config = small_config({"data": {"validation": 7}, "network": {"model_dtype": "float64"}})
    prepared = prepare(data, config)
    frames, theta = prepared.resident(prepared.validation, "cpu"), prepared.model.layout.start(2, 0, torch.float64)
    whole = validation.validate(prepared.model, theta, frames)
    sizes = []

    class Counting(StochasticModel):
        def __call__(self, flat: torch.Tensor, graph: Graph, **options: Any) -> ModelOutput:
            sizes.append(graph.num_atoms.shape[1])
            return super().__call__(flat, graph, **options)

    monkeypatch.setattr(validation, "EDGES_AT_ONCE", 3 * 2 * frames.frames.sender[0].numel())
    assert validation.validate(Counting(prepared.network), theta, frames) == whole
    assert sizes == [3, 3, 1]


def test_fewer_frames_than_a_batch(data: Dataset) -> None:
    """The batch is then the whole set."""
    config = small_config({"data": {"validation": 17}, "burn_in": {"steps": 4, "batch_size": 8}, "samples": 2})
    runner = runner_of(data, config)
    seen = watch(runner)
    runner.run()
    assert {indices.shape for indices, _ in seen} == {(2, 3)}


def test_energy_shifts_of_the_user_are_the_reference(data: Dataset) -> None:
    shifts = {"H": -13.6, "C": -1030.0, "O": -2040.0}
    prepared = prepare(data, small_config({"network": {"per_type_energy_shifts": shifts}}))
    assert prepared.reference.kind == "given"
    assert prepared.reference.total([1, 6, 8]) == pytest.approx(-3083.6)
    with pytest.raises(InputError, match="both say what an energy of 0 is"):
        prepare(
            data, small_config({"network": {"per_type_energy_shifts": shifts}, "data": {"energy_reference": "lstsq"}})
        )


def test_free_atoms_in_the_data_are_the_reference(data: Dataset) -> None:
    """Their energies leave several eV/atom of cohesion to learn: the per-species shifts, which are then sampled."""
    free = {1: -13.6, 6: -1030.0, 8: -2040.0}
    known = Dataset(data.structures, "known", free)
    prepared = prepare(known, small_config())
    assert prepared.reference.kind == "isolated"
    assert prepared.reference.shifts == free
    assert prepared.network.per_type_energy_shifts_trainable
    fitted = prepare(known, small_config({"data": {"energy_reference": "lstsq"}}))
    assert not fitted.network.per_type_energy_shifts_trainable


def test_a_frame_without_forces_is_refused(data: Dataset) -> None:
    """Taken for forces of 0 they would be learned.  By every way to a run: data, held-back frames, parts of a study."""
    frames = list(data)
    frames[3] = replace(frames[3], forces=None)
    missing = Dataset(frames, "made")
    config = small_config({"data": {"validation": 0}})
    with pytest.raises(InputError, match="frame 3: has no forces to learn from; label the frame or leave it out"):
        prepare(missing, small_config())
    with pytest.raises(InputError, match="frame 3: has no forces"):
        prepare(data[10:], config, missing[:10])
    with pytest.raises(InputError, match="frame 3: has no forces"):
        lay_out(missing, data[:0], config)
    unnamed = Dataset([replace(frame, source="") for frame in frames], "made")
    with pytest.raises(InputError, match=r"frame 3 \(from 0\): has no forces"):
        prepare(unnamed, small_config())
