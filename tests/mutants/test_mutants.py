"""The changes are valid programs that differ, a known fault is caught, and the checkout stays as it is."""

import ast
from pathlib import Path

import pytest

from tests.mutants.__main__ import at_random, deliberate, source_files, table
from tests.mutants.faults import EQUIVALENT, FAULTS
from tests.mutants.mutate import Mutant, mutants_of
from tests.mutants.trials import COPIED, ROOT, Runner, Trials, copied_tree
from tests.mutants.which_tests import FIRST, FOLDERS, THEN, first, then

SOURCE = '''"""Docstring with 1 + 2."""

import numpy as np


def blend(α: float, values: np.ndarray, steps: int = 3) -> np.ndarray:
    """Not 4 * 5."""
    if not values.any() or steps <= 2:
        raise ValueError(f"{steps + 1} steps")
    total = -α * (  # not this + sign
        values[1:]
        + 0.5
    )
    values[0] = total.max()
    return np.where(total > 0, total, values[0])
'''


def change(kind: str) -> str:
    """The program after the one change of this kind."""
    (mutant,) = (each for each in mutants_of("x.py", SOURCE) if each.kind == kind)
    return mutant.applied_to(SOURCE)


def test_changes_by_hand() -> None:
    expected = {
        "+ to -": ("        + 0.5", "        - 0.5"),
        "* to /": ("-α * (", "-α / ("),
        "<= to <": ("steps <= 2", "steps < 2"),
        "or to and": ("any() or steps", "any() and steps"),
        "any to all": ("values.any()", "values.all()"),
        "max to min": ("total.max()", "total.min()"),
        "> to >=": ("total > 0,", "total >= 0,"),
        "constant doubled": ("+ 0.5", "+ 1.0"),
        "negated condition": ("if not values.any() or steps <= 2:", "if (not (not values.any() or steps <= 2)):"),
        "swapped arguments": ("total > 0, total, values[0]", "total > 0, values[0], total"),
    }
    for kind, (before, after) in expected.items():
        assert change(kind) == SOURCE.replace(before, after), kind
    removed = [m.applied_to(SOURCE) for m in mutants_of("x.py", SOURCE) if m.kind == "removed statement"]
    assert removed == [
        SOURCE.replace('raise ValueError(f"{steps + 1} steps")', "pass"),
        SOURCE.replace("values[0] = total.max()", "pass"),
    ]
    signs = [m.applied_to(SOURCE) for m in mutants_of("x.py", SOURCE) if m.kind == "removed sign or not"]
    assert signs == [
        SOURCE.replace("not values.any() or", "(values.any()) or"),
        SOURCE.replace("total = -α", "total = (α)"),
    ]


@pytest.mark.parametrize("path", ["equibayes/sampling/mass.py", "equibayes/bayes/heads.py"])
def test_every_change_is_another_valid_program(path: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    original, seen = ast.dump(ast.parse(source)), set()
    mutants = mutants_of(path, source)
    assert len(mutants) > 20
    for mutant in mutants:
        changed = mutant.applied_to(source)
        assert ast.dump(ast.parse(changed)) != original
        seen.add(changed)
        before, after = mutant.lines(source)
        assert before == source.splitlines()[mutant.line - 1].strip() != after
    assert len(seen) == len(mutants)


def test_the_choice_follows_the_seed_alone() -> None:
    few, more, other = at_random(0, 5), at_random(0, 8), at_random(1, 8)
    assert more[:5] == few
    assert more != other


def test_every_source_file_has_tests_and_every_fault_its_place() -> None:
    listed = {f"equibayes/{name}" for name in FIRST}
    for path in listed | {path.relative_to(ROOT).as_posix() for path in source_files()}:
        assert (ROOT / path).exists(), f"{path} is no longer there"
        assert all((ROOT / test).exists() for test in [*first(path), *then(path)])
    assert set(THEN) == set(FOLDERS)
    assert len(deliberate()) == len(FAULTS) == len({fault.what for fault in FAULTS})
    for path, before, _ in EQUIVALENT:
        assert before in (ROOT / path).read_text(encoding="utf-8"), "a change of text that is no longer there"


@pytest.fixture
def little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one function and one test, which starts quickly."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, text in {
        "equibayes/size.py": "def size(x):\n    y = 2 * x\n    while y > 99:\n        y -= 1\n    return y\n",
        "tests/test_size.py": "from equibayes.size import size\n\n\ndef test_size():\n    assert size(3) == 6\n"
        "    assert size(50) == 99\n",
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_outcomes(little: Path) -> None:
    """A wrong result is caught, a loop that never ends is ended, and a change that nothing looks at survives."""
    source = (little / "equibayes/size.py").read_text()
    mutants = mutants_of("equibayes/size.py", source)
    chosen = {mutant.kind: mutant for mutant in mutants}
    tests = [["tests/test_size.py"]]
    with copied_tree(little) as copy, Runner(copy, "pytest") as runner:
        trials = Trials(copy, runner, limit=60)
        assert trials.outcome(chosen["* to /"], tests)[0] == "killed"
        assert list(trials.unchanged) == [("tests/test_size.py",)], "they passed on the unchanged code"
        trials.limit = 2
        assert trials.outcome(chosen["- to +"], tests)[0] == "timeout"
        trials.limit = 60
        same = Mutant("equibayes/size.py", 2, "order", source.index("2 * x"), source.index("2 * x") + 5, "x * 2")
        assert trials.outcome(same, tests)[0] == "survived"
        assert (copy / "equibayes/size.py").read_text() == source
    assert not copy.exists()
    assert (little / "equibayes/size.py").read_text() == source


def test_a_known_fault_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (fault,) = (each for each in deliberate() if each.kind == "cycles have the epochs of the burn-in")
    before = {name: (ROOT / name).stat().st_mtime_ns for name in (*COPIED, fault.path)}
    with copied_tree() as copy, Runner(copy, "pytest") as runner:
        assert Trials(copy, runner, limit=120).outcome(fault, [["tests/sampling/test_schedule.py"]])[0] == "killed"
    assert before == {name: (ROOT / name).stat().st_mtime_ns for name in (*COPIED, fault.path)}


def test_table() -> None:
    rows = [
        {"path": "equibayes/bayes/heads.py", "outcome": "killed"},
        {"path": "equibayes/sampling/mass.py", "outcome": "survived"},
        {"path": "equibayes/sampling/mass.py", "outcome": "timeout"},
    ]
    assert table(rows).splitlines()[2:] == [
        "| bayes | 1 | 1 | 0 | 0 | 0 |",
        "| sampling | 2 | 0 | 1 | 1 | 0 |",
        "| all | 3 | 1 | 1 | 1 | 0 |",
    ]
