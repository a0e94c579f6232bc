"""Early stopping: when it happens, what is kept, and that a resumed run stops at the same step."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from equibayes.baselines.train import baseline_chains, baseline_config
from equibayes.errors import InputError
from equibayes.posterior.sample import sample
from equibayes.run.cluster.connect import ClusterOptions
from equibayes.run.patience import Patience
from equibayes.run.prepare import prepare
from equibayes.run.settings import SampleConfig
from equibayes.run.state import RunState
from equibayes.run.validation import validate
from tests.runs import Listener, Trial, ethanol_frames, runner_of, small_config

# a learning rate so large that the error soon rises again
EARLY: dict[str, Any] = {
    "burn_in": {"steps": 160, "initial": 0.1, "final": 0.1, "noise_free": 0.9, "patience": 3},
    "output": {"records": 1000, "validations": 1000, "checkpoint_seconds": 0.0},
    "guard": {"enabled": False},
}


def config(*changes: dict[str, Any]) -> SampleConfig:
    return small_config(EARLY, *changes)


def errors(state: RunState) -> list[float]:
    return [fmean(record["validation_force_mae"]) for record in state.history]


def trained(kind: str, folder: Path | None = None, *, resume: bool = False) -> tuple[Trial, RunState]:
    rising = config({"burn_in": {"initial": 0.3, "final": 0.3}})  # so that every engine sees the error rise
    data, own = ethanol_frames(), baseline_config(kind, rising, 16)
    prepared = prepare(data, own)
    trial = Trial(baseline_chains(kind, prepared, data, "cpu"), folder, Listener())
    return trial, trial.run(resume=resume)


@pytest.mark.parametrize("kind", ["ensemble", "point"])
def test_a_training_ends_with_its_best_weights(kind: str) -> None:
    trial, state = trained(kind)
    found, end = errors(state), state.history[-1]["step"]
    assert len(found) - 1 - found.index(min(found)) == 3, "three evaluations without a lower error"
    assert end < trial.schedule.total_steps == state.step
    assert len(state.samples) == 1
    assert state.events == trial.display.messages
    assert f"step {end}: no lower error on held-back frames in 3 evaluations: the training ends" in state.events[0]
    if kind == "ensemble":  # a point estimate keeps the average of that time
        again = validate(trial.potential.model, state.samples[0], trial.chains.validation)["validation_force_mae"]
        assert fmean(again) == pytest.approx(min(found), rel=1e-6)


def test_the_noise_free_part_ends_and_the_rest_follows() -> None:
    display = Listener()
    trial = runner_of(ethanol_frames(), config({"burn_in": {"patience": 1}}), display=display)
    state = trial.run()
    first_with_noise = next(s for s in range(trial.schedule.total_steps) if trial.schedule.at(s).temperature > 0)
    steps = [record["step"] for record in state.history]
    silent = [step for step in steps if step <= first_with_noise]
    assert silent[-1] < first_with_noise, "it ended early"
    assert steps[len(silent)] > first_with_noise
    assert f"the noise-free part of the burn-in ends here, not at step {first_with_noise}" in state.events[0]
    assert state.step == trial.schedule.total_steps
    assert len(state.samples) == len(trial.schedule.sample_steps)


@pytest.mark.parametrize("kind", ["ensemble", "posterior"])
def test_a_resumed_run_stops_at_the_same_step(kind: str, tmp_path: Path) -> None:
    def run(resume: bool) -> RunState:
        if kind == "ensemble":
            return trained(kind, tmp_path, resume=resume)[1]
        return runner_of(ethanol_frames(), config(), folder=tmp_path).run(resume=resume)

    expected = run(False)
    stopped = max(record["step"] for record in expected.history if record["step"] < 144)
    trial = runner_of(ethanol_frames(), config()) if kind == "posterior" else trained(kind)[0]
    assert stopped < trial.schedule.burn_in_steps - 10
    for path in tmp_path.glob("checkpoint-*"):
        path.unlink()
    interrupted(trial, tmp_path, stopped - 10)
    state = run(True)
    assert state.history == expected.history
    assert state.events == expected.events
    assert all(torch.equal(a, b) for a, b in zip(state.samples, expected.samples, strict=True))


def interrupted(trial: Trial, folder: Path, step: int) -> None:
    """Leaves the checkpoint of a run that was stopped at about this step."""
    from equibayes.run import interrupt, loop, store

    stops: list[int] = []

    class Stopping(Listener):
        def advance(self, now: int) -> None:
            if now >= step:
                stops.append(15)

    with pytest.raises(interrupt.Interrupted):
        loop.run(trial.chains, store.FolderStore(folder), Stopping(), stops=stops)


def test_off_unless_asked_for() -> None:
    assert small_config().burn_in.patience is None
    trial = runner_of(ethanol_frames(), config({"burn_in": {"patience": None}}))
    assert [record["step"] for record in trial.run().history][-1] == trial.schedule.total_steps
    with pytest.raises(InputError, match=r"burn_in.patience=0: must be at least 1"):
        config({"burn_in": {"patience": 0}})


def test_nothing_to_watch() -> None:
    own = config({"data": {"validation": 0}})
    with pytest.raises(InputError, match=r"burn_in.patience=3: there are no held-back frames to watch"):
        sample(ethanol_frames(), own, device="cpu")
    own = config({"output": {"validations": 0}})
    with pytest.raises(InputError, match=r"output.validations above 0"):
        Patience(own, own.schedule(16), watched=True)
    with pytest.raises(InputError, match="--cluster keeps apart"):
        sample(ethanol_frames(), config(), cluster=ClusterOptions("auto"))
