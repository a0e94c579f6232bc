"""Damaged files of every format: a valid data set or one line of `InputError`, never anything else."""

import gzip
import io
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from ase.db import connect
from ase.io import write
from hypothesis import given, settings
from hypothesis import strategies as st

from equibayes.data import Dataset, read
from equibayes.errors import InputError, InputWarning
from tests.data.water_frames import water

ENDINGS = (".xyz", ".xyz.gz", ".npz", ".traj", ".db", ".json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of one undamaged file of each ending, and of the npz kinds under their names."""
    folder = tmp_path_factory.mktemp("whole")
    images = [water(0, periodic=True), water(1, periodic=True)]
    write(folder / "a.xyz", images, format="extxyz")
    write(folder / "a.traj", images)
    for name in ("a.db", "a.json"):
        with connect(folder / name) as database:
            for atoms in images:
                database.write(atoms, config_type="bulk", data={"REF_energy": 1.0})
    read(folder / "a.xyz").save_npz(folder / "ours.npz")
    np.savez(
        folder / "a.npz",
        z=images[0].numbers,
        R=np.array([atoms.positions for atoms in images]),
        E=np.array([atoms.calc.results["energy"] for atoms in images]),
        F=np.array([atoms.calc.results["forces"] for atoms in images]),
        cell=np.array([atoms.cell.array for atoms in images]),
        e_unit="eV",
        r_unit=np.bytes_("Ang"),
    )
    files = {path.name.removeprefix("a"): path.read_bytes() for path in folder.iterdir()}
    return files | {".xyz.gz": gzip.compress(files[".xyz"])}


def outcome(folder: Path, ending: str, content: bytes) -> str:
    """Read; "error" or "data".  Anything but the two is a failed test."""
    path = folder / f"damaged{ending}"
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # foreign warnings must not get through either
            warnings.simplefilter("ignore", InputWarning)
            data = read(path)
            str(data.summary())
    except InputError as error:
        message = str(error)
        assert "\n" not in message
        assert "damaged" in message or "written by a newer equibayes" in message  # where the format's number was hit
        return "error"
    assert isinstance(data, Dataset)
    for structure in data:
        assert np.isfinite(structure.positions).all()
        assert structure.energy is not None
        assert np.isfinite(structure.energy)
        assert structure.forces is not None
        assert np.isfinite(structure.forces).all()
    return "data"


damage = st.lists(
    st.tuples(st.sampled_from(("set", "cut", "insert", "drop")), st.floats(0, 1), st.binary(min_size=1, max_size=6)),
    min_size=1,
    max_size=4,
)


def apply(content: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, piece in edits:
        at = int(where * len(content))
        if kind == "set":
            content = content[:at] + piece + content[at + len(piece) :]
        elif kind == "insert":
            content = content[:at] + piece + content[at:]
        elif kind == "drop":
            content = content[:at] + content[at + len(piece) :]
        else:
            content = content[:at]
    return content


QUICK = settings(max_examples=150, derandomize=True, deadline=None, database=None)


@pytest.mark.parametrize("ending", ENDINGS)
def test_undamaged_files_are_read(whole: dict[str, bytes], tmp_path: Path, ending: str) -> None:
    assert outcome(tmp_path, ending, whole[ending]) == "data"


@pytest.mark.parametrize("ending", ENDINGS)
def test_damaged_bytes(whole: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, ending: str) -> None:
    folder = tmp_path_factory.mktemp("bytes")

    @QUICK
    @given(damage)
    def check(edits: list[tuple[str, float, bytes]]) -> None:
        outcome(folder, ending, apply(whole[ending], edits))

    check()


@pytest.mark.parametrize("ending", ENDINGS)
def test_arbitrary_bytes(tmp_path_factory: pytest.TempPathFactory, ending: str) -> None:
    folder = tmp_path_factory.mktemp("arbitrary")

    @settings(QUICK, max_examples=40)
    @given(st.binary(max_size=200))
    def check(content: bytes) -> None:
        assert outcome(folder, ending, content) == "error"

    check()


@pytest.mark.parametrize("ending", [".npz", "ours.npz"])
def test_damage_behind_the_checksum_of_an_npz(
    whole: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, ending: str
) -> None:
    """Damaged arrays in an intact zip: the checksums are right, the headers and values are not."""
    folder = tmp_path_factory.mktemp("inner")
    with zipfile.ZipFile(io.BytesIO(whole[ending])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    @QUICK
    @given(st.sampled_from(sorted(members)), damage)
    def check(name: str, edits: list[tuple[str, float, bytes]]) -> None:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, apply(content, edits) if member == name else content)
        outcome(folder, ".npz", packed.getvalue())

    check()


TOKENS = (
    "nan",
    "inf",
    "-1",
    "0",
    "1e400",
    "T",
    '"',
    "stress=1",
    "C",
    "Xx",
    "pbc=",
    "REF_energy=x",
    "_JSON [",
    "\t",
    "9999999",
)


def test_damaged_words_of_an_xyz_file(whole: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Words exchanged, repeated, left out: text that looks like extended xyz more than damaged bytes do."""
    folder = tmp_path_factory.mktemp("words")
    words = whole[".xyz"].decode().replace("\n", " \n ").split(" ")
    place = st.integers(0, len(words) - 1)

    @QUICK
    @given(st.lists(st.tuples(place, st.one_of(st.sampled_from(TOKENS), place)), min_size=1, max_size=3))
    def check(edits: list[tuple[int, str | int]]) -> None:
        changed = list(words)
        for at, by in edits:
            changed[at] = words[by] if isinstance(by, int) else by
        outcome(folder, ".xyz", " ".join(changed).encode())

    check()


def test_cut_at_every_byte(whole: dict[str, bytes], tmp_path: Path) -> None:
    """A cut xyz file is an error unless the cut takes only digits off the last number or falls between frames."""
    content = whole[".xyz"]
    results = [outcome(tmp_path, ".xyz", content[:end]) for end in range(1, len(content), 7)]
    assert results.count("data") < 0.1 * len(results)
