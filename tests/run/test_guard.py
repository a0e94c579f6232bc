"""The guard: a diverging chain is caught, rolled back and retried with a smaller step, and nobody else notices."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from equibayes.bayes.potential import Evaluation
from equibayes.config import merge
from equibayes.data import Dataset
from equibayes.engine.select import VARIABLE, make_stepper
from equibayes.errors import InputError
from equibayes.posterior.sample import gather
from equibayes.run.guard import Guard, largest_difference
from equibayes.run.loop import Loop
from equibayes.run.prepare import prepare
from equibayes.run.settings import GuardSettings
from equibayes.run.state import RunState
from equibayes.run.store import Store
from equibayes.sampling.chain import Look
from equibayes.sampling.schedule import StepPlan
from equibayes.sampling.sghmc import SGHMCConfig
from tests.run.test_loop import mixed
from tests.runs import Listener, Trial, ethanol_frames, runner_of, small_config

# ---- what happens to a run (64 steps, looks every 10, mass frozen at 10, samples after 40 and 64)

EARLY_FREEZE: dict[str, Any] = {"burn_in": {"freeze_mass": 0.25, "noise_free": 0.0}}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return ethanol_frames()


@pytest.fixture(scope="module")
def undisturbed(data: Dataset) -> RunState:
    """By the reference, which also makes the disturbed runs: an engine would not call a spoiled potential."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "reference")
        return runner_of(data, small_config(EARLY_FREEZE)).run()


def disturbed(
    data: Dataset,
    spoil: Callable[[int, torch.Tensor], None],
    changes: dict[str, Any] = EARLY_FREEZE,
    **guard: Any,
) -> tuple[Trial, Callable[[], RunState], Listener]:
    """A run whose gradient [K, P] is spoiled in place by `spoil(step, gradient)`."""
    listener, calls = Listener(), [0]
    runner = runner_of(data, small_config(changes, {"guard": guard}), display=listener)

    def spoiled(position: torch.Tensor, indices: torch.Tensor, evaluation: Evaluation) -> None:
        spoil(calls[0], evaluation.gradient)
        calls[0] += 1

    runner.watch(spoiled)
    return runner, runner.run, listener


def test_a_nan_is_caught_at_the_next_look_and_retried(data: Dataset, undisturbed: RunState) -> None:
    """Chain 1 meets a NaN in step 24: found at 30, put back to 20, half the step; chain 0 keeps every bit."""

    def once(step: int, gradient: torch.Tensor) -> None:
        if step == 24:
            gradient[1, 7] = torch.nan

    _, run, listener = disturbed(data, once)
    state = run()
    assert listener.messages == state.events
    assert state.events == [
        "chain 1 was diverging at step 30: rolled back to step 20, learning rate times 0.5 from here on"
    ]
    assert state.slowdown.tolist() == [1.0, 0.5]
    assert not state.failed.any()
    for ours, theirs in zip(state.samples, undisturbed.samples):
        assert torch.equal(ours[0], theirs[0])
        assert ours[1].isfinite().all()
        assert not torch.equal(ours[1], theirs[1])


def test_while_the_mass_adapts_a_second_divergence_begins_the_chain_anew(data: Dataset) -> None:
    """Chain 1 meets a NaN in steps 14 and 24; rolling back did not help, so from step 30 on it starts from its first
    weights."""
    seen: dict[int, torch.Tensor] = {}

    def twice(step: int, gradient: torch.Tensor) -> None:
        if step in (14, 24):
            gradient[1, 7] = torch.nan

    runner, _, _ = disturbed(data, twice, {"burn_in": {"freeze_mass": 0.9}})
    runner.watch(lambda position, indices, evaluation: seen.setdefault(len(seen), position.clone()))
    state = runner.run()
    assert [message.split(": ")[1].split(",")[0] for message in state.events] == [
        "rolled back to step 10",
        "rolled back to step 0",
    ]
    assert torch.equal(seen[20][1], seen[10][1])
    assert torch.equal(seen[30][1], seen[0][1])
    assert not torch.equal(seen[30][0], seen[0][0]), "the other chain goes on"
    assert state.samples[-1].isfinite().all()


def test_a_diverging_chain_is_caught_before_it_is_nan(data: Dataset, undisturbed: RunState) -> None:
    """From step 22 on chain 1 sees 300 times the curvature, above the limit; with the step halved often enough it goes
    on."""

    def stiff(step: int, gradient: torch.Tensor) -> None:
        if step >= 22:
            gradient[1] *= 300.0

    _, run, listener = disturbed(data, stiff, interval=2, retries=20)
    state = run()
    assert "chain 1 was diverging at step" in listener.messages[0]
    first = int(listener.messages[0].split("at step ")[1].split(":")[0])
    assert 22 < first <= 32, "caught within a few looks"
    assert all(message.startswith("chain 1 was diverging") for message in listener.messages)
    assert not state.failed.any()
    assert state.slowdown[1] < 1
    assert torch.equal(state.samples[-1][0], undisturbed.samples[-1][0])
    assert state.samples[-1].isfinite().all()


def test_a_chain_is_given_up_and_the_others_go_on(data: Dataset, undisturbed: RunState) -> None:
    def always(step: int, gradient: torch.Tensor) -> None:
        if step >= 12:
            gradient[1] = torch.nan

    runner, run, listener = disturbed(data, always, retries=2)
    state = run()
    assert [message.split(";")[0].split(":")[0] for message in listener.messages] == [
        "chain 1 was diverging at step 20",
        "chain 1 was diverging at step 30",
        "chain 1 diverged 3 times and is given up at step 40",
    ]
    assert state.failed.tolist() == [False, True]
    for ours, theirs in zip(state.samples, undisturbed.samples):
        assert torch.equal(ours[0], theirs[0])
    prepared = prepare(data, runner.chains.config)
    posterior = gather(prepared, state)
    assert posterior.chain.tolist() == [0, 0]
    assert posterior.verdict["failed_chains"] == [1]
    assert any("chains [1] diverged and gave no samples" in warning for warning in posterior.verdict["warnings"])
    last = posterior.history[-1]
    assert last["validation_force_mae_of_mean"] == pytest.approx(last["validation_force_mae"][0], rel=1e-6), (
        "the mean over chains is that over the good ones"
    )


@pytest.mark.parametrize("guard", [{"retries": 1}, {"enabled": False}])
def test_all_chains_fail(data: Dataset, guard: dict[str, Any]) -> None:
    """One error that says so; no posterior of NaN, whatever the user switched off."""

    def both(step: int, gradient: torch.Tensor) -> None:
        gradient[:] = torch.nan

    _, run, _ = disturbed(data, both, **guard)
    with pytest.raises(InputError, match=r"every chain diverged; lower burn_in\.initial"):
        run()


def test_with_the_guard_off_a_nan_ends_its_chain(data: Dataset, undisturbed: RunState) -> None:
    def once(step: int, gradient: torch.Tensor) -> None:
        if step == 24:
            gradient[1, 7] = torch.nan

    _, run, listener = disturbed(data, once, enabled=False)
    state = run()
    assert state.failed.tolist() == [False, True]
    assert listener.messages[0].startswith("chain 1 diverged once and is given up at step 30; the others go on")
    assert torch.equal(state.samples[-1][0], undisturbed.samples[-1][0])


def test_what_was_done_survives_a_resume(data: Dataset, tmp_path: Path) -> None:
    """The guard's memory is part of a checkpoint."""

    def once(step: int, gradient: torch.Tensor) -> None:
        if step == 24:
            gradient[1, 7] = torch.nan

    runner, run, _ = disturbed(data, once)
    runner.folder = tmp_path
    state = run()
    again = runner_of(data, runner.chains.config, folder=tmp_path).run(resume=True)
    assert again.events == state.events
    assert again.slowdown.tolist() == [1.0, 0.5]


# ---- the verdict itself, on made-up looks

FROZEN = StepPlan(1e-3, 1.0, "cycle", 0, 0, mass_frozen=True, collect=False)
ADAPTING = FROZEN._replace(phase="burn_in", mass_frozen=False)


class Looks:
    """A state of one chain with P = 2000 weights in equilibrium, looked at with potentials that we choose."""

    def __init__(self) -> None:
        self.state = RunState.start(torch.zeros(1, 2000))
        generator = torch.Generator().manual_seed(0)
        self.state.sampler.momentum.copy_(torch.randn(1, 2000, generator=generator))
        self.guard = Guard(GuardSettings(), SGHMCConfig(), 100, [0], force_size=1.2)

    def __call__(self, potential: float, plan: StepPlan = FROZEN, *, force_mae: float = 0.1, gamma: float = 0) -> bool:
        """Whether the guard objects."""
        value, error, unused = torch.tensor([potential]), torch.tensor([force_mae]), torch.zeros(1)
        seen = Evaluation(unused, value, unused, error, unused)
        look = Look(plan, seen, torch.tensor([gamma], dtype=torch.float64))
        return bool(self.guard.look(self.state, self.state.copy(), self.state.copy(), look))


def test_a_rise_of_the_potential_is_a_divergence() -> None:
    """Above 2P from the lowest look; ten times that while the mass adapts, which tames an instability by itself."""
    for plan, small, large in ((FROZEN, 3900.0, 4100.0), (ADAPTING, 39_000.0, 41_000.0)):
        look = Looks()
        assert not any(look(0.0, plan) for _ in range(9))
        assert not look(small, plan)
        assert not look(0.0, plan)
        assert not look(large, plan), "it has risen and fallen so far before"
        look = Looks()
        assert not any(look(0.0, plan) for _ in range(9))
        assert look(large, plan)
        assert not look(0.0, plan)


def test_heat_is_a_divergence() -> None:
    look = Looks()
    assert not look(0.0)
    look.state.sampler.momentum.mul_(1.45)  # mean(r²) above 2
    assert not look(0.0, ADAPTING)
    assert look(0.0)


def test_the_heat_of_minibatches_is_no_divergence() -> None:
    """A chain at T = 0.01 whose minibatches may add NγM/2 = 100 γ/2 = 0.05: above 0.01 + 2·0.05 it diverges."""
    cold, momentum = FROZEN._replace(temperature=0.01), Looks().state.sampler.momentum
    for heat, gamma, hot in ((0.1, 1e-3, False), (0.12, 1e-3, True), (0.025, 0.0, True), (0.018, 0.0, False)):
        look = Looks()
        look.state.sampler.momentum.copy_(momentum * heat**0.5)
        assert look(0.0, cold, gamma=gamma) is hot


@pytest.mark.parametrize("plan", [FROZEN, ADAPTING])
def test_a_chain_far_out_is_lost_however_quiet_it_is(plan: StepPlan) -> None:
    """As happened with γ = 0.03 all along: errors of 330 eV/Å, which σ had grown to hold; cold, and û like others."""
    look = Looks()
    assert not look(0.0, plan, force_mae=20.0)
    assert look(0.0, plan, force_mae=330.0)
    look.guard = Guard(GuardSettings(enabled=False), SGHMCConfig(), 100, [0], force_size=1.2)
    assert not look(0.0, plan, force_mae=330.0)


def test_a_run_gives_up_what_errs_by_many_times_the_size_of_its_forces() -> None:
    """Frames of 3 and 9 atoms: padding atoms have no forces, and do not count."""
    data = mixed()
    runner = runner_of(data, small_config({"data": {"validation": 0}, "guard": {"retries": 0}}))
    forces = np.concatenate([structure.forces.ravel() for structure in data if structure.forces is not None])
    loop = Loop(runner.chains, Store(), Listener(), make_stepper)
    assert loop.guard.lost_above == pytest.approx(20 * np.sqrt((forces**2).mean()), rel=1e-6)
    loop.guard.lost_above = 1e-9
    with pytest.raises(InputError, match="every chain diverged"):
        loop.run([])


def test_scatter_of_large_data_sets_is_no_divergence() -> None:
    """û scatters by N·sd(ln p)/√batch, here fifty times what would otherwise be a divergence: not one false alarm in
    2000 looks."""
    look, noise = Looks(), torch.Generator().manual_seed(1)
    scatter = 50 * 2 * 2000
    assert not any(look(scatter * float(torch.randn((), generator=noise))) for _ in range(2000))
    assert look(25.0 * scatter), "a rise beyond all scatter still counts"
    look.state.sampler.momentum.mul_(1.5)
    assert look(0.0), "and so does heat"


def test_a_chain_that_diverges_at_its_first_look_can_recover() -> None:
    """What it reached there, or 0, is no measure for its next look: û is of any size."""
    look = Looks()
    assert look(float("nan"))
    assert not any(look(1e6) for _ in range(12))
    assert look.state.rollbacks.tolist() == [1]


def test_after_a_rollback_the_guard_is_as_watchful_as_before() -> None:
    look = Looks()
    assert not any(look(1e6) for _ in range(12))
    assert look(float("nan"))
    assert not any(look(1e6) for _ in range(3))
    assert look(1e6 + 4100), "more than 2P above what it was"


def test_largest_difference() -> None:
    looks = torch.zeros(10, 3, dtype=torch.float64)
    looks[4] = torch.tensor([5.0, torch.inf, -1.0])
    looks[:3, 1] = torch.nan
    assert largest_difference(looks).tolist() == [5.0, 1e300, 1.0], "of chain 1 too few are known"
    assert largest_difference(looks[:1]).tolist() == [1e300] * 3


# ---- a real divergence

REAL: dict[str, Any] = {
    "chains": 2,
    "samples": 2,
    "network": {"parity": False, "num_features": 8, "radial_mlp_width": 16},
    "data": {"validation": 5},
    "sampler": {"epsilon": 1e-4},
    "burn_in": {
        "steps": 800,
        "batch_size": 5,
        "initial": 3e-2,
        "final": 1e-5,
        "decay": "exponential",
        "freeze_mass": 0.15,
        "noise_free": 0.0,
    },
    "cycles": {"length": 100, "batch_size": 5, "peak": 3e-2},
    "guard": {"interval": 20, "enabled": False},
}
"""100 ethanol frames, 3178 weights, float32, two chains at temperature 1.

In burn-in γ falls from 3e-2 to 1e-5.  The first value is harmless (mean(r²) stays below 1.2), while the deviation heads
sharpen, from 1.2 eV/Å to 0.25, most of it after the mass was frozen at step 120; the learning rate that the curvature
allows falls from 0.02 to 0.002 … 0.014 (power iteration; it depends on the minibatch).  So γ = 3e-2 is fatal when a
cycle returns to it in one jump.
"""


@pytest.fixture(scope="module")
def burnt_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint at the end of the burn-in, which needs no guard."""
    folder = tmp_path_factory.mktemp("burn-in")
    runner = runner_of(ethanol_frames(105), small_config(REAL), folder=folder)
    runner.chains = replace(runner.chains, about={})
    state = runner.run()
    temperatures = [value for record in state.history for value in record["kinetic_temperature"]]
    assert max(temperatures) < 1.3, "on the way down the same learning rate is harmless"
    first, last = (state.history[i]["force_sigma"] for i in (0, -1))
    assert max(last) < 0.35 * min(first), "the deviations have sharpened"
    return folder


def go_on(burnt_in: Path, folder: Path, kind: str, *, guard: bool) -> tuple[RunState, Listener]:
    """Two cycles from the end of the burn-in."""
    shutil.copytree(burnt_in, folder / "run")
    listener = Listener()
    changes = {"samples": 6, "cycles": {"kind": kind}, "guard": {"enabled": guard}}
    runner = runner_of(ethanol_frames(105), small_config(merge(REAL, changes)), folder=folder / "run", display=listener)
    runner.chains = replace(runner.chains, about={})  # it is another run: that is the point
    return runner.run(resume=True), listener


def assert_sound(listener: Listener) -> None:
    """Finite, never hot, and at temperature 1 where samples are taken (mean(r²) scatters by √(2/P) = 0.025)."""
    for record in listener.records:
        assert None not in record["log_posterior"]
        assert max(record["kinetic_temperature"]) < 2.0
    for record in listener.records:
        if record["step"] in (900, 1000, 920, 1040) and record["learning_rate"][0] < 1e-4:
            assert record["kinetic_temperature"] == pytest.approx([1.0, 1.0], abs=0.12)
    assert min(listener.records[-1]["log_posterior"]) > -6000, (
        "û is where it was (about 4200), not a hundred times higher"
    )


def test_a_real_divergence_without_the_guard(burnt_in: Path, tmp_path: Path) -> None:
    """Both chains are NaN at the first look, 20 steps after the jump (in fact within ten)."""
    with pytest.raises(InputError, match="every chain diverged"):
        go_on(burnt_in, tmp_path, "restart", guard=False)


def test_a_real_divergence_with_the_guard(burnt_in: Path, tmp_path: Path) -> None:
    """The same run survives: before each jump γ is capped by the curvature, to between 0.001 and 0.007 instead of
    0.03."""
    state, listener = go_on(burnt_in, tmp_path, "restart", guard=True)
    assert not state.failed.any()
    assert len(state.samples) == 3
    caps = [message for message in listener.messages if "the curvature allows a learning rate of" in message]
    assert len(caps) == 4, "two chains, two cycles"
    assert max(max(record["learning_rate"]) for record in listener.records) < 0.015
    assert_sound(listener)


def test_rise_and_fall_with_the_guard(burnt_in: Path, tmp_path: Path) -> None:
    """The printed schedule rises from 0, so errors and σ grow with γ: no NaN even without a guard, but mean(r²) of 5 to
    50 at times.

    With the guard the hot chain is rolled back and goes on with half the step.
    """
    state, listener = go_on(burnt_in, tmp_path, "rise_and_fall", guard=True)
    assert not state.failed.any()
    assert len(state.samples) == 3
    assert any("rolled back" in message for message in listener.messages)
    assert_sound(listener)
