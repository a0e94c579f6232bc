"""Observables by name, after a simulation."""

from pathlib import Path

import numpy as np
import pytest
from ase.build import bulk

from equibayes.errors import InputError
from equibayes.posterior.file import load
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.md import run_md
from equibayes.simulate.observables import bond_length, estimate
from equibayes.simulate.observe import BINS, REACH, observe, parse_observables
from equibayes.simulate.watch import Watch
from tests.simulate.member_trajectories import member_trajectories
from tests.simulate.posteriors import ETHANOL, ethanol_start

POSTERIOR = load(ETHANOL).subset(2)
WARM = Conditions("langevin", 300.0, seed=2)
WORDS = ("energy", "distance 0 1", "rdf C H")


@pytest.fixture(scope="module", autouse=True)
def undrawn() -> "pytest.MonkeyPatch":
    """Drawing takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("equibayes.simulate.plot.plot_log", lambda *_, **__: None)
        yield patch


def test_every_kind(tmp_path: Path) -> None:
    """Values are those of the functions in `observables.py`, from the same simulations; a second call computes
    nothing again.
    """
    calculator = Calculator(POSTERIOR, device="cpu", members=True)
    output, start = tmp_path / "t.xyz", ethanol_start()
    run_md(Calculator(POSTERIOR, device="cpu"), start, WARM, 60, output, watch=Watch(every=5))
    wanted = parse_observables(WORDS, start)
    found = observe(wanted, calculator, start, WARM, 60, output, every=5, discard=10)
    assert list(found) == list(WORDS)
    runs = member_trajectories(POSTERIOR, start, WARM, 60, every=5, discard=10, device="cpu")
    expected = estimate([bond_length(frames, 0, 1) for frames in runs])
    bond = found["distance 0 1"]
    np.testing.assert_allclose(bond["samples"], expected.members, atol=1e-6)
    assert bond["spread"] == pytest.approx(float(expected.spread), abs=1e-6)
    assert bond["words"].startswith(f"{bond['mean']:.3f}"[:4])
    assert "Å over 2 samples, statistical error" in bond["words"]
    curve = found["rdf C H"]
    assert (len(curve["r"]), len(curve["mean"]), np.shape(curve["samples"])) == (BINS, BINS, (2, BINS))
    near = np.array(curve["r"]) < 1.5
    assert np.array(curve["mean"])[near].sum() * REACH / BINS == pytest.approx(2.5, abs=0.1), "C2H5: 5 H at 2 C"
    assert found["energy"]["mean"] == pytest.approx(POSTERIOR.predict(start).energy, abs=1.0)
    trajectories = sorted(tmp_path.glob("t-md/member-*.xyz"))
    before = [path.stat().st_mtime_ns for path in trajectories]
    assert len(before) == 2
    assert observe(wanted, calculator, start, WARM, 60, output, every=5, discard=10) == found
    with pytest.raises(InputError, match="fewer than the 60 steps"):
        observe(wanted, calculator, start, WARM, 60, output, discard=60)


def test_words_that_mean_nothing() -> None:
    start = bulk("Si", cubic=True)
    for words, complaint in (
        ("distance 0 8", "from 0 to 7"),
        ("distance 3 3", "two different atoms"),
        ("distance -1 3", 'write "distance 0 1"'),
        ("rdf Si O", "no O among the elements Si"),
        ("angle 0 1 2", 'write "distance 0 1"'),
    ):
        with pytest.raises(InputError, match=complaint):
            parse_observables([words], start)
