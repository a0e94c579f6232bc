"""Chains that go on from the samples of an earlier posterior."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from equibayes.bayes.prior import StandardNormal
from equibayes.data import Dataset
from equibayes.errors import InputError
from equibayes.learning.resample import ResampleSettings, resample, seed_of, starts, warm_config
from equibayes.learning.settings import learn_config
from equibayes.learning.study import Inputs, check_same_study
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.sample import sample
from equibayes.run.chains import make_chains
from equibayes.run.prepare import hold_back, lay_out, prepare
from tests.runs import ethanol_frames, small_config
from tests.samples import water
from tests.simulate.posteriors import ETHANOL

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def before() -> Posterior:
    return sample(ethanol_frames(), small_config())


def parts(count: int) -> tuple[Dataset, Dataset]:
    train, validation = hold_back(ethanol_frames(), 4, 0)
    new = ethanol_frames(20 + count)[20:]
    return Dataset.concatenate([train, new]), validation


def test_starts_are_the_latest_of_each_chain(before: Posterior) -> None:
    assert before.chain.tolist() == [0, 1, 0, 1]
    assert torch.equal(starts(before, 2), before.samples[[2, 3]])
    assert torch.equal(starts(before, 3), before.samples[[2, 3, 2]]), "a third chain begins where another ended"
    lone = replace(before, samples=before.samples[1::2], chain=before.chain[1::2], step=before.step[1::2])
    assert torch.equal(starts(lone, 2), before.samples[[3, 3]]), "chain 0 gave no sample"


def test_the_start_is_where_the_first_step_begins_and_the_prior_stays(before: Posterior) -> None:
    train, validation = parts(4)
    prepared = lay_out(train, validation, small_config(), network=before.network, reference=before.reference)
    chains = make_chains(prepared, train, CPU, start=starts(before, 2))
    assert torch.equal(chains.begin().sampler.position, before.samples[[2, 3]])
    assert isinstance(chains.potential.prior, StandardNormal)
    assert "the start" in chains.about
    assert "the start" not in make_chains(prepared, train, CPU).about


def test_a_start_that_does_not_fit() -> None:
    data = ethanol_frames()
    prepared = prepare(data, small_config())
    with pytest.raises(InputError, match=r"a start of shape \(2, 7\) does not fit 2 chains with \d+ weights"):
        make_chains(prepared, data, CPU, start=torch.zeros(2, 7))


def test_scales_and_reference_are_taken_over(before: Posterior) -> None:
    """New frames have another mean energy and force; the weights must go on meaning the same function."""
    train, validation = parts(10)
    after = resample(before, train, validation, small_config(), seen=parts(0)[0])
    assert after.network == before.network
    assert after.reference == before.reference
    fresh = prepare(train, small_config())
    assert fresh.network.per_type_energy_scales != before.network.per_type_energy_scales, "else this proves nothing"
    assert after.data["frames"] == 26
    assert after.data["validation_frames"] == 4


def test_every_restart_has_noise_of_its_own(before: Posterior) -> None:
    """The same noise again and again would push the chains further the same way with every label."""
    one, two = parts(1)[0], parts(2)[0]
    assert seed_of(0, one) == seed_of(0, parts(1)[0])
    assert len({seed_of(0, one), seed_of(0, two), seed_of(1, one), 0}) == 4
    after = resample(before, one, parts(0)[1], small_config(), seen=parts(0)[0])
    assert after.config["seed"] == seed_of(small_config().seed, one)
    again = resample(after, two, parts(0)[1], small_config(), seen=one)
    assert again.config["seed"] == seed_of(small_config().seed, two)


def test_a_new_formula_gets_a_reference_of_its_own(before: Posterior) -> None:
    # zeros for forces would be another scale; these are small and finite
    drop = replace(water(), energy=-2000.0, forces=np.full((len(water()), 3), 0.1))
    train = Dataset([*parts(0)[0], drop])
    after = resample(before, train, parts(0)[1], small_config(), seen=parts(0)[0])
    assert after.reference.total(drop.numbers) == pytest.approx(-2000.0, abs=0.1)
    assert after.network.per_type_energy_scales == before.network.per_type_energy_scales


def test_short_and_without_a_noise_free_start() -> None:
    config = warm_config(small_config(), ResampleSettings(burn_in=0.5, initial=0.1, freeze_mass=0.25))
    assert (config.burn_in.steps, config.burn_in.initial, config.burn_in.noise_free) == (20, 1e-3, 0.0)
    plan = config.schedule(16)
    assert plan.at(0).temperature == 1.0
    assert plan.freeze_mass_at == 5
    assert warm_config(small_config(), ResampleSettings(initial=1e-6)).burn_in.initial == 1e-5, "never below its end"
    with pytest.raises(InputError, match=r"resample\.burn_in=0: must be above 0 and at most 1"):
        ResampleSettings(burn_in=0)


def test_a_warm_start_keeps_what_was_learned() -> None:
    """A posterior with an error of 118 meV/Å (see posteriors.py): 30 warm steps keep it, where 30 from random weights
    know nothing.
    """
    before = load(ETHANOL)
    frames = ethanol_frames(340)
    train, test = frames[:40], frames[300:340]
    changes = {
        "data": {"validation": 0},
        "samples": 2,
        "burn_in": {"steps": 30, "initial": 1e-3, "final": 1e-4},
        "network": {"model_dtype": "float64"},
    }
    config = small_config(changes)
    warm = resample(before, train, test[:0], config, ResampleSettings(burn_in=1.0, initial=1.0))
    cold = sample(train, config)

    def error(posterior: Posterior) -> float:
        found = posterior.predict(list(test))
        return float(np.mean([np.abs(p.forces - s.forces).mean() for p, s in zip(found, test)]))

    assert error(before) == pytest.approx(0.118, abs=0.02)
    assert error(warm) < 1.3 * error(before)
    assert error(cold) > 3 * error(before)


def test_the_same_bits_again(before: Posterior) -> None:
    train, validation = parts(4)
    first, second = (resample(before, train, validation, small_config()) for _ in range(2))
    assert torch.equal(first.samples, second.samples)
    assert not torch.equal(first.samples, before.samples)


def test_a_study_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Its settings hold two that became constants since."""
    inputs, config = Inputs(ethanol_frames(4)), learn_config("quick", "tiny")
    check_same_study(tmp_path, inputs, config)
    content = json.loads((tmp_path / "study.json").read_text())
    content["settings"]["sample"]["guard"] |= {"safety": 0.5, "iterations": 10}
    (tmp_path / "study.json").write_text(json.dumps(content))
    check_same_study(tmp_path, inputs, config)
    content["settings"]["sample"]["guard"]["safety"] = 0.4
    (tmp_path / "study.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"sample\.guard\.safety was 0\.4, is None"):
        check_same_study(tmp_path, inputs, config)


def test_a_prior_around_another_network_stays(before: Posterior, tmp_path: Path) -> None:
    """With more labels, the centre and the width that was found by its errors are those of the first run."""
    before.save(tmp_path / "first.posterior")
    center = str(tmp_path / "first.posterior")
    config = small_config({"prior": {"center": center, "width": None, "relative": True}, "tangent": "on"})
    around = sample(ethanol_frames(), config)
    assert around.tangent is not None
    train, validation = parts(8)
    again = resample(around, train, validation, config)
    assert again.tangent is not None
    assert again.config["prior"]["center"] == center
    assert again.config["prior"]["width"] == around.config["prior"]["width"]
    assert again.data["frames"] == len(train)
