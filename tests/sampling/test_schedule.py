"""Named schedules: their values, where the mass freezes, and when samples are taken."""

import math

import numpy as np
import pytest

from equibayes.errors import InputError
from equibayes.run.settings import sample_config
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule, whole_epochs


def test_burn_in_decays_exponentially_between_its_ends():
    plan = Schedule(BurnIn(steps=1001), Cycles(count=0))
    rates = plan.learning_rates()
    assert plan.total_steps == len(rates) == 1001
    assert rates[0] == pytest.approx(1e-2)
    assert rates[-1] == pytest.approx(1e-5)
    np.testing.assert_allclose(rates[1:] / rates[:-1], 1e-3 ** (1 / 1000), rtol=1e-12)


def test_burn_in_decays_linearly_between_its_ends():
    rates = Schedule(BurnIn(steps=1001, initial=3e-2, final=1e-4, decay="linear"), Cycles(count=0)).learning_rates()
    assert rates[0] == pytest.approx(3e-2)
    assert rates[-1] == pytest.approx(1e-4)
    np.testing.assert_allclose(np.diff(rates), (1e-4 - 3e-2) / 1000, rtol=1e-9)


def test_rise_and_fall_is_the_printed_formula():
    K = 50
    plan = Schedule(BurnIn(steps=0), Cycles("rise_and_fall", count=2, length=K, peak=1e-3))
    i = np.arange(1, 2 * K + 1)
    printed = 1e-3 / 2 * (np.cos(np.pi + i * np.pi / K) + 1)
    np.testing.assert_allclose(plan.learning_rates(), np.tile(printed, 2), atol=1e-18)
    assert plan.sample_steps == [2 * K - 1, 4 * K - 1]
    assert plan.at(K - 1).learning_rate == pytest.approx(1e-3)
    assert plan.at(2 * K - 1) == plan.at(2 * K - 1)._replace(collect=True, cycle=0)
    assert plan.at(2 * K - 1).learning_rate == pytest.approx(0, abs=1e-18)
    assert plan.at(2 * K).cycle == 1


def test_restart_falls_from_the_peak():
    plan = Schedule(BurnIn(steps=0), Cycles("restart", count=3, length=40, peak=2e-3))
    rates = plan.learning_rates()
    assert len(rates) == 120
    assert rates[0] == rates[40] == 2e-3
    assert bool((np.diff(rates[:40]) < 0).all())
    assert rates[39] < 2e-3 / 500
    assert plan.sample_steps == [39, 79, 119]


def test_constant():
    plan = Schedule(BurnIn(steps=0), Cycles("constant", count=3, length=7, peak=2e-3))
    assert set(plan.learning_rates()) == {2e-3}
    assert plan.sample_steps == [6, 13, 20]


@pytest.mark.parametrize("kind", ["rise_and_fall", "restart", "constant"])
def test_at_agrees_with_the_table_and_the_sample_steps(kind):
    plan = Schedule(BurnIn(steps=100), Cycles(kind, count=3, length=20), steps_per_epoch=(7, 3))
    plans = [plan.at(s) for s in range(plan.total_steps)]
    np.testing.assert_allclose([p.learning_rate for p in plans], plan.learning_rates(), rtol=1e-12, atol=1e-20)
    assert [s for s, p in enumerate(plans) if p.collect] == plan.sample_steps
    assert [p.mass_frozen for p in plans] == [s >= plan.freeze_mass_at for s in range(len(plans))]
    assert all(p.mass_frozen for p in plans if p.collect)
    assert [p.phase for p in plans] == ["burn_in"] * 105 + ["cycle"] * (len(plans) - 105)


def test_samples_fall_on_epoch_ends():
    plan = Schedule(BurnIn(steps=100), Cycles("rise_and_fall", count=3, length=20), steps_per_epoch=(30, 8))
    assert plan.burn_in_steps == 120
    assert plan.cycle_steps == 48
    for step in plan.sample_steps:
        p = plan.at(step)
        assert (p.phase_step + 1) % (30 if p.phase == "burn_in" else 8) == 0
    middle = plan.at(120 + 23)
    assert middle.learning_rate == pytest.approx(plan.cycles.peak)


def test_a_phase_is_at_most_doubled_by_whole_epochs():
    """Where an epoch is longer, the phase keeps its length."""
    assert [whole_epochs(100, epoch) for epoch in (1, 30, 99, 100, 150, 200, 201, 5000)] == [
        *(100, 120, 198, 100, 150, 200, 100, 100)
    ]
    plan = Schedule(BurnIn(steps=100), Cycles("rise_and_fall", count=3, length=20), steps_per_epoch=(5000, 5000))
    assert (plan.burn_in_steps, plan.cycle_steps, plan.total_steps) == (100, 40, 220)


@pytest.mark.parametrize(("preset", "steps"), [("quick", 30_008), ("standard", 26_257), ("paper-rmd17", 1_350_300)])
def test_presets_have_whole_epochs_of_the_demo(preset, steps):
    """970 frames of `make demo`; many more frames do not make a short run longer."""
    config = sample_config(preset)
    schedule = config.schedule(970)
    assert schedule.total_steps == steps
    assert schedule.burn_in_steps % (970 // config.burn_in.batch_size) == 0
    assert schedule.cycle_steps % (970 // config.cycles.batch_size) == 0
    if preset == "quick":
        assert config.schedule(270_000).total_steps == 30_000


@pytest.mark.parametrize("burn_in", [1, 7, 18])
def test_cycles_begin_where_the_burn_in_ends(burn_in):
    """Whatever their lengths: the first step of a `restart` has the largest γ, the last of a rise and fall none."""
    plan = Schedule(BurnIn(steps=burn_in), Cycles("restart", count=2, length=5, peak=2e-3))
    assert plan.learning_rates()[burn_in::5].tolist() == [2e-3, 2e-3]
    plan = Schedule(BurnIn(steps=burn_in), Cycles("rise_and_fall", count=2, length=5, peak=2e-3))
    np.testing.assert_allclose(plan.learning_rates()[burn_in + 4 :: 5], [2e-3, 0, 2e-3, 0], atol=1e-18)


def test_the_mass_can_be_frozen_from_the_first_step_to_the_last():
    assert Schedule(BurnIn(steps=10, freeze_mass_at=0), Cycles(count=0)).at(0).mass_frozen
    assert not Schedule(BurnIn(steps=10, freeze_mass_at=10), Cycles(count=1, length=5)).at(9).mass_frozen
    assert Schedule(BurnIn(steps=10), Cycles(count=0)).freeze_mass_at == 9, "nine tenths unless given"


def test_no_sample_before_the_freeze():
    assert Schedule(BurnIn(steps=10, freeze_mass_at=9), Cycles(count=0)).sample_steps == [9]
    assert Schedule(BurnIn(steps=10, freeze_mass_at=10), Cycles(count=0)).sample_steps == []
    assert not Schedule(BurnIn(steps=10, freeze_mass_at=10), Cycles(count=0)).at(9).collect
    assert Schedule(BurnIn(steps=10, collect=False), Cycles(count=0)).sample_steps == []


def test_noise_free_start_and_ramp():
    plan = Schedule(BurnIn(steps=100, noise_free_fraction=0.1, ramp_fraction=0.2), Cycles(count=1, length=5), 0.5)
    T = [plan.at(s).temperature for s in range(plan.total_steps)]
    assert T[:10] == [0.0] * 10
    assert T[20] == pytest.approx(0.25)
    assert T[30:] == pytest.approx([0.5] * (plan.total_steps - 30))
    sudden = Schedule(BurnIn(steps=100, noise_free_fraction=0.1), Cycles(count=0))
    assert [sudden.at(s).temperature for s in (9, 10)] == [0.0, 1.0]
    assert Schedule(BurnIn(steps=100), Cycles(count=0)).at(0).temperature == 1.0
    # only the likelihood is tempered: exp(−u/T) keeps the whole prior; an optimiser keeps it too
    assert [plan.at(s).prior_weight for s in (0, 20, 30, 102)] == pytest.approx([0.0, 0.25, 0.5, 0.5])
    still = Schedule(BurnIn(steps=100, noise_free_fraction=0.1), Cycles(count=0), 0.0)
    assert still.at(0).prior_weight == 1.0


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_energies_are_balanced_in_the_noise_free_share_alone(temperature):
    burn_in = BurnIn(steps=100, noise_free_fraction=0.1, balance=0.3)
    plan = Schedule(burn_in, Cycles(count=1, length=5), temperature)
    assert [plan.at(s).balance for s in range(plan.total_steps)] == [0.3] * 10 + [0.0] * (plan.total_steps - 10)
    assert {Schedule(BurnIn(steps=100), Cycles(count=0)).at(s).balance for s in (0, 99)} == {0.0}


def test_mixing_budget_of_the_paper():
    """Σγ: 1446 in burn-in, 1.4 between the freeze and the first sample, 25 in K = 50 000 steps, so 50 in a full
    period."""
    plan = Schedule(BurnIn(freeze_mass_at=900_000), Cycles("rise_and_fall"))
    rates = plan.learning_rates()
    assert rates[:1_000_000].sum() == pytest.approx(1446, rel=1e-3)
    assert rates[900_000:1_000_000].sum() == pytest.approx(1.4, rel=0.05)
    assert rates[1_000_000:][: plan.cycle_steps].sum() == pytest.approx(50, rel=1e-6)
    zhang = Schedule(BurnIn(), Cycles("restart"))
    between = zhang.learning_rates()[1_000_000:][: zhang.cycle_steps].sum()
    assert math.exp(-0.01 * between) == pytest.approx(0.78, abs=0.005), "correlation of samples where λ/(NM) = 0.01"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BurnIn(steps=10, freeze_mass_at=11), "freeze_mass_at"),
        (lambda: BurnIn(steps=-1), "negative"),
        (lambda: BurnIn(final=0.0), "positive"),
        (lambda: BurnIn(decay="cosine"), "'exponential' or 'linear'"),  # type: ignore[arg-type]
        (lambda: BurnIn(noise_free_fraction=0.7, ramp_fraction=0.7), "at most 1"),
        (lambda: Cycles(kind="triangle"), "rise_and_fall"),
        (lambda: Cycles(length=0), "length"),
        (lambda: Schedule(steps_per_epoch=(0, 1)), "steps_per_epoch"),
        (lambda: Schedule(BurnIn(steps=5), Cycles(count=0)).at(5), "outside"),
    ],
)
def test_wrong_settings_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
