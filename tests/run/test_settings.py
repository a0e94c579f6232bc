"""The paper presets are the paper's numbers, and every setting reaches the schedule."""

from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from equibayes.baselines.train import baseline_config
from equibayes.errors import InputError
from equibayes.learning.resample import ResampleSettings, warm_config
from equibayes.run.prepare import prepare
from equibayes.run.settings import sample_config
from equibayes.sampling.schedule import BurnIn, Cycles
from equibayes.sampling.sghmc import SGHMCConfig
from tests.runs import ethanol_frames, small_config

# Appendices A.1 and A.3 of the paper, "Details of the Base Model" and "Details of the Sampling Algorithm".
# A tuple has the value for rMD17 and that for PEDOT.
PAPER: dict[str, Any] = {
    # "all models were sampled from a single Markov chain"; k = 8 samples in the tables
    "chains": 1,
    "samples": 8,
    # "We always set α to 0.1, β to 0.999 and ε to 10⁻³"
    "sampler.friction": 0.1,
    "sampler.beta": 0.999,
    "sampler.epsilon": 1e-3,
    # Algorithm 1, at the temperature of the posterior
    "sampler.integrator": "paper",
    "sampler.temperature": 1.0,
    # "a batch size of 32 was used"; "except a batch size of 10 was used"
    "burn_in.batch_size": (32, 10),
    "cycles.batch_size": (32, 10),
    # "γ was exponentially decayed from 10⁻² to 10⁻⁵ during the first 10⁶ training steps"; "5·10⁵"
    "burn_in.decay": "exponential",
    "burn_in.initial": 1e-2,
    "burn_in.final": 1e-5,
    "burn_in.steps": (1_000_000, 500_000),
    # noise, prior and full batches from the first step: the outlook proposes less of them, but no result used it
    "burn_in.noise_free": 0.0,
    "burn_in.early": 0.0,
    # the likelihood alone
    "burn_in.balance": 0.0,
    # "M was kept constant after the first 9·10⁵ training steps"; "10⁵"
    "burn_in.freeze_mass": (0.9, 0.2),
    # "γ_i = γ0/2 (cos(π + iπ/K) + 1) with γ0 = 0.001 and cycle length K = 50000 [...] a single model after each cycle"
    "cycles.kind": "rise_and_fall",
    "cycles.peak": 1e-3,
    "cycles.length": 50_000,
    # "30 were reserved as a small validation set"; "a small validation set of size 30"
    "data.validation": 30,
    # "θ ~ N(0, I)"
    "prior.center": None,
    "prior.width": 1.0,
    "prior.group_widths": {},
    # "a latent dimension of 64", "even and odd parity up to l = 2", "a radial cutoff of 4 Å"
    "network.num_features": 64,
    "network.parity": True,
    "network.l_max": 2,
    "network.r_max": 4.0,
    # "a trainable Bessel basis of size 8 and two hidden layers of dimension 64"; "5 interaction blocks"
    "network.num_bessels": 8,
    "network.radial_mlp_depth": 2,
    "network.radial_mlp_width": 64,
    "network.num_layers": 5,
}
PRESETS = ("paper-rmd17", "paper-pedot")


@pytest.mark.parametrize("number", [0, 1], ids=PRESETS)
def test_paper_presets_are_the_papers_numbers(number: int) -> None:
    config = sample_config(PRESETS[number])
    expected = {key: value[number] if isinstance(value, tuple) else value for key, value in PAPER.items()}
    assert {key: attrgetter(key)(config) for key in PAPER} == expected


@pytest.mark.parametrize(("preset", "burn_in", "freeze"), [(PRESETS[0], 10**6, 900_000), (PRESETS[1], 500_000, 10**5)])
def test_paper_schedules_are_the_papers_steps(preset: str, burn_in: int, freeze: int) -> None:
    """With one minibatch per epoch nothing is rounded: first sample after the burn-in, then one every 50 000 steps."""
    config = sample_config(preset)
    schedule = config.schedule(config.burn_in.batch_size)
    assert schedule.burn_in_steps == burn_in
    assert schedule.freeze_mass_at == freeze
    assert schedule.sample_steps == [burn_in + 50_000 * n - 1 for n in range(8)]
    assert not schedule.at(freeze - 1).mass_frozen
    assert schedule.at(freeze).mass_frozen
    first = schedule.at(0)
    assert (first.learning_rate, first.temperature, first.prior_weight) == (pytest.approx(1e-2), 1.0, 1.0)
    assert schedule.at(burn_in // 4).learning_rate == pytest.approx(10**-2.75, rel=1e-4)
    assert schedule.at(burn_in - 1).learning_rate == pytest.approx(1e-5)
    middle, end = schedule.at(burn_in + 25_000 - 1), schedule.at(burn_in + 50_000 - 1)
    assert (middle.learning_rate, end.learning_rate) == (pytest.approx(1e-3), pytest.approx(0, abs=1e-18))


@pytest.mark.parametrize(("preset", "frames"), [(PRESETS[0], 970), (PRESETS[1], 100)])
def test_paper_schedules_on_the_papers_data_change_by_less_than_an_epoch(preset: str, frames: int) -> None:
    config = sample_config(preset)
    schedule, epoch = config.schedule(frames), frames // config.burn_in.batch_size
    wanted = config.burn_in.steps
    assert wanted <= schedule.burn_in_steps < wanted + epoch
    assert 0 <= schedule.freeze_mass_at - config.burn_in.freeze_mass * wanted < epoch
    assert 50_000 <= schedule.cycle_steps < 50_000 + 2 * epoch
    assert config.early_steps(frames) == 0


def test_defaults_of_the_sampler_are_the_papers() -> None:
    """For those who call the sampler without settings."""
    alone = SGHMCConfig()
    assert (alone.friction, alone.beta, alone.epsilon, alone.temperature) == (0.1, 0.999, 1e-3, 1.0)
    first, later = BurnIn(), Cycles()
    assert (first.steps, first.initial, first.final, first.decay) == (1_000_000, 1e-2, 1e-5, "exponential")
    assert (later.kind, later.length, later.peak) == ("rise_and_fall", 50_000, 1e-3)


@pytest.mark.parametrize("decay", ["exponential", "linear"])
def test_the_decay_reaches_the_schedule(decay: str) -> None:
    config = small_config({"burn_in": {"steps": 41, "batch_size": 16, "initial": 1e-2, "final": 1e-4, "decay": decay}})
    rates = config.schedule(16).learning_rates()[:41]
    expected = np.geomspace(1e-2, 1e-4, 41) if decay == "exponential" else np.linspace(1e-2, 1e-4, 41)
    np.testing.assert_allclose(rates, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["rise_and_fall", "restart", "constant"])
def test_samples_fall_on_epoch_ends_of_their_own_batch_size(kind: str) -> None:
    """Burn-in and cycles have epochs of 6 and of 9 steps; no phase given here is a multiple of its own."""
    burn_in, cycles = {"steps": 40, "batch_size": 6}, {"kind": kind, "length": 20, "batch_size": 4}
    schedule = small_config({"burn_in": burn_in, "cycles": cycles, "samples": 6}).schedule(36 + 2)
    plans = [schedule.at(step) for step in schedule.sample_steps]
    assert [plan.phase for plan in plans] == ["burn_in", "cycle", "cycle"]
    assert [(plan.phase_step + 1) % (6 if plan.phase == "burn_in" else 9) for plan in plans] == [0, 0, 0]
    assert schedule.burn_in_steps == 42
    assert schedule.cycle_steps == {"rise_and_fall": 36, "restart": 27, "constant": 27}[kind]


def test_the_mass_is_frozen_before_the_first_sample() -> None:
    """Also where the settings ask for a mass that adapts to the end of the burn-in."""
    schedule = small_config({"burn_in": {"steps": 40, "freeze_mass": 1.0}}).schedule(16)
    assert schedule.freeze_mass_at == 39
    assert schedule.sample_steps[0] == 39


def test_label_noise_is_the_temperature_of_the_chains() -> None:
    """A share of σ² in place of a temperature: the same chains, whichever of the two is given."""
    by_noise, by_temperature = small_config({"labels": {"noise": 0.1}}), small_config({"sampler": {"temperature": 0.1}})
    assert by_noise.temperature == by_temperature.temperature == 0.1
    plans = [[config.schedule(16).at(step) for step in (0, 3, 4, 39, 40)] for config in (by_noise, by_temperature)]
    assert plans[0] == plans[1]
    assert [plan.temperature for plan in plans[0]] == [0, 0, 0.1, 0.1, 0.1]
    assert small_config({"labels": {"noise": 0.1}, "sampler": {"temperature": 0.0}}).temperature == 0, "an optimiser"
    for wrong in (0.0, 1.5):
        with pytest.raises(InputError, match=r"labels\.noise"):
            small_config({"labels": {"noise": wrong}})


def test_few_frames_take_no_more_passes_than_allowed() -> None:
    """16 frames in batches of 4 are epochs of 4 steps; phases are whole epochs."""
    few, many = small_config({"burn_in": {"epochs": 5}}), small_config({"burn_in": {"epochs": 11}})
    assert few.schedule(16).burn_in_steps == 20
    assert few.schedule(16).freeze_mass_at == 18
    assert many.schedule(16).burn_in_steps == 40
    assert few.schedule(64).burn_in_steps == small_config().schedule(64).burn_in_steps == 48
    assert few.schedule(16).cycle_steps == many.schedule(16).cycle_steps
    assert baseline_config("ensemble", few, 16).schedule(16).total_steps == few.schedule(16).total_steps
    warm = warm_config(few, ResampleSettings(burn_in=0.4)).burn_in
    assert (warm.steps, warm.epochs) == (16, 2)


def test_covariance_is_one_setting() -> None:
    """The network has what the likelihood asks for, and cannot ask for something else."""
    data = ethanol_frames(40)
    asked = sample_config("quick", None, {"likelihood": {"covariance": "pair"}})
    prepared = prepare(data, asked)
    assert (prepared.network.covariance, prepared.network.rigid_noise) == ("pair", 1e-3)
    assert prepare(data, prepared.config).network == prepared.network, "the effective settings give the same"
    other = sample_config("quick", None, {"network": {"covariance": "atom"}})
    with pytest.raises(InputError, match=r"but likelihood\.covariance=isotropic; set likelihood\.covariance alone"):
        prepare(data, other)
