"""Runs with a matrix mass: killed, resumed, rolled back, alone or together."""

import signal
from pathlib import Path

import pytest
import torch

from equibayes.run.interrupt import Interrupted
from equibayes.run.state import RunState
from tests.run.test_checkpoint import StopAt, assert_same_state
from tests.runs import Listener, ethanol_frames, runner_of, small_config

SETTINGS = {"sampler": {"mass": "matrix"}, "output": {"checkpoint_seconds": 0}}


def run(folder: Path | None = None, *, resume: bool = False, display: Listener | None = None) -> RunState:
    return runner_of(ethanol_frames(), small_config(SETTINGS), folder=folder, display=display).run(resume=resume)


@pytest.fixture(scope="module")
def undisturbed() -> RunState:
    return run()


def test_it_is_another_run_than_with_a_diagonal_mass(undisturbed: RunState) -> None:
    diagonal = runner_of(ethanol_frames(), small_config()).run()
    assert not torch.equal(diagonal.samples[-1], undisturbed.samples[-1])
    assert undisturbed.sampler.mass.basis.shape[1] > 0


@pytest.mark.parametrize("step", [20, 50], ids=["while the mass adapts", "frozen"])
def test_resume_is_bit_for_bit(tmp_path: Path, undisturbed: RunState, step: int) -> None:
    with pytest.raises(Interrupted) as stop:
        run(tmp_path, display=StopAt(step))
    assert (stop.value.step, stop.value.signal) == (step, signal.SIGINT)
    assert_same_state(run(tmp_path, resume=True), undisturbed)


@pytest.mark.parametrize("step", [0, 14])
def test_a_chain_that_diverges_disturbs_no_other(step: int, undisturbed: RunState) -> None:
    """Chain 1 meets a NaN, in the first step or later, and is rolled back; chain 0 keeps every bit."""
    listener, calls = Listener(), [0]
    trial = runner_of(ethanol_frames(), small_config(SETTINGS), display=listener)

    def spoil(position: torch.Tensor, indices: torch.Tensor, evaluation: object) -> None:
        if calls[0] == step:
            evaluation.gradient[1, 7] = torch.nan  # type: ignore[attr-defined]
        calls[0] += 1

    trial.watch(spoil)
    state = trial.run()
    assert any("chain 1 was diverging" in message for message in listener.messages)
    for ours, theirs in zip(state.samples, undisturbed.samples):
        assert torch.equal(ours[0], theirs[0])
        assert ours[1].isfinite().all()


def test_the_compiled_engine_gives_the_gradients(undisturbed: RunState, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run up to rounding; the first steps, before rounding has grown."""
    monkeypatch.setenv("EQUIBAYES_ENGINE", "native")
    trial = runner_of(ethanol_frames(), small_config(SETTINGS))
    state = trial.run()
    assert state.engine.startswith("native-")
    assert state.engine.endswith("-gradient")
    first = [run.history[0]["log_posterior"] for run in (state, undisturbed)]
    assert first[0] == pytest.approx(first[1], rel=1e-3)
    assert all(sample.isfinite().all() for sample in state.samples)
