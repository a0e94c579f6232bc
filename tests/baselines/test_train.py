"""The baselines are what they say: same frames and steps, another objective, and predictions that behave."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from equibayes.baselines.train import baseline_chains, baseline_config, train
from equibayes.bayes.potential import Dropout, Potential
from equibayes.bayes.prior import Flat
from equibayes.engine.select import reference_stepper
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.predict import predict
from equibayes.run import Run
from equibayes.run.chains import make_chains
from equibayes.run.loop import AVERAGE_DECAY, run
from equibayes.run.prepare import prepare
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stretch
from equibayes.sampling.dropout import RATE, STREAM_TRAIN, dropout_mask
from equibayes.sampling.noise import NoiseKey
from tests.runs import Trial, ethanol_frames, small_config

DATA = ethanol_frames()
CPU = Run(device="cpu")
CONFIG = small_config({"network": {"model_dtype": "float64"}})


@pytest.fixture(scope="module")
def trained() -> dict[str, Posterior]:
    return {kind: train(kind, DATA, CONFIG, run=CPU) for kind in ("ensemble", "dropout", "point")}


def test_number_of_members(trained: dict[str, Posterior]) -> None:
    assert [len(trained[kind]) for kind in ("ensemble", "dropout", "point")] == [4, 4, 1]


def test_same_frames_and_steps_as_the_posterior(trained: dict[str, Posterior]) -> None:
    prepared = prepare(DATA, CONFIG)
    steps = CONFIG.schedule(len(prepared.train)).total_steps
    for posterior in trained.values():
        assert posterior.data["fingerprint"] == prepared.train.fingerprint()
        assert int(posterior.step.max()) == steps - 1  # counted from 0
        assert posterior.network == prepared.network


@pytest.mark.parametrize("kind", ["ensemble", "dropout", "point"])
def test_baselines_are_amsgrad_over_one_long_decay(kind: str) -> None:
    """The mass adapts to the end, as AMSGrad's does: of 64 steps the last alone has the mass of the step before."""
    own = baseline_config(kind, small_config({"burn_in": {"freeze_mass": 0.1, "early": 0.5}}), 16)
    schedule = own.schedule(16)
    assert (own.burn_in.freeze_mass, own.burn_in.early) == (1.0, 0.0)
    assert schedule.freeze_mass_at == schedule.total_steps - 1 == 63
    assert schedule.sample_steps == [63]
    plans = [schedule.at(step) for step in range(64)]
    assert {plan.temperature for plan in plans} == {0.0}
    assert {plan.prior_weight for plan in plans} == {1.0}
    assert plans[0].learning_rate == pytest.approx(1e-2)
    assert plans[-1].learning_rate == pytest.approx(1e-5)
    assert own.sampler.epsilon == (1e-8 if kind == "point" else 1e-3)
    assert own.chains == own.samples == (4 if kind == "ensemble" else 1)


def test_members_of_the_ensemble_differ(trained: dict[str, Posterior]) -> None:
    samples = trained["ensemble"].samples
    distance = torch.cdist(samples, samples)
    assert float(distance[~torch.eye(4, dtype=torch.bool)].min()) > 1


def test_temperature_zero_has_no_noise() -> None:
    """An ensemble's member depends on the seed through its start and its minibatches alone: with full batches in the
    same order and the same start, two seeds end at the same place."""
    start = prepare(DATA, CONFIG).model.layout.start(1, 0, torch.float64)
    config = small_config(
        {"network": {"model_dtype": "float64"}, "burn_in": {"batch_size": 16}, "chains": 1, "samples": 1}
    )
    ends = []
    for seed in (1, 2):
        own = replace(baseline_config("point", config, 16), seed=seed)
        ready = replace(prepare(DATA, replace(own, seed=0)), config=own)
        ends.append(run(make_chains(ready, DATA, "cpu", start=start)).sampler.position)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-9)


def test_point_objective_is_nequips() -> None:
    """Equal weights of mean squared force component and mean squared energy per atom: the same gradient, up to a
    factor."""
    prepared = prepare(DATA, CONFIG)
    resident = prepared.resident(prepared.train, "cpu")
    theta = prepared.model.layout.start(2, 0, torch.float64)
    indices = torch.arange(4)[None]
    found = Potential(prepared.model, resident, Flat(), objective="squares")(theta, indices).gradient
    graph, labels = resident.batch(indices)
    free = theta.clone().requires_grad_()
    output = prepared.model(free, graph, differentiable=True)
    forces = (output.forces - labels.forces).square().mean((1, 2))
    energy = ((output.energy - labels.energy) / graph.num_atoms).square().mean(1)
    (expected,) = torch.autograd.grad((forces + energy).sum(), free)
    ratio = found.norm(dim=1) / expected.norm(dim=1)
    torch.testing.assert_close(found / ratio[:, None], expected)
    assert float(ratio[0]) == pytest.approx(len(resident) * 27 / 2)


def test_point_has_one_sigma_its_error_on_held_back_frames(trained: dict[str, Posterior]) -> None:
    posterior, held = trained["point"], prepare(DATA, CONFIG).validation
    predictions = list(predict(posterior, held))
    sigma = np.concatenate([p.forces_std for p in predictions])
    error = np.concatenate([p.forces - s.forces for p, s in zip(predictions, held)])
    np.testing.assert_allclose(sigma, np.sqrt(np.mean(error**2)), rtol=1e-6)
    energies = np.array([p.energy - s.energy for p, s in zip(predictions, held)])
    np.testing.assert_allclose([p.energy_std for p in predictions], np.sqrt(np.mean(energies**2)), rtol=1e-6)


def test_point_needs_held_back_frames() -> None:
    with pytest.raises(InputError, match=r"data\.validation"):
        train("point", DATA, small_config({"data": {"validation": 0}}), run=CPU)


def test_point_keeps_a_moving_average() -> None:
    ready = prepare(DATA, baseline_config("point", CONFIG, 16))
    trial = Trial(baseline_chains("point", ready, DATA, "cpu"))
    assert trial.chains.average
    seen: list[torch.Tensor] = []
    trial.watch(lambda position, indices, evaluation: seen.append(position.clone()))
    state = trial.run()
    average = seen[0]
    for position in [*seen[1:], state.sampler.position]:
        average = AVERAGE_DECAY * average + (1 - AVERAGE_DECAY) * position
    torch.testing.assert_close(state.samples[-1], average)


def test_masks_drop_one_feature_in_64_and_keep_the_mean() -> None:
    mask = dropout_mask(NoiseKey(3, (0, 1)), 5, (500, 64), RATE, torch.zeros(1, dtype=torch.float64))
    assert mask.shape == (2, 500, 64)
    assert set(mask.unique().tolist()) == {0.0, 64 / 63}
    assert float((mask == 0).double().mean()) == pytest.approx(RATE, abs=4 * np.sqrt(RATE / 64000))
    assert not torch.equal(mask[0], mask[1])


def test_dropout_acts_in_training() -> None:
    prepared = prepare(DATA, CONFIG)
    resident = prepared.resident(prepared.train, "cpu")
    theta, indices = prepared.model.layout.start(1, 0, torch.float64), torch.arange(4)[None]
    dropout = Dropout(RATE, 0, STREAM_TRAIN)
    potential = Potential(prepared.model, resident, Flat(), dropout=dropout)
    plan = CONFIG.schedule(16).at(0)
    with_masks = []
    for step in (0, 1):
        state = sghmc.init(theta)
        stepper = reference_stepper(potential, state, NoiseKey(0, (0,)), CONFIG.sampler)
        seen = stepper.advance(Stretch(step, [plan], indices[None]), torch.zeros(1, 1, dtype=torch.float64))
        assert seen is not None
        with_masks.append(seen.potential)
    plain = Potential(prepared.model, resident, Flat())(theta, indices).potential
    assert with_masks[0] != with_masks[1]
    assert with_masks[0] != plain


def test_dropout_predictions(trained: dict[str, Posterior], tmp_path) -> None:
    """Members are masks of one network; batch = single; the same again from its file."""
    posterior = trained["dropout"]
    assert torch.equal(posterior.samples[0], posterior.samples[3])
    posterior.save(tmp_path / "d.posterior")
    together = list(predict(load(tmp_path / "d.posterior"), DATA[:3], members=True))
    for structure, first in zip(DATA[:3], together):
        (second,) = predict(posterior, [structure], members=True)
        np.testing.assert_allclose(first.forces, second.forces, rtol=1e-9, atol=1e-12)
        assert first.members is not None
        assert np.ptp(first.members["forces"], axis=0).max() > 1e-6
        assert first.energy_epistemic > 0


def test_unknown_baseline() -> None:
    with pytest.raises(InputError, match="choose one of ensemble, dropout, point"):
        train("forest", DATA, CONFIG)
