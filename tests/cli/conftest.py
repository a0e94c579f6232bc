"""A posterior that several tests of the program share."""

import shutil
from pathlib import Path

import pytest

from equibayes.posterior.sample import sample
from tests.runs import ethanol_frames, small_config


@pytest.fixture(scope="session")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """160 steps of burn-in on 16 frames of ethanol, 4 samples."""
    path = tmp_path_factory.mktemp("sampled") / "ethanol.posterior"
    sample(ethanol_frames(), small_config({"burn_in": {"steps": 160}}), output=path, device="cpu")
    return path


@pytest.fixture(scope="module")
def file(sampled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it for one module."""
    return Path(shutil.copy(sampled, tmp_path_factory.mktemp("copy")))
