"""The loop of the sampler on densities that have nothing to do with atoms."""

from dataclasses import dataclass

import pytest
import torch

from equibayes.sampling import sghmc
from equibayes.sampling.chain import Batches, Course, ReferenceStepper, Stretch, looks, sample
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import BurnIn, Cycles, Schedule, StepPlan

MEAN, CURVATURE = torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([1.0, 4.0, 25.0]).double()
SCHEDULE = Schedule(BurnIn(200, 0.3, 0.1, freeze_mass_at=20), Cycles("rise_and_fall", 2, 40, 0.3))


@dataclass
class Seen:
    gradient: torch.Tensor
    step: int = 0


def gaussian(position: torch.Tensor, indices: torch.Tensor, step: int, plan: StepPlan) -> Seen:
    """∇u of N(MEAN, 1/CURVATURE)."""
    return Seen((position - MEAN) * CURVATURE, step)


def test_samples_follow_the_density() -> None:
    """2000 chains: means and variances within five standard errors (one false alarm in 10⁵ seeds)."""
    chains = 2000
    samples = sample(gaussian, torch.zeros(chains, 3).double(), SCHEDULE)
    assert samples.shape == (3, chains, 3)
    scaled = (samples[-1] - MEAN) * CURVATURE.sqrt()
    assert scaled.mean(0).abs().max() < 5 / chains**0.5
    assert (scaled.var(0) - 1).abs().max() < 5 * (2 / chains) ** 0.5


def test_minibatches_give_the_posterior_of_all_data() -> None:
    """The mean of 40 observations with unit noise and a flat prior: N(mean, 1/40)."""
    data = torch.randn(40, generator=torch.Generator().manual_seed(1)).double() + 3

    def density(position: torch.Tensor, indices: torch.Tensor, step: int, plan: StepPlan) -> Seen:
        return Seen(40 * (position - data[indices].mean(1, keepdim=True)))

    schedule = Schedule(
        BurnIn(400, 0.05, 0.01, freeze_mass_at=100), Cycles("rise_and_fall", 1, 100, 0.02), steps_per_epoch=(4, 4)
    )
    samples = sample(density, torch.zeros(1000, 1).double(), schedule, data_size=40, batch_size=10)[-1, :, 0]
    assert float(samples.mean()) == pytest.approx(float(data.mean()), abs=5 / 40**0.5 / 1000**0.5)
    assert float(samples.var() * 40) == pytest.approx(1, abs=0.25)


def test_the_loop_is_the_bare_steps() -> None:
    """Bit for bit the same as calling `sghmc.step` by hand."""
    start, key, config = torch.ones(2, 3).double(), NoiseKey(0, range(2)), sghmc.SGHMCConfig()
    state = sghmc.init(start)
    kept = []
    for step in range(SCHEDULE.total_steps):
        plan = SCHEDULE.at(step)
        sghmc.step(
            state, gaussian(state.position, start, step, plan).gradient, key, learning_rate=plan.learning_rate, data_size=1,
            config=config, temperature=plan.temperature, adapt_mass=not plan.mass_frozen, inplace=True,
        )  # fmt: skip
        if plan.collect:
            kept.append(state.position.clone())
    assert torch.equal(sample(gaussian, start, SCHEDULE), torch.stack(kept))


def test_stretches_end_at_looks_samples_and_other_batch_sizes() -> None:
    schedule = Schedule(BurnIn(20, 0.1, 0.1, freeze_mass_at=10), Cycles("restart", 2, 7, 0.1))
    course = Course(schedule, Batches(8, 4, 2, early=1, early_steps=3), NoiseKey(0, (0, 1)), interval=6)
    first, stretches = 0, []
    while first < schedule.total_steps:
        stretches.append(course.stretch(first))
        first += len(stretches[-1].plans)
    assert [(each.first, len(each.plans), each.indices.shape[2]) for each in stretches] == [
        (0, 3, 1), (3, 3, 4), (6, 6, 4), (12, 6, 4), (18, 2, 4), (20, 4, 2), (24, 3, 2), (27, 3, 2), (30, 4, 2),
    ]  # fmt: skip
    seen = list(looks(_stepper(torch.zeros(2, 3).double(), course), course, 0, _same_for_two))
    assert [look.seen.step + 1 for look in seen] == [6, 12, 18, 20, 24, 27, 30, 34], "no look where the batch changes"


def _same_for_two(planned: torch.Tensor) -> torch.Tensor:
    return planned[:, None].expand(-1, 2)


def _stepper(start: torch.Tensor, course: Course) -> ReferenceStepper[Seen]:
    return ReferenceStepper(gaussian, sghmc.init(start), course.key, sghmc.SGHMCConfig(), 1)


def test_the_loop_can_be_stopped_between_steps() -> None:
    course = Course(SCHEDULE, Batches(1, 1, 1), NoiseKey(0, (0, 1)), interval=50)
    stepper, calls = _stepper(torch.zeros(2, 3).double(), course), [0]

    def stopping() -> bool:
        calls[0] += 1
        return int(stepper.state.step) >= 70

    seen = list(looks(stepper, course, 0, _same_for_two, stopping))
    assert [look.seen.step + 1 for look in seen] == [50]
    assert int(stepper.state.step) == 70


def test_learning_rates_are_asked_after_each_look() -> None:
    """The caller may slow a chain down at a look; the next steps follow."""
    course = Course(SCHEDULE, Batches(1, 1, 1), NoiseKey(0, (0, 1)), interval=100)
    slow = torch.ones(2, dtype=torch.float64)
    stepper = _stepper(torch.zeros(2, 3).double(), course)
    for number, look in enumerate(looks(stepper, course, 0, lambda planned: planned[:, None] * slow)):
        ratio = look.learning_rate / look.plan.learning_rate if look.plan.learning_rate else slow
        assert ratio.tolist() == [1.0, 0.5 if number else 1.0]
        slow[1] = 0.5


def test_an_empty_stretch_of_a_finished_run() -> None:
    course = Course(SCHEDULE, Batches(1, 1, 1), NoiseKey(0, (0,)), interval=50)
    stepper = _stepper(torch.zeros(1, 3).double(), course)
    assert list(looks(stepper, course, SCHEDULE.total_steps, _same_for_two)) == []
    assert stepper.advance(Stretch(0, [], torch.zeros(0, 1, 1)), torch.zeros(0, 1)) is None
