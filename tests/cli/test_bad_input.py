"""Every kind of bad input: one line with file, frame and remedy, and status 2; the same words as an exception in
Python."""

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from equibayes.cli.main import main
from equibayes.data import read
from equibayes.errors import InputError

HEADER = 'Properties=species:S:1:pos:R:3:forces:R:3 energy={energy} pbc="F F F"'


def frame(
    energy: object = -2080.0,
    rows: tuple[str, ...] = ("O 0 0 0 0 0 1", "H 0.76 0.59 0 0 1 0", "H -0.76 0.59 0 1 0 0"),
    count: int | None = None,
    header: str = HEADER,
) -> str:
    """A frame of extended xyz, right unless told otherwise."""
    return "\n".join([str(len(rows) if count is None else count), header.format(energy=energy), *rows]) + "\n"


SHIFTED = ("O 0 0 0.1 0 0 1", "H 0.76 0.59 0 0 1 0", "H -0.76 0.59 0 1 0 0")
GOOD = frame()
BARE = "Properties=species:S:1:pos:R:3"
PERIODIC = 'Lattice="{lattice}" Properties=species:S:1:pos:R:3:forces:R:3 energy=-1 pbc="T T T"'
BARE_ROWS = tuple(" ".join(row.split()[:4]) for row in SHIFTED)
ARRAYS: dict[str, object] = {
    "z": np.array([8, 1, 1]),
    "R": np.array([[[0, 0, 0], [0.76, 0.59, 0], [-0.76, 0.59, 0]]]) + np.zeros((2, 1, 1)) + [[[0.0]], [[0.1]]],
    "E": np.array([-2080.0, -2081.0]),
    "F": np.ones((2, 3, 3)),
}

# name of the case: file name, its text, what the message must hold (file and frame, then remedy)
TEXTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "no energy": (
        "a.xyz",
        frame(header="Properties=species:S:1:pos:R:3:forces:R:3"),
        ("a.xyz: no energy label in any of 1 frame", "--energy-key"),
    ),
    "no forces": (
        "a.xyz",
        frame(header=BARE + " energy=-1", rows=BARE_ROWS),
        ("a.xyz: no forces label in any of 1 frame", "--forces-key"),
    ),
    "no labels at all": (
        "a.xyz",
        frame(header="water", rows=BARE_ROWS),
        ("a.xyz: no energy label", "equibayes info shows"),
    ),
    "label under another name": (
        "a.xyz",
        frame(header=HEADER.replace("energy=", "dft_energy=")),
        ("a.xyz", "found info key 'dft_energy': pass energy_key=dft_energy (--energy-key dft_energy)"),
    ),
    "forces partly missing": (
        "a.xyz",
        GOOD + frame(header=BARE + " energy=-1", rows=BARE_ROWS),
        ("a.xyz: forces missing under 'forces' in 1 of 2 frames (frame 1, from 0)", "label or remove them"),
    ),
    "energy partly missing": (
        "a.xyz",
        GOOD + frame(header="Properties=species:S:1:pos:R:3:forces:R:3", rows=SHIFTED),
        ("a.xyz: energy missing under 'energy' in 1 of 2 frames (frame 1, from 0)", "label or remove them"),
    ),
    "NaN energy": ("a.xyz", GOOD + frame("nan", SHIFTED), ("a.xyz, frame 1: energy not finite", "recompute or remove")),
    "infinite energy": ("a.xyz", frame("-inf"), ("a.xyz, frame 0: energy not finite", "recompute or remove")),
    "energy that is a word": ("a.xyz", frame("low"), ("a.xyz, frame 0: energy: not numbers", "text editor")),
    "NaN force": (
        "a.xyz",
        frame(rows=("O 0 0 0 0 0 0", "H 0.76 0.59 0 nan 0 0")),
        ("a.xyz, frame 0: forces not finite (NaN or inf) on atom 1 (from 0)", "recompute or remove"),
    ),
    "infinite position": (
        "a.xyz",
        frame(rows=("O 0 0 0 0 0 0", "H inf 0 0 0 0 0")),
        ("a.xyz, frame 0: positions not finite (NaN or inf) on atom 1", "recompute or remove"),
    ),
    "position out of this world": (
        "a.xyz",
        frame(rows=("O 0 0 0 0 0 0", "H 1e30 0 0 0 0 0")),
        ("a.xyz, frame 0: coordinates beyond 1e+06 Å", "--length-unit"),
    ),
    "no cell but periodic": (
        "a.xyz",
        frame(header=HEADER.replace("F F F", "T T T")),
        ("a.xyz, frame 0: periodic, but its cell has no volume", 'pbc="F F F"'),
    ),
    "flat cell": (
        "a.xyz",
        GOOD + frame(header=PERIODIC.format(lattice="5 0 0 0 5 0 5 5 0")),
        ("a.xyz, frame 1: periodic, but its cell has no volume", "give the cell"),
    ),
    "two atoms that coincide": (
        "a.xyz",
        GOOD + frame(rows=("O 0 0 0 0 0 0", "H 0.7 0.5 0 0 0 0", "H 0.7 0.5 0.0001 0 0 0")),
        ("a.xyz, frame 1: atoms 1 and 2 (from 0) coincide", "correct the frame"),
    ),
    "two atoms that coincide across the boundary": (
        "a.xyz",
        frame(header=PERIODIC.format(lattice="5 0 0 0 5 0 0 0 5"), rows=("He 0 1 1 0 0 0", "He 5 1 1 0 0 0")),
        ("a.xyz, frame 0: atoms 0 and 1 (from 0) coincide", "correct the frame"),
    ),
    "too few rows": (
        "a.xyz",
        GOOD + frame(count=5),
        ("a.xyz, frame 1: 5 atoms announced, 3 rows there", "cut short or count wrong"),
    ),
    "too many rows": (
        "a.xyz",
        frame(count=2) + GOOD,
        ("a.xyz, frame 1: begins with 'H -0.76 0.59 0 1 0 0' instead of an atom count", "does not match its rows"),
    ),
    "cut in the last row": ("a.xyz", (GOOD + frame(rows=SHIFTED))[:-12], ("a.xyz, frame 1", "check its comment line")),
    "no atoms": ("a.xyz", GOOD + "0\n\n", ("a.xyz, frame 1: has no atoms", "remove the frame")),
    "no such element": ("a.xyz", frame(rows=("Qq 0 0 0 0 0 0",)), ("a.xyz, frame 0: cannot be read", "check its")),
    "element X": (
        "a.xyz",
        frame(rows=("X 0 0 0 0 0 0",)),
        ("a.xyz, frame 0: atom 0 (from 0) has atomic number 0", "correct it"),
    ),
    "prose": ("a.xyz", "Dear reader,\n", ("a.xyz, frame 0: begins with 'Dear reader,'", "not an xyz file")),
    "empty": ("a.xyz", "", ("a.xyz: the file is empty", "write or download it again")),
    "blank": ("a.xyz", "\n \n", ("a.xyz: the file is empty", "write or download it again")),
    "unknown ending": ("a.cif", GOOD, ("a.cif: unknown extension", "readable are .xyz")),
    "text called npz": ("a.npz", GOOD, ("a.npz: cannot be read", "numpy.savez")),
    "text called traj": ("a.traj", GOOD, ("a.traj: cannot be read", "write it again")),
    "text called db": ("a.db", GOOD * 9, ("a.db: cannot be read", "write it again")),
    "text called json": ("a.json", GOOD, ("a.json: cannot be read", "write it again")),
    "isolated atom without energy": (
        "a.xyz",
        GOOD + frame(header="config_type=IsolatedAtom", rows=("O 0 0 0",)),
        ("a.xyz, frame 1: config_type=IsolatedAtom but has no energy", "give one atom with its energy"),
    ),
    "two energies of an isolated atom": (
        "a.xyz",
        GOOD
        + frame(header="config_type=IsolatedAtom energy=-1", rows=("O 0 0 0",))
        + frame(header="config_type=IsolatedAtom energy=-2", rows=("O 0 0 0",)),
        ("a.xyz, frame 2: a second, different energy of isolated O", "keep one"),
    ),
    "stress of four values": (
        "a.xyz",
        frame(header=HEADER + ' stress="1 2 3 4"'),
        ("a.xyz, frame 0: stress of shape (4,)", "give 3x3, 9 or Voigt 6"),
    ),
    "stress not symmetric": (
        "a.xyz",
        frame(header=HEADER + ' stress="1 2 3 4 5 6 7 8 9"'),
        ("a.xyz, frame 0: stress is not symmetric", "check what its key holds"),
    ),
    "virial without a volume": (
        "a.xyz",
        frame(header=HEADER + ' virial="1 0 0 0 1 0 0 0 1"'),
        ("a.xyz, frame 0: a virial needs a cell", "add the cell"),
    ),
}

ARRAY_CASES: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "energies of fewer frames": ({"E": np.zeros(1)}, ("a.npz: array 'E' of shape (1,)", "the same frames and atoms")),
    "forces of fewer atoms": ({"F": np.zeros((2, 2, 3))}, ("a.npz: array 'F' of shape (2, 2, 3)", "the same frames")),
    "elements of fewer atoms": ({"z": np.array([8, 1])}, ("a.npz: array 'z' of shape (2,)", "the same frames")),
    "flat positions": ({"R": np.zeros((2, 9))}, ("a.npz: array 'R' has shape (1, 2, 9)", "give (frames, atoms, 3)")),
    "negative element": (
        {"z": np.array([8, -1, 1])},
        ("a.npz, frame 0: atom 1 (from 0) has atomic number -1", "correct it"),
    ),
    "element 119": (
        {"z": np.array([8, 1, 119])},
        ("a.npz, frame 0: atom 2 (from 0) has atomic number 119", "correct it"),
    ),
    "pickled objects": ({"F": np.array([{}, {}], dtype=object)}, ("a.npz: cannot be read", "write plain arrays")),
    "complex energies": ({"E": np.zeros(2, complex)}, ("a.npz: array 'E' is of type complex128", "write those")),
    "unknown unit": ({"e_unit": "kcal"}, ("a.npz: unknown energy unit 'kcal'", "did you mean 'kcal/mol'")),
    "no frames": (
        {"R": np.zeros((0, 3, 3)), "E": np.zeros(0), "F": np.zeros((0, 3, 3))},
        ("a.npz: holds no frames", "write or download"),
    ),
}


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[[Path | str, tuple[str, ...]], None]:
    """The program refuses the file in one line on stderr with status 2; Python raises the same words."""

    def check(path: Path | str, parts: tuple[str, ...]) -> None:
        assert main(["sample", str(path), "-o", "never.posterior", "--device", "cpu"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("equibayes: error: ")
        assert err.endswith("\n")
        assert err.count("\n") == 1
        for part in parts:
            assert part in err
        with pytest.raises(InputError) as error:
            read(path)
        assert err == f"equibayes: error: {error.value}\n"

    return check


Refused = Callable[[Path | str, tuple[str, ...]], None]


def test_the_good_frame_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.xyz").write_text(GOOD + "\n" + frame(rows=SHIFTED) + "\n\n")  # blank lines do no harm
    np.savez(tmp_path / "a.npz", **ARRAYS)
    assert main(["info", str(tmp_path / "a.xyz")]) == 0
    assert main(["info", str(tmp_path / "a.npz")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("case", TEXTS)
def test_text(case: str, tmp_path: Path, refused: Refused) -> None:
    name, text, parts = TEXTS[case]
    (tmp_path / name).write_text(text)
    refused(tmp_path / name, parts)


@pytest.mark.parametrize("case", ARRAY_CASES)
def test_arrays(case: str, tmp_path: Path, refused: Refused) -> None:
    changes, parts = ARRAY_CASES[case]
    np.savez(tmp_path / "a.npz", **{**ARRAYS, **changes})
    refused(tmp_path / "a.npz", parts)


def test_arrays_of_unknown_names(tmp_path: Path, refused: Refused) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3), y=np.zeros(3))
    refused(tmp_path / "a.npz", ("a.npz: arrays x, y are of no known kind", "needed: z, R, E, F"))


def test_arrays_with_energies_under_another_name(tmp_path: Path, refused: Refused) -> None:
    np.savez(tmp_path / "a.npz", z=ARRAYS["z"], R=ARRAYS["R"], F=ARRAYS["F"], my_energies=ARRAYS["E"])
    refused(tmp_path / "a.npz", ("a.npz: no energy label", "found array 'my_energies': pass energy_key=my_energies"))


def test_pickle_called_npz_is_never_loaded(tmp_path: Path, refused: Refused) -> None:
    import pickle

    class Trap:
        def __reduce__(self) -> tuple[Callable, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    (tmp_path / "a.npz").write_bytes(pickle.dumps(Trap()))
    refused(tmp_path / "a.npz", ("a.npz: cannot be read", "numpy.savez"))
    np.savez(tmp_path / "b.npz", **{**ARRAYS, "E": np.array([Trap(), Trap()], dtype=object)})
    refused(tmp_path / "b.npz", ("b.npz: cannot be read", "numpy.savez"))
    assert not (tmp_path / "sprung").exists()


def test_missing_file(tmp_path: Path, refused: Refused) -> None:
    refused(tmp_path / "none.xyz", ("none.xyz: no such file", "check the path"))
    refused(f"{tmp_path}/none.xyz@0:5", ("none.xyz: no such file", "check the path"))


def test_directory(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "folder.xyz").mkdir()
    refused(tmp_path / "folder.xyz", ("folder.xyz: is a directory", "name a file in it"))


def test_not_a_text_file(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "a.xyz").write_bytes(bytes(range(256)))
    refused(tmp_path / "a.xyz", ("a.xyz: not a text file", "extension"))
    (tmp_path / "b.xyz").write_bytes("3\nWasser für alle\n".encode("latin-1"))
    refused(tmp_path / "b.xyz", ("b.xyz: not a text file", "UTF-8"))


def test_cut_gzip(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "a.xyz.gz").write_bytes(gzip.compress(GOOD.encode())[:-20])
    refused(tmp_path / "a.xyz.gz", ("a.xyz.gz: cannot be read", "write or download it again"))


def test_npz_cut_short(tmp_path: Path, refused: Refused) -> None:
    np.savez(tmp_path / "a.npz", **ARRAYS)
    content = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(content[: len(content) // 2])
    refused(tmp_path / "a.npz", ("a.npz: cannot be read", "damaged"))


def test_a_part_of_a_part(refused: Refused) -> None:
    refused("bundled:ethanol@test@0:5", ("bundled:ethanol@test@0:5: a part of a part", "give one range or one split"))


def test_odd_names(refused: Refused) -> None:
    refused("a\0b.xyz", ("no such file", "check the path"))
    refused("a\nb.xyz", ("a b.xyz: no such file", "check the path"))
    refused("x" * 5000, ("cannot be opened", "check path"))


def test_warning_on_stderr_and_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.xyz").write_text(GOOD + GOOD)
    assert main(["info", str(tmp_path / "a.xyz")]) == 0
    out, err = capsys.readouterr()
    assert "2 (numbered from 0)" in out
    assert err.startswith("equibayes: warning: a.xyz: 1 frame repeats the geometry of another (frame 0 = frame 1")
    assert err.count("\n") == 1


def test_info_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.xyz").write_text(frame(header="water dft_energy=-1", rows=BARE_ROWS))
    for more in ([], ["--unlabelled"]):
        assert main(["info", str(tmp_path / "a.xyz"), *more]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "energy    none" in out
    assert "missing   energy in all of 1 frame: found info key 'dft_energy': pass energy_key=dft_energy" in out
    assert "          forces in all of 1 frame: name its key with --forces-key" in out
    assert "`equibayes sample` needs energy and forces in every frame" in out


def test_info_on_frames_of_which_some_are_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.xyz").write_text(GOOD + frame(header=BARE + " energy=-1", rows=BARE_ROWS))
    assert main(["info", str(tmp_path / "a.xyz")]) == 0
    assert re.search(r"missing +forces in 1 of 2 frames \(frame 1\): label these frames", capsys.readouterr().out)
    assert main(["info", str(tmp_path / "a.xyz"), "--json"]) == 0
    missing = json.loads(capsys.readouterr().out)["missing"]
    assert (missing["energy"]["count"], missing["forces"]["count"], missing["forces"]["first"]) == (0, 1, [1])
    assert main(["info", "bundled:ethanol@0:2"]) == 0
    assert "missing" not in capsys.readouterr().out
