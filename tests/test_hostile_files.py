"""Files with a right checksum and values that no run leaves: one line that names the file and the field."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ase import Atoms

from equibayes import tensor_file
from equibayes.cli.main import main
from equibayes.errors import InputError
from equibayes.posterior import file as posterior_file
from equibayes.posterior.calibration import Calibrated, Calibration, Rescaling
from equibayes.run import checkpoint
from equibayes.run.state import RunState
from equibayes.simulate import state as md_state
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.md import run_md
from equibayes.simulate.reporter import state_file
from tests.runs import Listener, ethanol_frames, runner_of, small_config
from tests.simulate.posteriors import ETHANOL, ethanol_start

Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], object]
NAN = float("nan")


def resigned(path: Path, format: str, version: int, change: Change, source: Path | None = None) -> Path:
    """The file with another header or other tensors, NaN included, and a right checksum."""
    upgrades = posterior_file.UPGRADES if format == posterior_file.FORMAT else None
    header, tensors = tensor_file.read(source or path, format=format, version=version, what="file", upgrades=upgrades)
    change(header, tensors)
    content = {**header, "format": format, "format_version": version}
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    text = tensor_file.json.dumps({**content, "sha256": tensor_file._digest(plain, content)}, sort_keys=True)
    path.write_bytes(tensor_file.save(plain, {tensor_file.KEY: text}))
    return path


def calibrated(**changes: Any) -> Change:
    """A calibration by knots, with some entries changed."""
    knots = (np.array([-3.0, 0.0]), np.array([0.1, 0.2]))
    part = Calibrated("monotone", {4: Rescaling(1.2, 1.3, {}, knots)})

    def change(header: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        content = Calibration(part, part, {"name": "a", "frames": 20}).to_dict()
        content["forces"]["by_k"]["4"].update(changes)
        header["calibration"] = content

    return change


POSTERIOR: dict[str, tuple[Change, str]] = {
    "energy scale of 1e-300": (
        lambda h, t: h["network"].update(per_type_energy_scales=1e-300),
        "network.per_type_energy_scales=1e-300: must be at least 1e-09",
    ),
    "no neighbours": (
        lambda h, t: h["network"].update(avg_num_neighbors=0.0),
        "network.avg_num_neighbors=0.0: must be at least 1e-09",
    ),
    "neighbours of some types": (
        lambda h, t: h["network"].update(avg_num_neighbors={"H": 3.0}),
        "network.avg_num_neighbors=.*needs a value for each of H, C, O",
    ),
    "twice the same type": (
        lambda h, t: h["network"].update(type_names=["H", "H", "O"]),
        "network.type_names=.*must be distinct chemical symbols",
    ),
    "no types": (lambda h, t: h["network"].update(type_names=[]), "network.type_names="),
    "cutoff of 1e-300": (lambda h, t: h["network"].update(r_max=1e-300), "network.r_max=1e-300: must be between 0.1"),
    "cutoff that is NaN": (lambda h, t: h["network"].update(r_max=NAN), "network.r_max=nan: must be a number"),
    "a million layers": (lambda h, t: h["network"].update(num_layers=10**6), "network.num_layers=1000000: must be"),
    "layers as a text": (lambda h, t: h["network"].update(num_layers="many"), "network.num_layers='many'"),
    "dropout of 5": (lambda h, t: h.update(dropout=5), "dropout=5: must be a number between 0 and 1"),
    "dropout of everything": (lambda h, t: h.update(dropout=1.0), "dropout=1"),
    "negative frames": (lambda h, t: h["data"].update(frames=-3), "data.frames=-3: must be a whole number"),
    "frames as a text": (lambda h, t: h["data"].update(frames="x"), "data.frames='x': must be a whole number"),
    "negative chain": (lambda h, t: t["chain"].fill_(-1), "chain has values that are not whole or are negative"),
    "steps that are not whole": (lambda h, t: t.update(step=t["step"].double()), "step has values that are not whole"),
    "samples that are whole": (lambda h, t: t.update(samples=t["samples"].long()), "not real numbers"),
    "reference that is NaN": (
        lambda h, t: h["energy_reference"]["shifts"].update(H=NAN),
        "energy_reference.shifts.H=nan",
    ),
    "reference of another kind": (lambda h, t: h["energy_reference"].update(kind="x"), "energy_reference.kind=x"),
    "history of a text": (lambda h, t: h.update(history="x"), "history='x': must be a list"),
    "record without a step": (lambda h, t: h["history"][0].pop("step"), "history.0.step=None"),
    "error that is a text": (
        lambda h, t: h["history"][-1].update(validation_force_mae_of_mean="x"),
        "validation_force_mae_of_mean='x'",
    ),
    "R-hat that is a text": (lambda h, t: h["verdict"].update(r_hat_forces="x"), "verdict.r_hat_forces='x'"),
    "warning that is a number": (lambda h, t: h["verdict"].update(warnings=[3]), "verdict.warnings=3: must be a text"),
    "settings that are a list": (lambda h, t: h.update(config=[1]), r"config=\[1\]: must be values by name"),
    "name with a surrogate": (lambda h, t: h["data"].update(name="\ud800"), "data.name=.*must be a text"),
    "calibration by 1e-300": (calibrated(factor=1e-300), "factor=1e-300: must be a number between 1e-06"),
    "calibration by 0": (calibrated(factor=0.0), "factor=0.0: must be a number between 1e-06"),
    "spread that is NaN": (calibrated(spread=NAN), "spread=nan: must be a number"),
    "knots that are NaN": (calibrated(ln_sigma=[NAN, 0.0]), "ln_sigma=nan: must be a number"),
    "knots that fall": (calibrated(ln_sigma=[0.0, -3.0]), "in rising order"),
    "knots of two lengths": (calibrated(ln_ratio=[0.0]), "ln_sigma has 2 knots and ln_ratio 1"),
    "knots of 1e300": (calibrated(ln_ratio=[0.0, 1e300]), r"ln_ratio=1e\+300: must be a number"),
}


@pytest.mark.parametrize("case", POSTERIOR)
def test_posterior(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, words = POSTERIOR[case]
    path = resigned(tmp_path / "a.posterior", posterior_file.FORMAT, posterior_file.VERSION, change, ETHANOL)
    with pytest.raises(InputError, match=rf"a\.posterior: .*{words}"):
        posterior_file.load(path)
    assert main(["predict", str(path), "bundled:ethanol@0:1", "-o", str(tmp_path / "o.xyz"), "--threads", "1"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"equibayes: error: {path}: ")
    assert err.count("\n") == 1


CHECKPOINT: dict[str, tuple[Change, str]] = {
    "mass of 0": (lambda h, t: t["sampler.mass.mass"].zero_(), "sampler.mass.mass has values that are not finite or"),
    "NaN weights": (lambda h, t: t["sampler.position"].fill_(NAN), "sampler.position has values that are not finite"),
    "missing momenta": (lambda h, t: t.pop("sampler.momentum"), "sampler.momentum is missing"),
    "momenta of another shape": (
        lambda h, t: t.update({"sampler.momentum": t["sampler.momentum"][:, 1:]}),
        "sampler.momentum has shape",
    ),
    "negative step": (lambda h, t: t["sampler.step"].fill_(-3), "sampler.step has values that are not whole or are"),
    "negative rollbacks": (lambda h, t: t["rollbacks"].fill_(-1), "rollbacks has values that are not whole or are"),
    "slowdown of one chain": (lambda h, t: t.update(slowdown=t["slowdown"][:1]), "slowdown has shape"),
    "marks that are numbers": (lambda h, t: t.update(failed=t["failed"].double()), "failed is not one mark for each"),
    "samples that are missing": (lambda h, t: h["record"].update(samples=9), "sample.2 is missing"),
    "negative number of samples": (lambda h, t: h["record"].update(samples=-1), "samples=-1: must be a whole number"),
    "history without a phase": (lambda h, t: h["record"]["history"][0].pop("phase"), "history.0.phase is missing"),
    "history of fewer chains": (
        lambda h, t: h["record"]["history"][0].update(kinetic_temperature=[1.0]),
        "history.0.kinetic_temperature has 1 entries for 2 chains",
    ),
    "no record": (lambda h, t: h.pop("record"), "record=None: must be values by name"),
}


@pytest.fixture(scope="module")
def run_of_chains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    changes = {"burn_in": {"steps": 8}, "cycles": {"length": 4}, "guard": {"interval": 4}}
    runner_of(ethanol_frames(), small_config(changes), folder=folder).run()
    return checkpoint.newest_first(folder)[0]


@pytest.mark.parametrize("case", CHECKPOINT)
def test_checkpoint(case: str, run_of_chains: Path, tmp_path: Path) -> None:
    change, words = CHECKPOINT[case]
    path = tmp_path / run_of_chains.name
    resigned(path, checkpoint.FORMAT, checkpoint.VERSION, change, run_of_chains)
    with pytest.raises(InputError, match=rf"{path.name}: this checkpoint makes no sense \(.*{words}"):
        checkpoint.load(path, RunState.check)


def test_a_senseless_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    changes = {"burn_in": {"steps": 8}, "cycles": {"length": 4}, "output": {"checkpoint_seconds": 0.0}}
    config = small_config(changes, {"guard": {"interval": 4}})
    whole = runner_of(ethanol_frames(), config, folder=tmp_path).run()
    newest = checkpoint.newest_first(tmp_path)[0]
    resigned(newest, checkpoint.FORMAT, checkpoint.VERSION, lambda h, t: t["sampler.mass.mass"].zero_())
    listener = Listener()
    again = runner_of(ethanol_frames(), config, folder=tmp_path, display=listener).run(resume=True)
    assert "makes no sense (sampler.mass.mass" in listener.messages[0]
    assert "falling back to checkpoint-" in listener.messages[0]
    assert torch.equal(again.sampler.position, whole.sampler.position)


STATE: dict[str, tuple[Change, str]] = {
    "negative step": (lambda h, t: h.update(step=-1), "step=-1: must be a whole number"),
    "negative length": (lambda h, t: h["lengths"].update(trajectory=-5), "lengths.trajectory=-5"),
    "NaN positions": (lambda h, t: t["positions"].fill_(NAN), "positions has values that are not finite"),
    "positions of 1e300": (lambda h, t: t["positions"].fill_(1e300), "positions has values that are not in double"),
    "momenta of fewer atoms": (lambda h, t: t.update(momenta=t["momenta"][:2]), "momenta has shape"),
    "other atoms": (
        lambda h, t: t.update(momenta=t["momenta"][:2], positions=t["positions"][:2]),
        "positions has shape .2, 3., not .9, 3.",
    ),
    "no cell": (lambda h, t: t.pop("cell"), "cell is missing"),
    "random numbers of another kind": (lambda h, t: h["rng"].update(bit_generator="MT19937"), "rng is no state"),
    "random numbers of a text": (lambda h, t: h.update(rng="x"), "rng is no state"),
    "trust state": (lambda h, t: h.update(last_state="x"), "last_state=x: must be one of trusted"),
    "negative frames": (lambda h, t: h["statistics"].update(frames=-1), "statistics.frames=-1"),
    "time of 1e300": (lambda h, t: h["statistics"].update(time=1e300), r"statistics.time=1e\+300"),
    "state of the frames": (lambda h, t: h["statistics"]["states"].update(trusted="x"), "statistics.states.trusted"),
    "jump that is NaN": (lambda h, t: h.update(jump=NAN), "jump=nan: must be a number"),
}


@pytest.mark.parametrize("case", STATE)
def test_state_of_a_simulation(case: str, tmp_path: Path) -> None:
    change, words = STATE[case]
    calculator, path = Calculator(ETHANOL, device="cpu", k=1), tmp_path / "t.xyz"
    conditions = Conditions("langevin", 300.0)
    run_md(calculator, ethanol_start(), conditions, 1, path)
    resigned(state_file(path), md_state.FORMAT, md_state.VERSION, change)
    with pytest.raises(InputError, match=words):
        run_md(calculator, ethanol_start(), conditions, 2, path, resume=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda atoms: atoms.positions.fill(NAN), "positions not finite"),
        (lambda atoms: atoms.positions.fill(1e300), "coordinates beyond"),
        (lambda atoms: atoms.set_pbc(True), "its cell has no volume"),
        (lambda atoms: (atoms.set_cell([5, 5, 1e-9]), atoms.set_pbc(True)), "its cell has no volume"),
    ],
)
def test_structures_that_cannot_be_predicted(change: Callable[[Any], object], words: str) -> None:
    """In Python; files are checked when they are read."""
    posterior, atoms = posterior_file.load(ETHANOL), ethanol_start()
    change(atoms)
    with pytest.raises(InputError, match=words):
        posterior.predict(atoms)
    with pytest.raises(InputError, match=words):
        posterior.predict([ethanol_start(), atoms])


def test_nothing_to_predict() -> None:
    with pytest.raises(InputError, match="structure: has no atoms"):
        posterior_file.load(ETHANOL).predict(Atoms())


def test_a_history_with_gaps_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a record does not tell is not known; the file can be used."""

    def gaps(header: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        del header["history"][-1]["validation_force_sigma"], header["history"][-1]["validation_force_mae_of_mean"]
        header["history"][0]["validation_force_mae"] = None

    path = resigned(tmp_path / "a.posterior", posterior_file.FORMAT, posterior_file.VERSION, gaps, ETHANOL)
    assert main(["info", str(path)]) == 0
    assert "not finite on held-back frames" in capsys.readouterr().out


@pytest.mark.parametrize("weight", [-1e30, 1e30, 1e200])
def test_sigma_that_is_0_or_infinite(weight: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Finite weights of the noise heads can give both; no metric or calibration is made of them."""
    posterior, path = posterior_file.load(ETHANOL), tmp_path / "a.posterior"
    samples = posterior.samples.clone()
    for name, own in posterior.model.layout.groups.items():
        if name.endswith("_head"):
            samples[:, own] = weight
    replace(posterior, samples=samples).save(path)
    argv = [str(path), "bundled:ethanol@400:412", "--threads", "1"]
    assert main(["calibrate", *argv]) == 2
    err = capsys.readouterr().err
    assert "some predictions are not finite or have no σ" in err
    assert err.count("\n") == 1
    assert main(["evaluate", *argv, "--json", str(tmp_path / "m.json")]) == 0
    assert "NaN" not in (tmp_path / "m.json").read_text()
