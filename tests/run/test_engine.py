"""Runs with the compiled engine: as good as the reference, the same bits after a break, and recorded."""

import pytest
import torch

from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.native.target import target
from equibayes.engine.select import VARIABLE
from equibayes.posterior.file import load
from equibayes.posterior.sample import sample
from equibayes.posterior.summary import PosteriorSummary
from equibayes.run.interrupt import Interrupted
from equibayes.run.validation import validate
from equibayes.sampling import sghmc
from tests.copper import copper
from tests.runs import Listener, ethanol_frames, runner_of, small_config

if why_no_compiler():
    pytest.skip(str(why_no_compiler()), allow_module_level=True)

SHORT = small_config(
    {"burn_in": {"steps": 12}, "cycles": {"length": 4}, "samples": 2, "output": {"checkpoint_seconds": 0}}
)


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    monkeypatch.setenv(VARIABLE, "native")


def trial(folder=None, display=None, data=None):
    return runner_of(data or ethanol_frames(), SHORT, folder=folder, display=display)


class StopAt(Listener):
    """Asks for a stop when a step is reached."""

    def __init__(self, step, stops):
        super().__init__()
        self.step, self.stops = step, stops

    def advance(self, step):
        if step >= self.step:
            self.stops.append(2)


def test_a_run_gives_the_weights_of_the_reference(monkeypatch):
    found = trial().run()
    monkeypatch.setenv(VARIABLE, "reference")
    expected = trial().run()
    assert (found.engine, expected.engine) == (f"native-{target().name}", "reference")
    for ours, theirs in zip(found.samples, expected.samples, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-4
        assert not torch.equal(ours, theirs)
    assert found.history[-1]["force_mae"] == pytest.approx(expected.history[-1]["force_mae"], rel=1e-3)


def broken_off_and_resumed(tmp_path, monkeypatch, engine=None, threads=1, data=None):
    """The state at the end, and what was said."""
    from equibayes.run.loop import run
    from equibayes.run.store import FolderStore

    tmp_path.mkdir(exist_ok=True)
    stops = []
    with pytest.raises(Interrupted):
        run(trial(data=data).chains, FolderStore(tmp_path), StopAt(10, stops), stops=stops)
    if engine is not None:
        monkeypatch.setenv(VARIABLE, engine)
    listener, before = Listener(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return trial(tmp_path, listener, data).run(resume=True), listener.messages
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("data", [ethanol_frames(), copper(20, bare=5)], ids=["ethanol", "stress"])
def test_broken_off_and_resumed_with_more_threads_the_same_bits(tmp_path, monkeypatch, data):
    expected = trial(data=data).run()
    found, said = broken_off_and_resumed(tmp_path, monkeypatch, threads=3, data=data)
    for ours, theirs in zip(sghmc.to_tensors(found.sampler).values(), sghmc.to_tensors(expected.sampler).values()):
        assert torch.equal(ours, theirs)
    assert torch.equal(found.samples[-1], expected.samples[-1])
    assert said == []


def test_resumed_with_its_own_engine_unless_asked_otherwise(tmp_path, monkeypatch):
    found, said = broken_off_and_resumed(tmp_path / "auto", monkeypatch, "auto")
    assert (found.engine, said) == (f"native-{target().name}", [])
    monkeypatch.setenv(VARIABLE, "native")
    found, said = broken_off_and_resumed(tmp_path / "other", monkeypatch, "reference")
    assert found.engine == "reference"
    assert said == [
        f"this run began with the engine native-{target().name} and goes on with reference: its samples are as good, but not "
        "the same bits as without a break"
    ]


def test_the_engine_is_recorded_in_the_posterior(tmp_path):
    path = tmp_path / "short.posterior"
    sample(ethanol_frames(), SHORT, output=path, device="cpu")
    assert load(path).engine == f"native-{target().name}"
    assert f"engine native-{target().name}" in str(PosteriorSummary(path))


def test_held_back_frames_are_evaluated_by_the_engine_of_the_run(monkeypatch):
    """The same errors, to the rounding of float32."""
    chains = trial().chains
    model, frames, theta = chains.potential.model, chains.validation, chains.start
    found = validate(model, theta, frames, engine=f"native-{target().name}")
    monkeypatch.setattr(type(model), "__call__", None)  # the reference would call it
    assert validate(model, theta, frames, engine=f"native-{target().name}") == found
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, "auto")
    expected = validate(model, theta, frames, engine="reference")
    for name, values in expected.items():
        assert torch.allclose(torch.tensor(found[name]), torch.tensor(values), rtol=2e-3, atol=1e-5), name
