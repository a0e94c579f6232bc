"""Runs with a matrix mass by the reference and the compiled engine: killed, resumed, rolled back, alone or together."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from equibayes.baselines.train import baseline_config, train
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.native.target import target
from equibayes.engine.select import VARIABLE, make_stepper
from equibayes.errors import InputError
from equibayes.run.interrupt import Interrupted
from equibayes.run.state import RunState
from equibayes.sampling.chain import Stepper
from tests.run.test_checkpoint import StopAt, assert_same_state
from tests.runs import Listener, ethanol_frames, runner_of, small_config

SETTINGS = {"sampler": {"mass": "matrix"}, "output": {"checkpoint_seconds": 0}}
ENGINES = ["reference", pytest.param("native", marks=pytest.mark.skipif(bool(why_no_compiler()), reason="no compiler"))]


@pytest.fixture(params=ENGINES, scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        yield request.param


def run(folder: Path | None = None, *, resume: bool = False, display: Listener | None = None) -> RunState:
    return runner_of(ethanol_frames(), small_config(SETTINGS), folder=folder, display=display).run(resume=resume)


@pytest.fixture(scope="module")
def undisturbed(engine: str) -> RunState:
    state = run()
    assert state.engine == (f"native-{target().name}" if engine == "native" else engine)
    return state


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


def test_a_basis_of_another_form_is_refused(tmp_path: Path, undisturbed: RunState) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, display=StopAt(20))
    trial = runner_of(ethanol_frames(), small_config(SETTINGS), folder=tmp_path)
    saved = RunState.copy(undisturbed)
    short = saved.sampler.mass.basis[:, 1:].contiguous()
    saved.sampler = saved.sampler._replace(mass=saved.sampler.mass._replace(basis=short, factors=short))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunState, "from_checkpoint", lambda *_: saved)
        with pytest.raises(InputError, match="matrix mass of another form"):
            trial.run(resume=True)


def test_a_chain_alone_is_what_it_is_among_others(engine: str, undisturbed: RunState) -> None:
    """Bit for bit by the engine; the gradients of the reference are rounded with those of the other chains."""
    alone = runner_of(ethanol_frames(), small_config(SETTINGS), identities=[1]).run()
    limit = 0.0 if engine == "native" else 1e-3
    for ours, theirs in zip(alone.samples, undisturbed.samples, strict=True):
        torch.testing.assert_close(ours[0], theirs[1], rtol=0.0, atol=limit)
    torch.testing.assert_close(
        alone.sampler.mass.basis[0], undisturbed.sampler.mass.basis[1], rtol=0.0, atol=100 * limit
    )


class Spoiled:
    """A stepper that writes NaN into chain 1 at the end of the stretch that reaches a step, once."""

    def __init__(self, inner: Stepper, position: torch.Tensor, step: int) -> None:
        self.inner, self.position, self.step, self.engine = inner, position, step, inner.engine

    def advance(self, stretch, learning_rates, stopping=lambda: False):  # type: ignore[no-untyped-def]
        seen = self.inner.advance(stretch, learning_rates, stopping)
        if stretch.first + len(stretch.plans) == self.step:
            self.position[1, 7], self.step = torch.nan, -1
        return seen


@pytest.mark.parametrize("step", [20, 50], ids=["while the mass adapts", "frozen"])
def test_a_chain_that_is_rolled_back_disturbs_no_other(step: int, undisturbed: RunState) -> None:
    """Its basis and factors are those of the last look again."""
    listener = Listener()
    trial = runner_of(ethanol_frames(), small_config(SETTINGS), display=listener)

    def spoiled(potential, state, *more, **options):  # type: ignore[no-untyped-def]
        return Spoiled(make_stepper(potential, state, *more, **options), state.position, step)

    state = trial.run(stepper=spoiled)
    assert any(f"chain 1 was diverging at step {step}" in message for message in listener.messages)
    for ours, theirs in zip(state.samples, undisturbed.samples):
        assert torch.equal(ours[0], theirs[0])
        assert ours[1].isfinite().all()
    assert torch.equal(state.sampler.mass.basis[0], undisturbed.sampler.mass.basis[0])
    assert state.sampler.mass.basis.isfinite().all()


@pytest.mark.parametrize("engine", ["reference"], indirect=True)  # others do not call the potential that is spoiled
@pytest.mark.parametrize("step", [0, 14])
def test_a_gradient_that_is_no_number_disturbs_no_other_chain(step: int, engine: str, undisturbed: RunState) -> None:
    """In the first step or later; chain 0 keeps every bit."""
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


@pytest.mark.parametrize("kind", ["ensemble", "point", "dropout"])
def test_baselines_have_the_same_mass(kind: str, engine: str) -> None:
    config = small_config(SETTINGS, {"burn_in": {"steps": 8}, "cycles": {"length": 4}})
    assert baseline_config(kind, config, 16).sampler.mass == "matrix"
    rotated, plain = (
        train(kind, ethanol_frames(), each) for each in (config, small_config({**SETTINGS, "sampler": {}}))
    )
    assert rotated.config["sampler"]["mass"] == "matrix"
    assert rotated.samples.isfinite().all()
    assert not torch.equal(rotated.samples, plain.samples)
