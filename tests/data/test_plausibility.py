"""Units wrong by orders of magnitude and repeated frames are warned about; right ones are not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from equibayes.data import bundled_ethanol, read
from equibayes.errors import InputWarning
from equibayes.units import BOHR, GPA, KCAL_PER_MOL, KJ_PER_MOL

Writer = Callable[[list[Atoms], str], Path]


@pytest.fixture(scope="module")
def ethanol() -> list[Atoms]:
    return [structure.to_atoms() for structure in bundled_ethanol("0:30")]


def written(tmp_path: Path, images: list[Atoms], energy: float = 1.0, length: float = 1.0, total: bool = True) -> Path:
    """The frames with their numbers multiplied, as a program with other units would write them."""
    scaled = []
    for atoms in images:
        copy = Atoms(atoms.numbers, atoms.positions * length, cell=atoms.cell * length, pbc=atoms.pbc)
        labels = {
            "energy": (atoms.get_potential_energy() + (0 if total else 4210)) * energy,
            "forces": atoms.get_forces() * energy / length,
        }
        copy.calc = SinglePointCalculator(copy, **labels)
        scaled.append(copy)
    write(tmp_path / "a.traj", scaled)
    return tmp_path / "a.traj"


def test_right_units_are_silent(tmp_path: Path, ethanol: list[Atoms], recwarn: pytest.WarningsRecorder) -> None:
    read(written(tmp_path, ethanol))
    assert not recwarn.list


@pytest.mark.parametrize("unit", [1 / KCAL_PER_MOL, 1 / KJ_PER_MOL], ids=["kcal/mol", "kJ/mol"])
def test_energy_unit_taken_for_ev(tmp_path: Path, ethanol: list[Atoms], unit: float) -> None:
    with (
        pytest.warns(InputWarning, match=r"a.traj: RMS force .* check energy_unit"),
        pytest.warns(InputWarning, match=r"a.traj: energy .* of frame 0 lies below .* check energy_unit"),
    ):
        read(written(tmp_path, ethanol, energy=unit))
    with pytest.warns(InputWarning, match="RMS force"):  # relative energies say nothing, forces do
        read(written(tmp_path, ethanol, energy=unit, total=False))


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (1 / BOHR, "hydrogen is 2.* Å"),  # Bohr taken for Å
        (BOHR, "hydrogen is 0.5.* Å"),  # Å taken for Bohr
        (0.1, "atoms are 0.1.* Å from their nearest"),  # nm taken for Å
        (10.0, "atoms are 1.* Å from their nearest"),  # Å taken for nm
    ],
)
def test_length_unit(tmp_path: Path, ethanol: list[Atoms], length: float, message: str) -> None:
    with pytest.warns(InputWarning, match=f"{message}.*check length_unit"):
        read(written(tmp_path, ethanol, energy=min(1.0, length), length=length))


@pytest.mark.parametrize("element", ["Cs", "Li", "Cu", "Ar", "C"])
def test_crystals_are_silent(tmp_path: Path, element: str, recwarn: pytest.WarningsRecorder) -> None:
    atoms = bulk(element, "diamond", 3.57) if element == "C" else bulk(element)
    atoms.calc = SinglePointCalculator(atoms, energy=-1.0, forces=np.zeros((len(atoms), 3)))
    write(tmp_path / "a.xyz", atoms)
    read(tmp_path / "a.xyz")
    assert not recwarn.list


def test_duplicate_frames_are_named(write_as: Writer, frames: list[Atoms]) -> None:
    path = write_as([*frames, frames[1], frames[0], frames[1]], "a.xyz")
    with pytest.warns(InputWarning) as caught:
        data = read(path)
    assert len(data) == 7  # warned, not removed
    (warning,) = caught
    message = str(warning.message)
    assert message.startswith("a.xyz: 3 frames repeat the geometry of another")
    assert "frame 0 = frame 5" in message
    assert "frame 1 = frame 4 = frame 6" in message


def test_a_cell_denser_than_matter(tmp_path: Path, ethanol: list[Atoms]) -> None:
    """The cell in nm beside positions in Å: one such frame among good ones."""
    frames = []
    for source in ethanol:
        atoms = Atoms(source.numbers, source.positions, cell=[8.0, 8.0, 8.0], pbc=True)
        atoms.info["REF_energy"], atoms.arrays["REF_forces"] = source.get_potential_energy(), source.get_forces()
        frames.append(atoms)
    frames[4].set_cell([0.8, 0.8, 0.8])
    write(tmp_path / "a.xyz", frames, format="extxyz")
    words = r"a.xyz: the cell of frame 4 holds 9 atoms in 0.512 Å³, denser than any matter; check the cell"
    with pytest.warns(InputWarning, match=words):
        read(tmp_path / "a.xyz")


def test_charges_that_differ(tmp_path: Path, ethanol: list[Atoms], recwarn: pytest.WarningsRecorder) -> None:
    """The same molecule and its cation, and a free ion among the free atoms; all neutral is silent."""

    def labelled(atoms: Atoms, **info: object) -> Atoms:
        copy = Atoms(atoms.numbers, atoms.positions)
        copy.info.update(info, REF_energy=-1.0)
        copy.arrays["REF_forces"] = np.zeros((len(atoms), 3))
        return copy

    neutral = [labelled(atoms, charge=0, spin=1) for atoms in ethanol[:3]]
    free = labelled(Atoms("O"), config_type="IsolatedAtom", charge=0, spin=3)
    write(tmp_path / "a.xyz", [*neutral, free], format="extxyz")
    read(tmp_path / "a.xyz")
    assert not recwarn.list
    ion = labelled(Atoms("O"), config_type="IsolatedAtom", charge=1)
    silent = [labelled(atoms) for atoms in ethanol[:3]]
    for frames in ([*neutral, labelled(ethanol[4], charge=1)], [*neutral, ion], [*silent, ion]):
        write(tmp_path / "a.xyz", frames, format="extxyz")
        with pytest.warns(InputWarning, match=r"a.xyz: frames differ in 'charge' \(0 in frame 0, 1 in frame 3\)"):
            read(tmp_path / "a.xyz")


@pytest.fixture(scope="module")
def copper() -> list[Atoms]:
    """Strained cells, also one with more atoms."""
    rng, frames = np.random.default_rng(0), []
    for number in range(20):
        atoms = bulk("Cu", cubic=True) * ((2, 1, 1) if number == 5 else (1, 1, 1))
        strain = 0.03 * rng.normal(size=(3, 3))
        atoms.set_cell(atoms.cell @ (np.eye(3) + (strain + strain.T) / 2), scale_atoms=True)
        atoms.positions += 0.02 * rng.normal(size=atoms.positions.shape)
        atoms.calc = EMT()
        labels = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces(), "stress": atoms.get_stress()}
        atoms.calc = SinglePointCalculator(atoms, **labels)
        frames.append(atoms)
    return frames


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (1.0, None),
        (1 / GPA, "RMS stress .* is far above .* check stress_unit"),
        (-1.0, "stress of Cu falls as the cell"),
    ],
    ids=["right", "GPa", "sign"],
)
def test_unit_and_sign_of_stress(
    tmp_path: Path, copper: list[Atoms], factor: float, words: str | None, recwarn: pytest.WarningsRecorder
) -> None:
    frames = [atoms.copy() for atoms in copper]
    for frame, atoms in zip(frames, copper):
        results = atoms.calc.results
        frame.calc = SinglePointCalculator(frame, **results | {"stress": factor * results["stress"]})
    write(tmp_path / "a.traj", frames)
    read(tmp_path / "a.traj")
    assert len(recwarn.list) == (0 if words is None else 1)
    if words is not None:
        recwarn.pop(InputWarning)
        with pytest.warns(InputWarning, match=words):
            read(tmp_path / "a.traj")
