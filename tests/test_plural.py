"""Counts in messages: 1 frame, 2 frames."""

import re
from pathlib import Path

import equibayes
from equibayes.data import Dataset, read
from equibayes.plural import counted

PACKAGE = Path(equibayes.__file__).parent


def test_one_and_several() -> None:
    assert [counted(n, "frame") for n in (0, 1, 2)] == ["0 frames", "1 frame", "2 frames"]
    assert counted("1", "energy", "energies") == "1 energy"
    assert counted(3, "energy", "energies") == "3 energies"


def test_one_frame_in_messages() -> None:
    one = read("bundled:ethanol@0:1")
    assert repr(Dataset(one.structures, "a")) == "Dataset('a', 1 frame)"
    assert "1 frames" not in str(one.summary())


def test_messages_count_with_the_helper() -> None:
    """A number of things directly before a fixed plural would read 1 frames."""
    nouns = "frames|structures|chains|samples|steps|labels|atoms"
    fixed = re.compile(r"\{(?:len\([^{}]*\)|count|n|size|total|steps|n_frames)\} (?:" + nouns + r")\b")
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if fixed.search(line) and "ValueError" not in line
    ]
    assert found == []
