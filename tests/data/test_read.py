"""Reading: every format, the label search, units, splits."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from ase.db import connect
from ase.io import write

from equibayes.data import Structure, bundled_ethanol, read
from equibayes.data.splits import save_splits
from equibayes.errors import InputError
from equibayes.units import BOHR, GPA, HARTREE, KCAL_PER_MOL
from tests.data.water_frames import water

Writer = Callable[[list[Atoms], str], Path]


@pytest.mark.parametrize("name", ["a.xyz", "a.extxyz", "a.XYZ", "a.xyz.gz", "a.npz", "a.traj", "a.db", "a.json"])
def test_every_format_gives_the_same_structures(write_as: Writer, frames: list[Atoms], name: str) -> None:
    data = read(write_as(frames, name))
    assert data.name == name
    assert len(data) == len(frames)
    for index, (found, atoms) in enumerate(zip(data, frames)):
        assert found.source == f"{name}, frame {index}"
        np.testing.assert_array_equal(found.numbers, atoms.numbers)
        np.testing.assert_allclose(found.positions, atoms.positions, atol=1e-7)
        assert found.energy == pytest.approx(atoms.calc.results["energy"], abs=1e-7)
        np.testing.assert_allclose(found.forces, atoms.calc.results["forces"], atol=1e-7)


@pytest.mark.parametrize("name", ["a.xyz", "a.traj", "a.db"])
def test_periodic_frames_keep_cell_and_stress(write_as: Writer, name: str) -> None:
    atoms = water(0, periodic=True)
    (found,) = read(write_as([atoms], name))
    expected = Structure.from_atoms(atoms)
    assert found.pbc.all()
    np.testing.assert_allclose(found.cell, expected.cell, atol=1e-8)
    np.testing.assert_allclose(found.stress, expected.stress, atol=1e-8)


@pytest.mark.parametrize("name", ["a.traj", "a.db"])
def test_forces_on_constrained_atoms_are_the_raw_ones(write_as: Writer, name: str) -> None:
    atoms = water(0)
    expected = atoms.calc.results["forces"].copy()
    atoms.set_constraint(FixAtoms([0]))
    (found,) = read(write_as([atoms], name))
    np.testing.assert_allclose(found.forces, expected)


def test_reading_a_database_writes_nothing(write_as: Writer, frames: list[Atoms], tmp_path: Path) -> None:
    path = write_as(frames, "a.db")
    before = path.read_bytes()
    read(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.db"]


def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(InputError, match="without ASE's table 'systems'"):
        read(path)
    assert path.read_bytes() == before


# --- labels -----------------------------------------------------------------------------------------------------------


def relabelled(tmp_path: Path, energy_key: str, forces_key: str, keep: bool = False) -> Path:
    """Two frames labelled under these keys: energies 1, 2 and forces all 1, all 2; with `keep` also ASE's own
    labels."""
    images = []
    for index in range(2):
        atoms = water(index)
        if not keep:
            atoms.calc = None
        atoms.info[energy_key] = -index - 1.0
        atoms.arrays[forces_key] = np.full((3, 3), index + 1.0)
        images.append(atoms)
    path = tmp_path / "a.xyz"
    write(path, images, format="extxyz")
    return path


def test_ref_keys_come_before_ase_results(tmp_path: Path) -> None:
    data = read(relabelled(tmp_path, "REF_energy", "REF_forces", keep=True))
    assert [s.energy for s in data] == [-1.0, -2.0]
    assert data.report is not None
    assert data.report.keys == {"energy": "REF_energy", "forces": "REF_forces"}


def test_named_keys_come_before_all_others(tmp_path: Path) -> None:
    path = relabelled(tmp_path, "dft_energy", "dft_forces", keep=True)
    data = read(path, energy_key="dft_energy", forces_key="dft_forces")
    assert [s.energy for s in data] == [-1.0, -2.0]
    np.testing.assert_array_equal(data[1].forces, np.full((3, 3), 2.0))
    assert read(path)[0].energy == pytest.approx(water(0).calc.results["energy"])
    # A key that ASE moves into its results is still found by its name.
    assert read(path, energy_key="energy")[0].energy == read(path)[0].energy


@pytest.mark.parametrize(
    ("energy_key", "forces_key", "hint"),
    [
        ("dft_energy", "REF_forces", "found info key 'dft_energy': pass energy_key=dft_energy"),
        ("TotEnergy", "REF_forces", "found info key 'TotEnergy': pass energy_key=TotEnergy"),
        ("free_energy", "REF_forces", "found ASE results key 'free_energy': pass energy_key=free_energy"),
        ("REF_energy", "force", "found arrays key 'force': pass forces_key=force"),
        ("REF_energy", "dft_gradient", "forces are minus it"),
        ("quantity", "REF_forces", "name their key with energy_key="),
    ],
)
def test_labels_under_another_name_are_pointed_out(tmp_path: Path, energy_key: str, forces_key: str, hint: str) -> None:
    with pytest.raises(InputError, match=r"no (energy|forces) label in any of 2 frames") as error:
        read(relabelled(tmp_path, energy_key, forces_key))
    assert hint in str(error.value)


def test_free_energy_can_be_named(tmp_path: Path) -> None:
    data = read(relabelled(tmp_path, "free_energy", "REF_forces"), energy_key="free_energy")
    assert [s.energy for s in data] == [-1.0, -2.0]


def test_named_key_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no frame has the energy key 'E'; keys there: REF_energy, REF_forces"):
        read(relabelled(tmp_path, "REF_energy", "REF_forces"), energy_key="E")


def test_labels_of_a_database_row_in_its_data(tmp_path: Path) -> None:
    with connect(tmp_path / "a.db") as database:
        atoms = water(0)
        database.write(atoms, REF_energy=-7.0, data={"REF_forces": np.ones((3, 3))})
    (found,) = read(tmp_path / "a.db")
    assert found.energy == -7.0
    np.testing.assert_array_equal(found.forces, np.ones((3, 3)))


def test_unlabelled_frames_on_request(tmp_path: Path) -> None:
    bare = water(0)
    bare.calc = None
    write(tmp_path / "a.xyz", [bare, water(1)])
    with pytest.raises(InputError, match=r"energy missing under 'energy' in 1 of 2 frames \(frame 0, from 0\)"):
        read(tmp_path / "a.xyz")
    data = read(tmp_path / "a.xyz", require_labels=False)
    assert [s.energy is None for s in data] == [True, False]


XX_TO_XY = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
NINE = [0.1, 0.6, 0.5, 0.6, 0.2, 0.4, 0.5, 0.4, 0.3]


@pytest.mark.parametrize("key", ["stress", "REF_stress", "my_stress"])
@pytest.mark.parametrize("values", [XX_TO_XY, NINE], ids=["voigt", "nine"])
def test_stress_of_any_shape_under_any_name(tmp_path: Path, key: str, values: list[float]) -> None:
    text = " ".join(map(str, values))
    path = tmp_path / "a.xyz"
    lattice = 'Lattice="4 0 0 0 4 0 0 0 4"'
    path.write_text(
        f'1\n{lattice} Properties=species:S:1:pos:R:3:forces:R:3 energy=-1 {key}="{text}"\nHe 0 0 0 0 0 0\n'
    )
    (found,) = read(path, stress_key=key if key == "my_stress" else None)
    np.testing.assert_array_equal(found.stress, [[0.1, 0.6, 0.5], [0.6, 0.2, 0.4], [0.5, 0.4, 0.3]])


@pytest.mark.parametrize("key", ["virial", "REF_virial", "virials", "REF_virials"])
def test_virial_is_minus_volume_times_stress(tmp_path: Path, key: str) -> None:
    text = " ".join(map(str, NINE))
    path = tmp_path / "a.xyz"
    lattice = 'Lattice="4 0 0 0 4 0 0 0 4"'
    path.write_text(
        f'1\n{lattice} Properties=species:S:1:pos:R:3:forces:R:3 energy=-1 {key}="{text}"\nHe 0 0 0 0 0 0\n'
    )
    (found,) = read(path)
    np.testing.assert_allclose(found.stress, -np.reshape(NINE, (3, 3)) / 64.0)
    with pytest.raises(InputError, match=f"stress unit GPa: '{key}' holds virials, which are energies"):
        read(path, stress_unit="GPa")


@pytest.mark.parametrize(("key", "shape"), [("stress", (2, 6)), ("stress", (2, 9)), ("virial", (2, 3, 3))])
def test_stress_in_arrays(tmp_path: Path, key: str, shape: tuple[int, ...]) -> None:
    values = np.array(XX_TO_XY if shape[-1] == 6 else NINE)
    cells = np.array([4 * np.eye(3), 5 * np.eye(3)])
    labels = {"E": np.zeros(2), "F": np.zeros((2, 1, 3)), key: np.stack([values, 2 * values]).reshape(shape)}
    np.savez(tmp_path / "a.npz", z=[2], R=np.zeros((2, 1, 3)), cell=cells, **labels)
    for number, structure in enumerate(read(tmp_path / "a.npz")):
        expected = (1 + number) * np.reshape(NINE, (3, 3))
        expected = expected if key == "stress" else -expected / cells[number, 0, 0] ** 3
        np.testing.assert_allclose(structure.stress, expected)


@pytest.mark.parametrize("name", ["a.xyz", "a.traj"])
@pytest.mark.parametrize(("unit", "size"), [("GPa", 1.0), ("kbar", 0.1), ("Ha/bohr^3", HARTREE / BOHR**3 / GPA)])
def test_stress_in_a_unit_of_its_own(write_as: Writer, name: str, unit: str, size: float) -> None:
    """The value of each frame in GPa; energies and forces stay in eV and Å."""
    frames = [water(0, periodic=True), water(1, periodic=True)]
    for frame in frames:
        frame.calc.results["stress"] = np.array(XX_TO_XY) / size
    for found, frame in zip(read(write_as(frames, name), stress_unit=unit), frames):
        expected = [[0.1, 0.6, 0.5], [0.6, 0.2, 0.4], [0.5, 0.4, 0.3]]
        np.testing.assert_allclose(found.stress / GPA, expected, rtol=1e-7)
        assert found.energy == pytest.approx(frame.calc.results["energy"])


def test_a_little_asymmetry_is_averaged_away(tmp_path: Path) -> None:
    path, lattice = tmp_path / "a.xyz", 'Lattice="4 0 0 0 4 0 0 0 4"'
    head = f"1\n{lattice} Properties=species:S:1:pos:R:3:forces:R:3 energy=-1 "
    path.write_text(f'{head}stress="1 0.009 0 0 1 0 0 0 1"\nHe 0 0 0 0 0 0\n')
    assert read(path)[0].stress[0, 1] == read(path)[0].stress[1, 0] == pytest.approx(0.0045)
    path.write_text(f'{head}stress="1 0.011 0 0 1 0 0 0 1"\nHe 0 0 0 0 0 0\n')
    with pytest.raises(InputError, match="stress is not symmetric"):
        read(path)


def test_frames_with_and_without_stress(tmp_path: Path) -> None:
    """What info says: how many have one, and how many cannot be learned from."""
    path, frame = tmp_path / "a.xyz", []
    for pbc, stress in (
        ("T T T", 'stress="1 0 0 0 1 0 0 0 1"'),
        ("T T F", 'stress="1 0 0 0 1 0 0 0 1"'),
        ("T T T", ""),
    ):
        head = f'Lattice="{4 + len(frame)} 0 0 0 4 0 0 0 4" pbc="{pbc}"'
        frame.append(f"1\n{head} Properties=species:S:1:pos:R:3:forces:R:3 energy=-1 {stress}\nHe 0 0 0 0 0 0\n")
    path.write_text("".join(frame))
    data = read(path)
    assert [s.stress is not None for s in data] == [True, True, False]
    assert [s.stress_label is not None for s in data] == [True, False, False]
    words = dict(data.summary().lines())
    assert words["stress"] == "2 of 3 under 'stress'; 1 ignored, not periodic in three directions"
    assert words["units"].startswith("eV, Ang, eV/Ang, eV/Ang^3 (")


# --- units ------------------------------------------------------------------------------------------------------------


def test_units_convert_all_labels(write_as: Writer, tmp_path: Path) -> None:
    atoms = water(0, periodic=True)
    stress = atoms.calc.results["stress"]
    scaled = Atoms("OH2", positions=atoms.positions / BOHR, cell=atoms.cell / BOHR, pbc=True)
    results = {
        "energy": atoms.calc.results["energy"] / HARTREE,
        "forces": atoms.calc.results["forces"] * BOHR / HARTREE,
        "stress": stress * BOHR**3 / HARTREE,
    }
    scaled.calc = SinglePointCalculator(scaled, **results)
    (found,) = read(write_as([scaled], "a.traj"), energy_unit="Hartree", length_unit="Bohr")
    expected = Structure.from_atoms(atoms)
    assert found.energy == pytest.approx(expected.energy, rel=1e-12)
    np.testing.assert_allclose(found.positions, expected.positions, rtol=1e-12)
    np.testing.assert_allclose(found.cell, expected.cell, rtol=1e-12)
    np.testing.assert_allclose(found.forces, expected.forces, rtol=1e-12)
    np.testing.assert_allclose(found.stress, expected.stress, rtol=1e-12)


def test_force_unit_of_its_own(write_as: Writer, frames: list[Atoms]) -> None:
    path = write_as(frames, "a.npz")
    data = read(path, force_unit="kcal/mol/Ang")
    np.testing.assert_allclose(data[0].forces, frames[0].calc.results["forces"] * KCAL_PER_MOL)
    assert data[0].energy == frames[0].calc.results["energy"]
    assert data.report is not None
    assert data.report.units_origin.startswith("force unit as told, else assumed")


def test_rmd17_is_kcal_per_mol_by_definition(tmp_path: Path, frames: list[Atoms]) -> None:
    positions = np.array([atoms.positions for atoms in frames])
    forces = np.array([atoms.calc.results["forces"] for atoms in frames])
    energies = np.array([-48000.0, -48001.0, -48002.0, -48003.0])
    np.savez(tmp_path / "rmd17_w.npz", nuclear_charges=[8, 1, 1], coords=positions, energies=energies, forces=forces)
    data = read(tmp_path / "rmd17_w.npz")
    assert data[1].energy == pytest.approx(-48001.0 * KCAL_PER_MOL, rel=1e-15)
    np.testing.assert_allclose(data[1].forces, forces[1] * KCAL_PER_MOL)
    assert data.report is not None
    assert "definition" in data.report.units_origin


@pytest.mark.parametrize("text", [np.array, np.bytes_], ids=["characters", "bytes"])
def test_units_named_in_an_sgdml_file(tmp_path: Path, frames: list[Atoms], text: Callable) -> None:
    positions = np.array([atoms.positions for atoms in frames])
    forces = np.array([atoms.calc.results["forces"] for atoms in frames])
    energies = np.full((4, 1), -48000.0)  # some files have a second axis of one
    units = {"r_unit": text("Ang"), "e_unit": text("kcal/mol")}
    np.savez(tmp_path / "w.npz", z=[8, 1, 1], R=positions, E=energies, F=forces, **units)
    data = read(tmp_path / "w.npz")
    assert data[0].energy == pytest.approx(-48000.0 * KCAL_PER_MOL)
    assert data.report is not None
    assert data.report.units_origin == "named in the file"
    assert data.report.units["force"] == "kcal/mol/Ang"


def test_lattice_of_sgdml_holds_vectors_in_columns(tmp_path: Path) -> None:
    lattice = np.array([[4.0, 1.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 6.0]])
    labels = {"E": np.zeros(1), "F": np.zeros((1, 1, 3))}
    np.savez(tmp_path / "a.npz", z=[2], R=np.zeros((1, 1, 3)), lattice=lattice, **labels)
    (found,) = read(tmp_path / "a.npz")
    np.testing.assert_array_equal(found.cell, lattice.T)
    assert found.pbc.all()


def test_unknown_unit_names_the_file(write_as: Writer, frames: list[Atoms]) -> None:
    with pytest.raises(InputError, match=r"a.npz: unknown energy unit 'kcal': did you mean 'kcal/mol'"):
        read(write_as(frames, "a.npz"), energy_unit="kcal")


# --- isolated atoms ---------------------------------------------------------------------------------------------------


def test_isolated_atoms_are_set_apart(tmp_path: Path) -> None:
    free = Atoms("O", positions=[[0, 0, 0]], info={"config_type": "IsolatedAtom"})
    free.calc = SinglePointCalculator(free, energy=-2042.0)
    write(tmp_path / "a.xyz", [free, water(0), water(1)])
    data = read(tmp_path / "a.xyz")
    assert data.isolated_atoms == {8: -2042.0}
    assert [s.source for s in data] == ["a.xyz, frame 1", "a.xyz, frame 2"]
    assert read(f"{tmp_path}/a.xyz@2:").isolated_atoms == {8: -2042.0}


# --- parts of a file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "expected"),
    [("0:2", [0, 1]), ("::2", [0, 2]), ("-1:", [3]), ("1:-1", [1, 2]), ("2", [2]), ("-4", [0]), ("::-1", [3, 2, 1, 0])],
)
def test_ranges(write_as: Writer, frames: list[Atoms], part: str, expected: list[int]) -> None:
    path = write_as(frames, "a.xyz")
    data = read(f"{path}@{part}")
    assert [s.source for s in data] == [f"a.xyz, frame {i}" for i in expected]
    assert data.name == f"a.xyz@{part}"


@pytest.mark.parametrize("ending", [".npz", ".json"])
def test_named_split_beside_the_file(write_as: Writer, frames: list[Atoms], ending: str) -> None:
    path = write_as(frames, "a.xyz.gz")
    save_splits(path.parent / f"a.splits{ending}", {"train": np.array([2, 0]), "rest": np.array([1, 3])})
    assert [s.source[-1] for s in read(f"{path}@train")] == ["2", "0"]
    with pytest.raises(InputError, match=r"no split 'tran' in a.splits.*; there are: train, rest"):
        read(f"{path}@tran")


def test_split_file_named_in_the_spec(write_as: Writer, frames: list[Atoms], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_as(frames, "a.xyz")
    save_splits(path.parent / "mine.json", {"train": np.array([3])})
    assert len(read(f"{path}@{path.parent}/mine.json:train")) == 1
    assert len(read(f"{path}@mine.json:train")) == 1  # beside the data
    monkeypatch.chdir(path.parent)
    assert len(read("a.xyz@mine.json:train")) == 1


def test_official_split_of_rmd17(tmp_path: Path) -> None:
    with np.load(Path(sys.modules["equibayes.data"].__file__).parent / "bundled" / "ethanol.npz") as ethanol:
        np.savez(
            tmp_path / "rmd17_ethanol.npz", **{k: v if k == "nuclear_charges" else v[:9] for k, v in ethanol.items()}
        )
    np.savez(tmp_path / "splits_ethanol.npz", train_01=np.array([8, 1], dtype=np.int16), test_01=np.array([0]))
    data = read(tmp_path / "rmd17_ethanol.npz@train_01")
    assert [s.source for s in data] == ["rmd17_ethanol.npz, frame 8", "rmd17_ethanol.npz, frame 1"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("9", "no frame 9; there are 4"),
        ("5:9", "holds none of the 4 frames"),
        ("::0", "step of 0"),
        ("train", "no split file beside a.xyz; give a range"),
        ("none.json:train", "none.json: no such file"),
    ],
)
def test_parts_that_are_not_there(write_as: Writer, frames: list[Atoms], part: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(f"{write_as(frames, 'a.xyz')}@{part}")


def test_split_file_with_a_frame_outside(write_as: Writer, frames: list[Atoms]) -> None:
    path = write_as(frames, "a.xyz")
    (path.parent / "a.splits.json").write_text(json.dumps({"train": [0, 4]}))
    with pytest.raises(InputError, match=r"a.xyz@train: no frame 4; there are 4"):
        read(f"{path}@train")
    (path.parent / "a.splits.json").write_text(json.dumps({"train": [0.5]}))
    with pytest.raises(InputError, match="split train is not a list of frame numbers"):
        read(f"{path}@train")


def test_at_sign_in_a_file_name(write_as: Writer, frames: list[Atoms]) -> None:
    path = write_as(frames, "a@300K.xyz")
    assert len(read(path)) == 4
    assert len(read(f"{path}@0:2")) == 2


# --- bundled data -----------------------------------------------------------------------------------------------------


def test_bundled_ethanol() -> None:
    data = bundled_ethanol()
    assert len(data) == 2000
    assert data.species == (1, 6, 8)
    assert {s.composition for s in data} == {((1, 6), (6, 2), (8, 1))}
    train, test = read("bundled:ethanol@train_01"), bundled_ethanol("test")
    assert (len(train), len(test)) == (1000, 1000)
    assert read("bundled:ethanol@train").fingerprint() == train.fingerprint()
    assert not {s.geometry_digest() for s in train} & {s.geometry_digest() for s in test}
    energies = np.array([s.energy for s in data])
    assert -4211 < energies.min() < energies.max() < -4208  # eV: PBE/def2-SVP ethanol
    # Labels belong to their frames: net force and torque of a free molecule vanish.
    for structure in data[::100]:
        assert structure.forces is not None
        assert np.abs(structure.forces.sum(0)).max() < 2e-3
        assert np.abs(np.cross(structure.positions, structure.forces).sum(0)).max() < 5e-3
    with pytest.raises(InputError, match="no bundled data set 'methanol'; there is: ethanol"):
        read("bundled:methanol")


def test_ase_is_not_imported_for_arrays() -> None:
    """A GPU machine that only computes need not have it."""
    program = (
        "import sys; from equibayes.data import read; read('bundled:ethanol').summary(); print('ase' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
