"""Broken input to every loader gives a result or one line, never a traceback, a signal or a wait.

The long form prints what came of its inputs:  python -m pytest tests/test_fuzz.py -m slow -s
"""

from pathlib import Path

import pytest

from tests.fuzzing import fuzz, targets

QUICK = {
    "readers": 20,
    "settings": 15,
    "overrides": 60,
    "splits": 40,
    "posterior": 30,
    "checkpoint": 30,
    "state of a simulation": 15,
    "i-PI": 20,
}
LONG = {
    "readers": 2000,
    "settings": 1500,
    "overrides": 2000,
    "splits": 1200,
    "posterior": 1500,
    "checkpoint": 1000,
    "state of a simulation": 500,
    "i-PI": 500,
}
"""10 200 inputs."""


@pytest.mark.parametrize("target", QUICK)
def test_some(target: str, tmp_path: Path) -> None:
    outcomes, faults = fuzz(target, targets(tmp_path)[target], QUICK[target])
    assert not faults, "\n".join(map(str, faults[:10]))
    assert outcomes["refused"] > QUICK[target] // 10, "the inputs are too harmless"


@pytest.mark.slow
@pytest.mark.parametrize("target", LONG)
def test_many(target: str, tmp_path: Path) -> None:
    outcomes, faults = fuzz(target, targets(tmp_path)[target], LONG[target], seed=1)
    print(f"\n{target}: {outcomes['accepted']} accepted, {outcomes['refused']} refused, {len(faults)} faults")
    assert not faults, "\n".join(map(str, faults[:10]))
