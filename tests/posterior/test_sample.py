"""Sampling in one call: what it is given, and which samples it keeps."""

from dataclasses import replace

import pytest
import torch

from equibayes.posterior.sample import gather, sample
from equibayes.run import Run
from equibayes.run.prepare import prepare
from equibayes.run.state import RunState
from tests.runs import ethanol_frames, small_config


def test_a_run_is_given_as_a_whole_or_by_its_fields() -> None:
    with pytest.raises(TypeError, match="device: part of `run`, which is given"):
        sample(ethanol_frames(), small_config(), run=Run(device="cpu"), device="cpu")


def test_the_latest_samples_of_good_chains_are_kept_in_turn() -> None:
    """Three chains and two samples of each, one of which a rollback spoiled; chain 1 failed."""
    config = small_config({"chains": 3, "samples": 6, "network": {"model_dtype": "float64"}})
    prepared = prepare(ethanol_frames(), config)
    state = RunState.start(prepared.model.layout.start(3, 0, torch.float64))
    state.samples = [state.sampler.position + number for number in (1.0, 2.0)]
    state.kept = [torch.tensor([True, True, False]), torch.tensor([True, True, True])]
    state.failed[1] = True
    found = gather(prepared, state)
    first, second = prepared.config.schedule(16).sample_steps
    assert found.chain.tolist() == [0, 0, 2]
    assert found.step.tolist() == [first, second, second]
    assert torch.equal(found.samples, torch.stack([state.samples[0][0], state.samples[1][0], state.samples[1][2]]))
    state.failed[1], state.kept[0][2] = False, True
    four = replace(prepared, config=replace(prepared.config, samples=4))
    assert gather(four, state).chain.tolist() == [2, 0, 1, 2], "the latest, if there are more than were asked for"
