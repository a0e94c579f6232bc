"""A trajectory that asks where it does not know."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.io import read as ase_read

from equibayes.data import Structure
from equibayes.data.extxyz import read_exact
from equibayes.errors import InputError
from equibayes.labelling.labellers import Label, Refusal
from equibayes.learning.on_the_fly import LearnOnTheFly, training_frames
from equibayes.learning.resample import ResampleSettings
from equibayes.posterior.file import load
from equibayes.posterior.marks import frame_mark
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.md import run_md
from equibayes.simulate.trust import Trust
from equibayes.simulate.watch import Watch
from tests.runs import ethanol_frames, small_config
from tests.simulate.posteriors import ETHANOL, ethanol_start


class Engine:
    """EMT, in this process, on the data's zero of energy; refuses what it is told to."""

    def __init__(self, refuse: tuple[int, ...] = (), zero: float = -4210.0) -> None:
        self.frames: list[Structure] = []
        self.refuse, self.zero = refuse, zero

    def label(self, structure: Structure) -> Label | Refusal:
        self.frames.append(structure)
        if len(self.frames) - 1 in self.refuse:
            return Refusal("it would not converge", 0.0)
        atoms = structure.to_atoms()
        atoms.calc = EMT()
        return Label(float(atoms.get_potential_energy()) + self.zero, atoms.get_forces(), 0.0)

    def close(self) -> None: ...


def fly(folder: Path, trust: Trust, engine: Engine, steps: int = 6, frames: int = 8, **options: Any) -> SimpleNamespace:
    folder.mkdir(exist_ok=True)
    config = small_config(
        {"data": {"validation": 0}, "samples": 2, "burn_in": {"steps": 4}, "network": {"model_dtype": "float64"}}
    )
    posterior, conditions = load(ETHANOL), Conditions("nve", temperature=100.0)
    oracle = LearnOnTheFly(engine, posterior, ethanol_frames(frames), config, ResampleSettings(burn_in=1.0))
    watch = Watch(trust, "label", every=options.pop("every", 10), candidate_gap=options.pop("gap", 10))
    options |= {"watch": watch, "oracle": oracle}
    calculator = Calculator(posterior, device="cpu")
    result = run_md(calculator, ethanol_start(), conditions, steps, folder / "t.xyz", **options)
    fraction = result.asked / max(1, result.step)
    found = {"asked": oracle.asked, "data": oracle.data, "posterior": oracle.posterior, "fraction": fraction}
    return SimpleNamespace(step=result.step, ended=result.ended, **found)


def test_certain_everywhere_asks_nothing(tmp_path: Path) -> None:
    engine = Engine()
    result = fly(tmp_path, Trust(100.0, 200.0), engine, every=2)
    assert (result.step, result.ended, engine.frames, result.fraction) == (6, None, [], 0.0)
    assert len(read_exact(tmp_path / "t.xyz")) == 4
    assert result.data.fingerprint() == ethanol_frames(8).fingerprint()


def test_asks_learns_and_goes_on_from_there(tmp_path: Path) -> None:
    """Every third step is asked; atoms move on without a leap, under another posterior; a refusal costs nothing but
    itself.
    """
    engine = Engine(refuse=(1,))
    result = fly(tmp_path, Trust(1e-6, 200.0), engine, gap=3, every=1)
    assert [each.step for each in result.asked] == [0, 3, 6]
    assert result.ended is None
    assert [each.error is None for each in result.asked] == [False, True, False]
    assert result.fraction == pytest.approx(0.5)
    assert len(result.data) == 10
    assert all(frame.forces is None for frame in engine.frames), "predictions are not shown to the engine"
    np.testing.assert_array_equal(result.data[8].positions, ethanol_start().positions, "as it was when it was labelled")
    kept = read_exact(tmp_path / "t-md/label-0002/data.xyz")
    assert kept.fingerprint() == result.data.fingerprint()
    assert load(tmp_path / "t-md/label-0002/fly.posterior").data["frames"] == 10
    labels = read_exact(tmp_path / "t-md/labels.xyz")
    assert (tmp_path / "t-md/labels.xyz").read_text().count('from="on the fly, step 6"') == 1
    np.testing.assert_array_equal(labels[1].forces, result.data[9].forces)
    # the trajectory goes on with what was learned
    last, learned = ase_read(tmp_path / "t.xyz", -1), result.posterior.predict(ase_read(tmp_path / "t.xyz", -1))
    np.testing.assert_allclose(last.get_forces(), learned.forces, atol=1e-5)
    assert json.loads((tmp_path / "t-md/asked.json").read_text())[1]["refused"] == "it would not converge"
    frames = np.stack([s.positions for s in read_exact(tmp_path / "t.xyz")])
    assert len(frames) == 7
    assert np.abs(np.diff(frames, axis=0)).max() < 0.05
    # what is compared with the engine is what the model said before it learned
    before = load(ETHANOL).predict(engine.frames[0])
    atoms = engine.frames[0].to_atoms()
    atoms.calc = EMT()
    expected = np.sqrt(np.square(before.forces - atoms.get_forces()).mean())
    assert result.asked[0].error == pytest.approx(expected, rel=1e-5)


def test_beyond_the_upper_level_it_ends_and_sends_nothing(tmp_path: Path) -> None:
    engine = Engine()
    result = fly(tmp_path, Trust(1e-6, 1e-5), engine)
    assert (result.step, engine.frames) == (0, [])
    assert "above the upper trust level" in str(result.ended)


def test_it_must_know_when_to_ask(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a lower trust level"):
        fly(tmp_path, Trust(None, 1.0), Engine())


def test_stopped_and_resumed(tmp_path: Path) -> None:
    """The same files as in one go; answers that are there are not asked for again, what is learned already is not
    learned again.
    """
    trust = Trust(1e-6, 200.0)
    whole = fly(tmp_path / "whole", trust, Engine(refuse=(1,)), steps=9, gap=3, every=2)

    class Dying(Engine):
        def label(self, structure: Structure) -> Label | Refusal:
            if len(self.frames) == 2:
                raise KeyboardInterrupt
            return super().label(structure)

    with pytest.raises(KeyboardInterrupt):
        fly(tmp_path / "parts", trust, Dying(refuse=(1,)), steps=9, gap=3, every=2)
    state = tmp_path / "parts/t-md/state.safetensors"
    old = state.read_bytes()
    rest = Engine()
    parts = fly(tmp_path / "parts", trust, rest, steps=9, gap=3, every=2, resume=True)
    assert len(rest.frames) == 2, "two of four were answered before"
    assert parts.asked == whole.asked
    state.write_bytes(old)  # as if killed a moment before the state was saved: everything is known already
    again = fly(tmp_path / "parts", trust, Engine(refuse=(0, 1, 2)), steps=9, gap=3, every=2, resume=True)
    assert again.asked == whole.asked
    for name in ("t.xyz", "t-md/md.log", "t-md/labels.xyz", "t-md/asked.json", "t-md/label-0003/fly.posterior"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    with pytest.raises(InputError, match="data was"):
        fly(tmp_path / "parts", trust, Engine(), steps=12, gap=3, every=2, resume=True, frames=7)


def test_labels_of_another_level_of_theory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another level of theory; label them with the same engine first"):
        fly(tmp_path, Trust(1e-6, 200.0), Engine(zero=0.0))


def test_frames_that_were_held_back_stay_so() -> None:
    data, posterior = ethanol_frames(6), load(ETHANOL)
    known = replace(posterior, data={"frame_marks": [frame_mark(s) for s in data[:4]]})
    assert training_frames(known, data).fingerprint() == data[:4].fingerprint()
    with pytest.raises(InputError, match="2 of 4 frames that the posterior was sampled from are not in it"):
        training_frames(known, data[2:])
