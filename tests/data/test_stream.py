"""Structures one after the other: the same as `read` gives, without holding them."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.io import write

from equibayes.data import read
from equibayes.data import stream as module
from equibayes.data.stream import stream
from equibayes.errors import InputError
from tests.data.water_frames import water


@pytest.fixture(autouse=True)
def short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three frames decide about the keys, so that files here are longer than that."""
    monkeypatch.setattr(module, "LOOK", 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "a.xyz", [water(seed, periodic=True) for seed in range(10)], format="extxyz")
    return tmp_path / "a.xyz"


@pytest.mark.parametrize("part", ["", "@2:7", "@::3", "@4", "@-3:", "@::-1"])
def test_the_same_as_read(path: Path, part: str) -> None:
    whole, found = read(f"{path}{part}"), stream(f"{path}{part}")
    structures = list(found.structures)
    assert (found.name, found.total) == (whole.name, len(whole)) == (f"a.xyz{part}", len(structures))
    for one, other in zip(whole, structures, strict=True):
        assert one.source == other.source
        assert one.geometry_digest() == other.geometry_digest()
        assert one.label_digest() == other.label_digest()


def test_compressed_and_other_formats(path: Path, tmp_path: Path) -> None:
    (tmp_path / "b.xyz.gz").write_bytes(gzip.compress(path.read_bytes()))
    read(path).save_npz(tmp_path / "b.npz")
    for name in ("b.xyz.gz", "b.npz"):
        got = list(stream(tmp_path / name).structures)
        assert [s.energy for s in got] == [s.energy for s in read(path)]


def test_units_keys_and_free_atoms(tmp_path: Path) -> None:
    frames = []
    for seed in range(6):
        atoms = water(seed)
        atoms.info["dft"], atoms.calc = 2.0 + seed, None
        frames.append(atoms)
    alone = Atoms("H", positions=[[0, 0, 0]], info={"config_type": "IsolatedAtom", "dft": 1.0})
    write(tmp_path / "a.xyz", [alone, *frames], format="extxyz")
    found = stream(tmp_path / "a.xyz", energy_key="dft", energy_unit="Hartree")
    got = list(found.structures)
    assert (found.total, len(got)) == (7, 6)
    assert [s.energy for s in got] == pytest.approx([27.211386245988 * (2.0 + seed) for seed in range(6)])
    assert all(s.forces is None for s in got)


def test_one_frame_in_memory_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from equibayes.data import ase_formats

    parsed = []
    usual = ase_formats.read_frame
    monkeypatch.setattr(ase_formats, "read_frame", lambda *given: parsed.append(given[1]) or usual(*given))
    structures = stream(path).structures
    next(structures)
    assert parsed == [0, 1, 2], "those that decide about the keys"
    for _ in range(4):
        next(structures)
    assert parsed == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[: len(text) // 2], r"frame 5: 3 atoms announced, . rows there"),
        (lambda text: text.replace("\n3\n", "\n4\n", 1), "frame 2: begins with"),
        (lambda text: "nothing\n" + text, "frame 0: begins with 'nothing' instead of an atom count; not an xyz file"),
        (lambda text: text + "\0", "not a text file"),
        (lambda text: "\n\n", "the file is empty"),
    ],
)
def test_damage_is_seen_before_any_work(path: Path, damage, words: str) -> None:
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=words):
        stream(path)


def test_other_damage(path: Path, tmp_path: Path) -> None:
    lines = path.read_text().splitlines()
    lines[5 * 8 + 3] = lines[5 * 8 + 3].replace("0", "x", 1)  # a coordinate of frame 8
    path.write_text("\n".join(lines) + "\n")
    structures = stream(path).structures
    assert [next(structures).source for _ in range(8)][-1] == "a.xyz, frame 7"
    with pytest.raises(InputError, match=r"a\.xyz, frame 8: cannot be read"):
        next(structures)
    (tmp_path / "cut.xyz.gz").write_bytes(gzip.compress(path.read_bytes())[:-200])
    with pytest.raises(InputError, match=r"cut\.xyz\.gz: cannot be read"):
        stream(tmp_path / "cut.xyz.gz")
    with pytest.raises(InputError, match=r"no\.xyz: no such file"):
        stream(tmp_path / "no.xyz")
    with pytest.raises(InputError, match="no frame has the energy key 'dft'"):
        stream(f"{path}@0:5", energy_key="dft")
    latin = tmp_path / "latin.xyz"
    latin.write_bytes("1\nmade by Müller\nH 0 0 0\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        stream(latin)


def test_atoms_at_one_place(tmp_path: Path) -> None:
    good, bad = "2\n\nH 0 0 0\nH 0 0 0.74\n", "2\n\nH 0 0 0\nH 0 0 0\n"
    (tmp_path / "a.xyz").write_text(good + "2\n\nH 0 0 0\nH 0 0 0.75\n" + "2\n\nH 0 0 0\nH 0 0 0.76\n" + bad)
    structures = stream(tmp_path / "a.xyz").structures
    np.testing.assert_allclose(next(structures).positions[1], [0, 0, 0.74])
    with pytest.raises(InputError, match="frame 3: atoms 0 and 1"):
        list(structures)
