"""Files written by earlier versions load, predict and resume; each version has a stored sample in `files/`.

`v1` was written by the last commit with format 1, `v1-first` by one of the first, which had fewer settings, `v2` by the
last with posteriors of format 2, `v3` by the last with posteriors of format 3 and checkpoints of format 2, and `v4`,
`v5` and `v6` by the last with posteriors of format 4, 5 and 6.  All are runs of 36 steps with 2 chains on bundled
ethanol; `.posterior` is the result and `.run` the same run stopped after step 30.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from equibayes import tensor_file
from equibayes.config import build
from equibayes.errors import InputError
from equibayes.posterior.calibrate import store
from equibayes.posterior.file import FORMAT, VERSION, load, read
from equibayes.posterior.sample import sample
from equibayes.posterior.summary import PosteriorSummary
from equibayes.posterior.upgrade import posterior_1_to_2, posterior_2_to_3, posterior_5_to_6
from equibayes.run import checkpoint
from equibayes.run.settings import SampleConfig
from equibayes.run.store import changed_setting
from equibayes.run.upgrade import settings_1_to_2
from tests.runs import ethanol_frames

FILES = Path(__file__).parent / "files"
STORED = ["v1", "v1-first", "v2", "v3"]


@pytest.mark.parametrize("name", [*STORED, "v4"])
def test_an_old_posterior_loads_and_predicts(name: str) -> None:
    posterior = load(FILES / f"{name}.posterior")
    assert posterior.novelty is None
    assert (len(posterior), posterior.chain.tolist()) == (4, [0, 1, 0, 1])
    assert posterior.network.per_type_energy_shifts_trainable is False
    assert posterior.network.stress_head is False
    assert posterior.config["guard"] == {"enabled": True, "interval": 6, "retries": 6}
    # settings that the file does not know have their defaults, and change nothing
    assert changed_setting(posterior.config, build(SampleConfig, posterior.config).to_dict()) == ""
    prediction = posterior.predict(ethanol_frames(1)[0])
    assert np.isfinite(prediction.forces).all()
    assert prediction.novelty is None
    lines = dict(PosteriorSummary(FILES / f"{name}.posterior").lines())
    assert lines["chains"].startswith("2, seed 0; 36 steps")
    assert "equibayes calibrate POSTERIOR DATA --novelty adds it" in lines["novelty"]


@pytest.mark.parametrize("name", STORED[:3])
def test_an_old_posterior_does_not_say_whether_its_chains_moved(name: str) -> None:
    """Few draws: a reason in place of R-hat, and no warning about it."""
    verdict = load(FILES / f"{name}.posterior").verdict
    assert verdict["r_hat_forces"] is None
    assert verdict["convergence_undefined_because"].startswith("2 draws per chain are too few")
    assert verdict["stationarity"]["moving"] is None
    assert "was not recorded" in verdict["stationarity"]["undefined_because"]
    assert not any("whether the chains agree" in word for word in verdict["warnings"])


def test_an_old_novelty_has_a_floor() -> None:
    """Of the forces that the network was scaled by."""
    posterior, frame = load(FILES / "v5.posterior"), ethanol_frames(1)[0]
    assert posterior.novelty is not None
    assert posterior.novelty.force_scale == posterior.network.per_type_energy_scales
    far = replace(frame, positions=2 * frame.positions)
    assert (posterior.predict(far).forces_std > 10 * posterior.novelty.force_scale).any()
    header: dict[str, Any] = {"config": {}, "novelty": {}, "network": {"per_type_energy_scales": {"H": 1.0}}}
    posterior_5_to_6(header)
    assert header["novelty"] == {"force_scale": 0.0}


@pytest.mark.parametrize("name", ["v5", "v6"])
def test_until_format_7_networks_learned_whole_labels(name: str) -> None:
    assert load(FILES / f"{name}.posterior").baseline is None


def test_r_hat_of_few_draws_is_forgotten() -> None:
    """Of many it is kept."""
    for draws, kept in ((19, None), (20, 1.4)):
        words = ["R-hat of predicted forces is 1.40 from 19 draws per chain: …", "lower cycles.peak"]
        verdict = {"r_hat_forces": 1.4, "ess_forces": 9.0, "r_hat_log_posterior": 1.1, "warnings": words}
        header = {"verdict": verdict, "history": [{"phase": "cycle", "validation_force_mae": [0.1]}] * draws}
        posterior_2_to_3(header)
        assert (verdict["r_hat_forces"], verdict["draws_per_chain"]) == (kept, draws)
        assert len(verdict["warnings"]) == (1 if kept is None else 2)
    empty: dict[str, Any] = {"verdict": {}, "history": []}
    posterior_2_to_3(empty)
    assert empty["verdict"] == {}, "made by a program, without a run"


@pytest.mark.parametrize("name", STORED)
def test_an_old_run_resumes(name: str, tmp_path: Path) -> None:
    """The last six steps give the samples of the run that was not interrupted (stored as float16)."""
    whole = load(FILES / f"{name}.posterior")
    shutil.copytree(FILES / f"{name}.run", tmp_path / "a.run")
    config = build(SampleConfig, whole.config)
    resumed = sample(ethanol_frames(16), config, output=tmp_path / "a.posterior", resume=True, device="cpu")
    assert torch.equal(resumed.step, whole.step)
    torch.testing.assert_close(resumed.samples, whole.samples, rtol=2**-10, atol=1e-6)
    with safe_open(max((tmp_path / "a.run").glob("checkpoint-*")), framework="pt") as file:
        assert json.loads(file.metadata()["equibayes"])["format_version"] == checkpoint.VERSION


def test_an_old_settings_file_names_what_is_gone() -> None:
    from equibayes.config import read_yaml

    with pytest.raises(
        InputError, match=r"^guard.safety: this setting no longer exists \(fixed at 0.5\); leave it out$"
    ):
        build(SampleConfig, read_yaml(FILES / "v1.run/config.yaml"))


def test_a_calibration_is_stored_in_the_present_format(tmp_path: Path) -> None:
    path = tmp_path / "a.posterior"
    store(FILES / "v1-first.posterior", path, {"any": 1})
    header, tensors = tensor_file.read(path, format=FORMAT, version=VERSION, what="posterior file")
    assert header["calibration"] == {"any": 1}
    assert torch.equal(tensors["samples"], read(FILES / "v1-first.posterior")[1]["samples"])


def test_the_checksum_is_that_of_the_file_as_written(tmp_path: Path) -> None:
    """Also of parts that the upgrade removes."""
    content = (FILES / "v1.posterior").read_bytes()
    path = tmp_path / "a.posterior"
    path.write_bytes(content.replace(b'\\"safety\\": 0.5', b'\\"safety\\": 0.6', 1))
    assert path.read_bytes() != content
    with pytest.raises(InputError, match="the checksum differs"):
        load(path)


def settings(**guard: Any) -> dict[str, Any]:
    values = SampleConfig().to_dict()
    values["guard"] |= guard
    return values


def test_settings_that_became_constants() -> None:
    """A run continues only if it used the value of the constant; a posterior forgets the other value."""
    config = settings(safety=0.5, iterations=7)
    settings_1_to_2(config)
    assert config == settings(iterations=7)
    header = {"config": settings(safety=0.4) | {"precision": "tf32"}, "network": {}}
    posterior_1_to_2(header)
    assert header["config"] == settings() | {"precision": "mixed"}
    assert header["network"] == {"per_type_energy_shifts_trainable": False}


@pytest.mark.parametrize("version", [0, "1", None, [1]])
def test_versions_that_never_were(version: Any, tmp_path: Path) -> None:
    header = {"format": FORMAT, "format_version": version}
    save_file({"samples": torch.zeros(1, 3)}, tmp_path / "a", {"equibayes": json.dumps(header)})
    with pytest.raises(InputError, match=f"this equibayes reads format {VERSION}; use the equibayes that wrote it"):
        load(tmp_path / "a")


def test_an_old_file_without_sense(tmp_path: Path) -> None:
    tensor_file.write(tmp_path / "a", {"samples": torch.zeros(1, 3)}, {"config": 3}, format=FORMAT, version=1)
    with pytest.raises(InputError, match="this posterior file of format 1 makes no sense"):
        load(tmp_path / "a")
