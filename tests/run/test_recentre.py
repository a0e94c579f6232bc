"""Energies that are off for all frames alike are put right while there is no noise, and only then."""

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from equibayes.run import loop
from equibayes.run.interrupt import Interrupted
from equibayes.run.recentre import recentre
from equibayes.run.state import RunState
from tests.runs import Listener, ethanol_frames, runner_of, small_config

SHIFTED = {"per_type_energy_shifts_trainable": True, "model_dtype": "float64"}
COLD = {"noise_free": 0.5}


def config(**changes: object):
    return small_config({"network": SHIFTED, "burn_in": COLD, "output": {"checkpoint_seconds": 0}}, changes)


def errors(runner, position: torch.Tensor) -> torch.Tensor:
    data = runner.potential.data
    graph, labels = data.batch(torch.arange(len(data))[None])
    return runner.potential.model(position, graph).energy - labels.energy


def test_the_offset_goes_and_forces_stay() -> None:
    runner = runner_of(ethanol_frames(), config())
    model, data = runner.potential.model, runner.potential.data
    position = model.layout.start(1, 0, torch.float64).repeat(2, 1)
    position[1, model.layout.groups["shift"]] += 0.5  # about 4 eV for nine atoms
    graph, _ = data.batch(torch.arange(3)[None])
    forces, before = model(position, graph).forces, errors(runner, position)
    recentre(model, position, data)
    after = errors(runner, position)
    assert torch.equal(model(position, graph).forces, forces)
    assert float((before[1] - before[0]).min()) > 3.0
    torch.testing.assert_close(after.mean(1), torch.zeros(2, dtype=torch.float64), atol=1e-10, rtol=0)
    torch.testing.assert_close(after[0], after[1])
    torch.testing.assert_close(after.std(1), before.std(1))
    place = model.layout.groups["shift"]
    position[:, place] += 0.01  # less than the frames differ by
    left = position.clone()
    recentre(model, position, data)
    assert torch.equal(position, left)


def test_frames_without_energies_say_nothing() -> None:
    runner = runner_of(ethanol_frames(), config())
    position = runner.potential.model.layout.start(1, 0, torch.float64)
    before = position.clone()
    runner.potential.data.energy[::2] = np.nan
    recentre(runner.potential.model, position, runner.potential.data)
    assert bool(position.isfinite().all())
    assert not torch.equal(position, before)
    before = position.clone()
    runner.potential.data.energy[:] = np.nan
    recentre(runner.potential.model, position, runner.potential.data)
    assert torch.equal(position, before)


@pytest.mark.parametrize(("network", "cold"), [(SHIFTED, 0.5), (SHIFTED, 0.0), ({"model_dtype": "float64"}, 0.5)])
def test_only_without_noise_and_with_energies_of_species(
    monkeypatch: pytest.MonkeyPatch, network: dict[str, object], cold: float
) -> None:
    runner = runner_of(ethanol_frames(), small_config({"network": network, "burn_in": {"noise_free": cold}}))
    steps: list[int] = []
    monkeypatch.setattr(loop, "recentre", lambda model, position, data: steps.append(len(seen)))
    seen: list[float] = []
    plans = [runner.schedule.at(step).temperature for step in range(runner.schedule.total_steps)]
    runner.watch(lambda position, indices, evaluation: seen.append(plans[len(seen)]))
    runner.run()
    assert bool(steps) == (cold > 0 and network is SHIFTED)
    assert all(seen[i - 1] == 0 for i in steps)


def test_a_chain_that_starts_far_off_learns_its_energies() -> None:
    runner = runner_of(ethanol_frames(), config())
    start = runner.potential.model.layout.start(runner.chains.config.chains, 0, torch.float64)
    start[:, runner.potential.model.layout.groups["shift"]] += 1.0
    runner.chains = replace(runner.chains, start=start)
    state = runner.run()
    assert float(errors(runner, state.sampler.position).mean(1).abs().max()) < 1.0, "it began with 9 eV"


class StopAt(Listener):
    def advance(self, step: int) -> None:
        if step >= 10:
            signal.raise_signal(signal.SIGINT)


def test_resume_is_bit_for_bit(tmp_path: Path) -> None:
    def run(folder: Path, *, resume: bool = False, display: Listener | None = None) -> RunState:
        folder.mkdir(exist_ok=True)
        return runner_of(ethanol_frames(), config(), folder=folder, display=display).run(resume=resume)

    expected = run(tmp_path / "whole")
    with pytest.raises(Interrupted):
        run(tmp_path / "part", display=StopAt())
    found = run(tmp_path / "part", resume=True)
    assert torch.equal(found.sampler.position, expected.sampler.position)
