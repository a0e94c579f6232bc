"""Splits: reproducible and disjoint, in memory and in files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equibayes.data import bundled_ethanol, read
from equibayes.data.splits import load_splits, paper_rmd17, save_splits, split
from equibayes.errors import InputError

TRAIN = [3, 8, 12, 13, 14]
VALIDATION = [10, 15, 16]


def test_the_same_for_ever() -> None:
    """Numbers written down once: a change of numpy or of the code would change everybody's splits."""
    drawn = split(20, {"train": 5, "validation": 3}, seed=7)
    assert drawn["train"].tolist() == TRAIN
    assert drawn["validation"].tolist() == VALIDATION
    assert split(20, {"train": 5, "validation": 3}, seed=8)["train"].tolist() != TRAIN


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(n=st.integers(0, 200), first=st.floats(0, 0.5), second=st.floats(0, 0.5), seed=st.integers(0, 2**32))
def test_disjoint_and_complete(n: int, first: float, second: float, seed: int) -> None:
    drawn = split(n, {"a": first, "b": second, "rest": -1}, seed)
    assert sorted(np.concatenate(list(drawn.values())).tolist()) == list(range(n))
    assert len(drawn["a"]) == int(np.floor(first * n + 1e-9))


def test_sizes() -> None:
    assert {name: len(i) for name, i in split(1000, {"train": 970, "validation": 30}, 0).items()} == {
        "train": 970,
        "validation": 30,
    }
    assert len(split(100, {"train": 0.29}, 0)["train"]) == 29  # not 28, as 0.29 * 100 would give
    assert len(split(bundled_ethanol("0:10"), {"train": 0.5}, 0)["train"]) == 5


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"train": 8, "test": 3}, r"splits need 11 frames \(train 8, test 3\), there are 10"),
        ({"train": 1.5}, "more than all"),
        ({"train": -2}, "neither a count"),
        ({"train": float("nan")}, "neither a count"),
        ({"train": -1, "test": -1}, "only one split can take what is left"),
    ],
)
def test_sizes_that_cannot_be(sizes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split(10, sizes, 0)


@pytest.mark.parametrize("name", ["a.npz", "a.json"])
def test_save_and_load(tmp_path: Path, name: str) -> None:
    drawn = split(50, {"train": 20, "test": -1}, seed=1)
    save_splits(tmp_path / name, drawn)
    back = load_splits(tmp_path / name)
    assert list(back) == ["train", "test"]
    for key, indices in drawn.items():
        np.testing.assert_array_equal(back[key], indices)
        assert back[key].dtype == np.int64


def test_split_file_of_another_ending(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in .npz or .json"):
        save_splits(tmp_path / "a.txt", {})


def test_protocol_of_the_paper() -> None:
    official = np.random.default_rng(0).permutation(9633)[:1000].astype(np.int16)
    splits = paper_rmd17(official, 9633)
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [970, 30, 8633]
    assert sorted(np.concatenate(list(splits.values())).tolist()) == list(range(9633))
    assert set(splits["train"]) | set(splits["validation"]) == set(official.tolist())
    assert splits["validation"].tolist() == paper_rmd17(official, 9633)["validation"].tolist()
    with pytest.raises(InputError, match="1000 distinct frames below 500"):
        paper_rmd17(official, 500)


@pytest.mark.parametrize("spec", ["-:", "+:", ":-", "::+", "-", "--1", "1:2:3:4", "9" * 5000 + ":x", "¹:²"])
def test_ranges_that_are_none(spec: str) -> None:
    """Not a range, so the name of a split, which does not exist."""
    with pytest.raises(InputError, match=r"no split|no such file|cannot be opened|is a directory") as caught:
        read(f"bundled:ethanol@{spec}")
    assert len(str(caught.value)) < 700
