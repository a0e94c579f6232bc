"""Data sets: subsets, fingerprints, and the file that numpy alone reads."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from equibayes.data import Dataset, Structure, bundled_ethanol, read
from equibayes.data.dataset import from_arrays
from equibayes.errors import InputError
from tests.data.water_frames import water


@pytest.fixture
def mixed() -> Dataset:
    """Frames with all labels, with some, with none."""
    whole = Structure.from_atoms(water(0, periodic=True), source="a.xyz, frame 0")
    bare = Structure(np.array([6]), np.ones((1, 3)), source="a.xyz, frame 1", config_type="odd")
    only_forces = dataclasses.replace(bare, forces=np.full((1, 3), 0.5))
    return Dataset([whole, bare, only_forces, whole], "mixed", isolated_atoms={6: -1029.5})


def test_sequence(mixed: Dataset) -> None:
    assert len(mixed) == 4
    assert mixed[1].config_type == "odd"
    assert isinstance(mixed[1:], Dataset)
    assert [s.source for s in mixed[1:3]] == ["a.xyz, frame 1"] * 2
    assert mixed.species == (1, 6, 8)
    assert mixed.n_atoms.tolist() == [3, 1, 1, 3]


def test_subset_keeps_order_and_atoms(mixed: Dataset) -> None:
    part = mixed.subset([3, 1], "part")
    assert part.name == "part"
    assert [len(s) for s in part] == [3, 1]
    assert part.isolated_atoms == {6: -1029.5}


@pytest.mark.parametrize(("indices", "message"), [([0, 4], "no frame 4; there are 4"), ([0.5], "whole numbers")])
def test_subset_outside(mixed: Dataset, indices: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mixed.subset(indices)


def loaded(path: Path) -> Dataset:
    """The content of the file, without the checks of `read`."""
    with np.load(path, allow_pickle=False) as file:
        return from_arrays({name: file[name] for name in file.files})


def test_save_and_load(mixed: Dataset, tmp_path: Path) -> None:
    mixed.save_npz(tmp_path / "set.npz")
    back = loaded(tmp_path / "set.npz")
    assert back.fingerprint() == mixed.fingerprint()
    assert (back.name, back.isolated_atoms, back.report) == (mixed.name, mixed.isolated_atoms, mixed.report)
    assert [s.source for s in back] == [s.source for s in mixed]
    assert [s.config_type for s in back] == [s.config_type for s in mixed]
    assert [s.forces is None for s in back] == [False, True, False, False]
    assert [s.stress is None for s in back] == [False, True, True, False]


def test_saved_set_is_read_like_any_file(tmp_path: Path) -> None:
    data = bundled_ethanol("0:20")
    data.save_npz(tmp_path / "set.npz")
    again = read(tmp_path / "set.npz")
    assert again.fingerprint() == data.fingerprint()
    assert again.report == data.report
    assert read(f"{tmp_path}/set.npz@5:8").fingerprint() == data[5:8].fingerprint()
    with pytest.raises(InputError, match="already in eV"):
        read(tmp_path / "set.npz", energy_unit="kcal/mol")


def test_empty_set_round_trip(tmp_path: Path) -> None:
    Dataset([], "none").save_npz(tmp_path / "none.npz")
    assert len(loaded(tmp_path / "none.npz")) == 0


FIXED = "70bc4d0406a8f65e2474b082666cc7b32889cb4ba3be970dff96783fbeea4288"


def test_fingerprint_is_fixed_for_ever() -> None:
    """Written into posterior files: it must not change between versions or machines."""
    frame = Structure(np.array([1, 8]), np.array([[0.0, 0, 0], [0, 0, 0.97]]), energy=-1.5, forces=np.zeros((2, 3)))
    assert Dataset([frame]).fingerprint() == FIXED
    assert Dataset([frame], name="other").fingerprint() == FIXED


@pytest.mark.parametrize("change", ["order", "energy", "forces", "position"])
def test_fingerprint_sees(change: str) -> None:
    data = bundled_ethanol("0:3")
    frames = list(data)
    if change == "order":
        frames = frames[::-1]
    elif change == "energy":
        frames[1] = dataclasses.replace(frames[1], energy=np.nextafter(frames[1].energy, 0))
    elif change == "forces":
        frames[1] = dataclasses.replace(frames[1], forces=None)
    else:
        frames[1] = dataclasses.replace(frames[1], positions=np.nextafter(frames[1].positions, 9))
    assert Dataset(frames).fingerprint() != data.fingerprint()


def test_concatenate(mixed: Dataset) -> None:
    ethanol = bundled_ethanol("0:3")
    both = Dataset.concatenate([mixed, ethanol])
    assert len(both) == 7
    assert both.name == "mixed + bundled:ethanol@0:3"
    assert both.isolated_atoms == {6: -1029.5}
    with pytest.raises(InputError, match="free-atom energy of element 6"):
        Dataset.concatenate([mixed, Dataset([], "b", isolated_atoms={6: -1.0})])
