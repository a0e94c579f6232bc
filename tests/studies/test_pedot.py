"""The PEDOT data: the paper's splits, and runs that continue after an interruption."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ase.build import molecule
from ase.calculators.emt import EMT

from equibayes.cli.main import parse
from equibayes.cli.settings import data_and_settings
from equibayes.data import read
from equibayes.run.frames import frames_of
from equibayes.run.prepare import fit_reference, prepare
from studies.pedot import splits, trajectory
from tests.studies.running import ROOT


def test_training_frames_are_those_of_the_paper() -> None:
    """Appendix B: 50 of steps 1 to 1500 and 15 of steps 1501 to 1600, of each length; tests begin after them."""
    for length in (8, 12):
        steps = splits.drawn_steps(length)
        assert [len(np.unique(steps[name])) for name in ("train", "validation")] == [50, 15]
        assert 1 <= steps["train"].min() <= steps["train"].max() <= 1500
        assert 1501 <= steps["validation"].min() <= steps["validation"].max() <= 1600
        test = splits.TEST_STEPS[length]
        assert (test[0], test[-1], len(test)) == (1601, 2000, 400)
    assert list(splits.TEST_STEPS[16]) == list(range(1, 2001))
    assert splits.drawn_steps(8)["train"].tolist() != splits.drawn_steps(12)["train"].tolist()


def test_the_protocol_is_that_of_the_paper() -> None:
    """The command of the README: 100 and 30 frames, and the ground state as zero of energy, so that energies of a
    length that was not learned are known.  With the reference chosen from the data they are not."""
    text = (ROOT / "studies/pedot/README.md").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^equibayes (sample .*)$", text, re.MULTILINE)
    arguments = parse(command.split())
    names, config = data_and_settings(arguments)
    train, validation, config = frames_of([ROOT / name for name in names], ROOT / arguments.validation, config)
    prepared = prepare(train, config, validation)
    assert (len(prepared.train), len(prepared.validation)) == (100, 30)
    chain = read(ROOT / "studies/pedot/data/pedot_16.npz@0")[0]
    assert prepared.reference.knows(chain.numbers)
    assert {prepared.reference.total(s.numbers) for s in (*prepared.train, chain)} == {0.0}
    assert np.isfinite(prepared.resident(prepared.validation[:2], "cpu").energy.numpy()).all()
    automatic = replace(config, data=replace(config.data, energy_reference="auto"))
    assert not fit_reference(train, automatic).knows(chain.numbers)


def test_a_run_continues_where_it_was(tmp_path: Path) -> None:
    """Stopped after 20 of 30 steps, it makes the same frames as without a stop."""
    for folder in ("whole", "stopped"):
        _start(tmp_path / folder)
    whole = trajectory.run(1, tmp_path / "whole", EMT(), steps=30)
    trajectory.run(1, tmp_path / "stopped", EMT(), steps=20)
    continued = trajectory.run(1, tmp_path / "stopped", EMT(), steps=30)
    assert len(continued.positions) == len(whole.positions) == 31, "the start and one frame a step"
    np.testing.assert_allclose(continued.positions, whole.positions, atol=1e-12)
    np.testing.assert_allclose(continued.energies, whole.energies, atol=1e-10)
    kept = trajectory.Record.load(tmp_path / "stopped" / "pedot_1.npz")
    np.testing.assert_array_equal(kept.forces, continued.forces)


def test_unfinished_runs_are_named(tmp_path: Path) -> None:
    _start(tmp_path)
    with pytest.raises(SystemExit, match=r"0 of 2000 steps; continue with python -m studies\.pedot 1 "):
        splits._finished(tmp_path / "pedot_1.npz")
    with pytest.raises(SystemExit, match="0 of 2000 steps"):
        splits._finished(tmp_path / "pedot_8.npz")


def _start(folder: Path) -> None:
    """A run of water at its beginning, in place of an oligomer that RDKit would have to build."""
    folder.mkdir(exist_ok=True)
    atoms = molecule("H2O", calculator=EMT())
    trajectory.thermalise(atoms, 300.0, np.random.default_rng(0))
    record = trajectory.Record(atoms.numbers, [], [], [], [], [], atoms.get_velocities())
    record.append(atoms, 0.0)
    record.save(folder / "pedot_1.npz")
