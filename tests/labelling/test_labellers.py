"""Whatever an engine does, it costs one structure, never the run."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.calculator import CalculationFailed
from ase.calculators.emt import EMT

from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.labelling import engine_worker, engines, labellers
from equibayes.labelling.calculator import LabellerCalculator
from equibayes.labelling.labellers import Label, Labeller, Refusal
from tests.labelling import moody

MOODY = "tests.labelling.moody:Moody"


def mood(number: int) -> Structure:
    return Structure([1, 1], [[number, 0, 0], [number, 0, 0.74]])


def reason(answer: Label | Refusal) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.reason


def test_failures_cost_one_structure_each() -> None:
    """An exception or a bad answer leaves the process as it is; a death starts a new one."""
    with Labeller(MOODY) as labeller:
        first = labeller.label(mood(0))
        assert reason(labeller.label(mood(moody.RAISES))) == "RuntimeError: no convergence"
        assert reason(labeller.label(mood(moody.GIVES_NAN))) == "forces of 2 atoms are not finite"
        assert reason(labeller.label(mood(moody.GIVES_WRONG_SHAPE))) == "forces of shape (3, 3) for 2 atoms"
        same = labeller.label(mood(moody.CHATTERS))
        assert reason(labeller.label(mood(moody.EXITS))) == "the engine ended with status 3: out of luck"
        new = labeller.label(mood(0))
        assert reason(labeller.label(mood(moody.ABORTS))).startswith("the engine died from signal 6")
        newer = labeller.label(mood(0))
    for answer in (first, same, new, newer):
        assert isinstance(answer, Label)
        np.testing.assert_array_equal(answer.forces, np.full((2, 3), 0.5))
    assert first.energy == same.energy != os.getpid(), "one process serves many structures, and it is not ours"
    assert len({first.energy, new.energy, newer.energy}) == 3


def test_a_hanging_engine_costs_its_time_limit(tmp_path: Path) -> None:
    """The process is ended, and so is the program that it had started and waited for, as ASE does with ORCA or VASP."""
    child_file = tmp_path / "pid"
    with Labeller(MOODY, {"child_file": str(child_file)}, time_limit_s=2.0) as labeller:
        began = time.monotonic()
        hung = labeller.label(mood(moody.HANGS))
        assert time.monotonic() - began < 10.0
        assert reason(hung) == "no answer within 2 s"
        assert 2.0 <= hung.seconds < 10.0
        assert reason(labeller.label(mood(moody.WAITS_FOR_CHILD))) == "no answer within 2 s"
        assert isinstance(labeller.label(mood(0)), Label)
    assert _ends(int(child_file.read_text()))


def test_an_interruption_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the engine works: the late answer must not be taken for that to the next question."""
    with Labeller(MOODY) as labeller:
        before = labeller.label(mood(0))

        def interrupted(*_: object) -> bool:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("multiprocessing.connection.Connection.poll", interrupted)
            with pytest.raises(KeyboardInterrupt):
                labeller.label(mood(moody.GIVES_NAN))
        after = labeller.label(mood(0))
    assert isinstance(before, Label)
    assert isinstance(after, Label)
    assert before.energy != after.energy


def test_nothing_lives_on() -> None:
    with Labeller(MOODY) as labeller:
        answer = labeller.label(mood(0))
    assert isinstance(answer, Label)
    assert _ends(int(answer.energy))


def test_settings_reach_the_engine_and_its_provenance() -> None:
    with Labeller(MOODY, {"force": 0.25}, threads=2) as labeller:
        answer = labeller.label(mood(0))
        assert labeller.provenance["engine"] == MOODY
        assert labeller.provenance["settings"] == {"force": 0.25}
        assert "ase" in labeller.provenance["versions"]
    assert isinstance(answer, Label)
    np.testing.assert_array_equal(answer.forces, np.full((2, 3), 0.25))


@pytest.mark.parametrize(
    ("engine", "settings", "message"),
    [
        ("gfn2-xbt", {}, "no such engine; did you mean 'gfn2-xtb'"),
        ("no_such_package:Engine", {}, r"not installed .*pip install equibayes\[label\]"),
        ("tests.labelling.moody:Cheerful", {}, "cannot be set up: AttributeError"),
        ("pbe/def2-svp", {"bases": "sto-3g"}, "no setting 'bases'"),
        ("gfn2-xtb", {"chrage": 1}, "no setting 'chrage'; there are method, charge"),
    ],
)
def test_mistakes_are_told_at_once(engine: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Labeller(engine, settings)
    assert "\n" not in str(caught.value)


def test_impossible_limits() -> None:
    with pytest.raises(InputError, match="time limit"):
        Labeller(MOODY, time_limit_s=0.0)
    with pytest.raises(InputError, match="threads"):
        Labeller(MOODY, threads=0)


def test_any_calculator_of_ase_by_its_name() -> None:
    """EMT copper with stress, as the calculator in this process gives it; an element that it does not know costs that
    structure.
    """
    atoms = bulk("Cu", cubic=True)
    atoms.rattle(0.05, seed=1)
    with Labeller("emt") as labeller:
        refused = labeller.label(Structure.from_atoms(bulk("Si")))
        answer = labeller.label(Structure.from_atoms(atoms))
    assert "Si" in reason(refused)
    assert isinstance(answer, Label)
    atoms.calc = EMT()
    assert answer.energy == pytest.approx(atoms.get_potential_energy(force_consistent=True), abs=1e-10)
    np.testing.assert_allclose(answer.forces, atoms.get_forces(), atol=1e-10)
    np.testing.assert_allclose(answer.stress, atoms.get_stress(voigt=False), atol=1e-10)
    labelled = answer.attach(Structure.from_atoms(bulk("Cu", cubic=True)))
    assert labelled.energy == answer.energy
    np.testing.assert_array_equal(labelled.stress, answer.stress)


def test_the_energy_is_the_one_whose_gradient_the_forces_are() -> None:
    """Metals: the free energy, not the energy extrapolated to zero temperature."""
    order = engines.Order("own", {}, "tests.labelling.test_labellers:Smeared")
    structure = mood(0)
    (kind, content), _ = engine_worker._answer(
        (structure.numbers, structure.positions, structure.cell, structure.pbc), order, None
    )
    assert kind == "label"
    assert content[0] == -2.0


class Smeared(moody.Moody):
    def calculate(self, *arguments: object) -> None:
        super().calculate(*arguments)
        self.results |= {"energy": -1.0, "free_energy": -2.0}


def test_as_a_calculator() -> None:
    """Relaxations and dynamics with the engine itself; a refusal is ASE's own exception."""
    atoms = Atoms("H2", [[0, 0, 0], [0, 0, 0.74]])
    with Labeller(MOODY) as labeller:
        atoms.calc = LabellerCalculator(labeller)
        np.testing.assert_array_equal(atoms.get_forces(), np.full((2, 3), 0.5))
        assert atoms.get_potential_energy() > 0
        atoms.positions[0, 0] = moody.RAISES
        with pytest.raises(CalculationFailed, match="no convergence"):
            atoms.get_forces()


def test_default_limits_are_generous() -> None:
    """DFT of a middle-sized molecule takes minutes."""
    assert labellers.TIME_LIMIT_S >= 300.0


def _ends(process: int) -> bool:
    """Whether a process is gone, or a zombie that only waits to be counted, within five seconds."""
    for _ in range(100):
        try:
            os.kill(process, 0)
            status = Path(f"/proc/{process}/stat")
            if status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
