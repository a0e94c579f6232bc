"""A trajectory that asks where it does not know."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase.calculators.emt import EMT

from equibayes.data import Structure
from equibayes.errors import InputError
from equibayes.learning.exact_xyz import read_exact
from equibayes.learning.labellers import Label, Refusal
from equibayes.learning.on_the_fly import FlyResult, on_the_fly
from equibayes.learning.resample import ResampleSettings
from equibayes.posterior.file import load
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.trust import Trust
from tests.runs import ethanol_frames, small_config
from tests.simulate.posteriors import ETHANOL, ethanol_start


class Engine:
    """EMT, in this process; refuses what it is told to."""

    def __init__(self, refuse: tuple[int, ...] = ()) -> None:
        self.frames: list[Structure] = []
        self.refuse = refuse

    def label(self, structure: Structure) -> Label | Refusal:
        self.frames.append(structure)
        if len(self.frames) - 1 in self.refuse:
            return Refusal("it would not converge", 0.0)
        atoms = structure.to_atoms()
        atoms.calc = EMT()
        return Label(float(atoms.get_potential_energy()), atoms.get_forces(), 0.0)

    def close(self) -> None: ...


def fly(folder: Path, trust: Trust, engine: Engine, steps: int = 6, **options: Any) -> FlyResult:
    config = small_config(
        {"data": {"validation": 0}, "samples": 2, "burn_in": {"steps": 4}, "network": {"model_dtype": "float64"}}
    )
    return on_the_fly(
        load(ETHANOL),
        ethanol_frames(8),
        ethanol_start(),
        Conditions("nve", temperature=100.0),
        steps,
        engine,
        trust,
        config,
        folder,
        resampling=ResampleSettings(burn_in=1.0),
        say=lambda _: None,
        **options,
    )


def test_certain_everywhere_asks_nothing(tmp_path: Path) -> None:
    engine = Engine()
    result = fly(tmp_path, Trust(100.0, 200.0), engine, every=2)
    assert (result.step, result.ended, engine.frames, result.fraction) == (6, None, [], 0.0)
    assert len(read_exact(tmp_path / "trajectory.xyz")) == 4
    assert result.data.fingerprint() == ethanol_frames(8).fingerprint()


def test_asks_learns_and_goes_on_from_there(tmp_path: Path) -> None:
    """Every third step is asked; atoms move on without a leap, under another posterior; a refusal costs nothing but itself."""
    engine = Engine(refuse=(1,))
    result = fly(tmp_path, Trust(1e-6, 200.0), engine, gap=3, every=1)
    assert [each.step for each in result.asked] == [0, 3, 6]
    assert result.ended is None
    assert [each.error is None for each in result.asked] == [False, True, False]
    assert result.fraction == pytest.approx(0.5)
    assert len(result.data) == 10
    assert all(frame.forces is None for frame in engine.frames), "predictions are not shown to the engine"
    np.testing.assert_array_equal(result.data[8].positions, ethanol_start().positions, "as it was when it was labelled")
    kept = read_exact(tmp_path / "label-0002/data.xyz")
    assert kept.fingerprint() == result.data.fingerprint()
    assert load(tmp_path / "label-0002/fly.posterior").data["frames"] == 10
    assert json.loads((tmp_path / "asked.json").read_text())[1]["refused"] == "it would not converge"
    frames = np.stack([s.positions for s in read_exact(tmp_path / "trajectory.xyz")])
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
    assert result.ended is not None
    assert result.ended.endswith("exploded")


def test_it_must_know_when_to_ask(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a lower trust level"):
        fly(tmp_path, Trust(None, 1.0), Engine())
