"""Reading a structure, refusing what is no crystal, and the standard setting."""

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, fcc111, molecule
from ase.geometry import cell_to_cellpar
from ase.io import write
from ase.spacegroup import crystal as spacegroup_crystal

from equibayes.errors import InputError
from equibayes.solids import crystal as crystal_module
from equibayes.solids.crystal import Crystal, read_crystal, thickness

RUTILE = {"spacegroup": 136, "cellpar": [4.59, 4.59, 2.96, 90, 90, 90]}
BISMUTH = {"spacegroup": 166, "cellpar": [4.55, 4.55, 11.86, 90, 90, 120], "primitive_cell": True}
ZIRCONIA = {"spacegroup": 14, "cellpar": [5.15, 5.2, 5.32, 90, 99.2, 90]}
CASES = {
    "body-centred": (bulk("Fe", cubic=True), "Im-3m", "cubic", 1, [2.87, 2.87, 2.87, 90, 90, 90]),
    "hexagonal": (bulk("Mg"), "P6_3/mmc", "hexagonal", 2, [3.21, 3.21, 5.213, 90, 90, 120]),
    "salt": (bulk("NaCl", "rocksalt", a=5.64), "Fm-3m", "cubic", 2, [5.64, 5.64, 5.64, 90, 90, 90]),
    "rutile": (
        spacegroup_crystal(["Ti", "O"], [(0, 0, 0), (0.305, 0.305, 0)], **RUTILE),
        "P4_2/mnm",
        "tetragonal",
        6,
        RUTILE["cellpar"],
    ),
    "rhombohedral": (spacegroup_crystal(["Bi"], [(0, 0, 0.234)], **BISMUTH), "R-3m", "trigonal", 2, BISMUTH["cellpar"]),
    "monoclinic": (
        spacegroup_crystal(
            ["Zr", "O", "O"], [(0.276, 0.041, 0.208), (0.07, 0.332, 0.345), (0.449, 0.757, 0.48)], **ZIRCONIA
        ),
        "P2_1/c",
        "monoclinic",
        12,
        ZIRCONIA["cellpar"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_any_description_leads_to_the_standard_setting(name: str) -> None:
    """Turned and shifted; the conventional cell has a along x and the third axis of a hexagonal cell along z."""
    atoms, group, system, size, cellpar = CASES[name]
    turned = atoms.copy()
    turned.rotate(37, (1, 2, 3), rotate_cell=True)
    turned.positions += 0.3
    found = Crystal.of(turned, name)
    assert (found.space_group, found.system, len(found.primitive)) == (group, system, size)
    cell = found.conventional @ found.primitive.cell.array
    np.testing.assert_allclose(cell_to_cellpar(cell), cellpar, atol=2e-3)
    np.testing.assert_allclose(cell[0, 1:], 0, atol=1e-6)
    np.testing.assert_allclose(cell[1, 2], 0, atol=1e-6)
    for rotation in found.rotations:
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)


def test_a_supercell_is_reduced_and_equivalent_atoms_are_found() -> None:
    found = Crystal.of(bulk("NaCl", "rocksalt", a=5.64).repeat(2), "salt")
    assert (found.given, len(found.primitive)) == (16, 2)
    assert found.sites == (0, 1)
    counts = found.supercell(10.0)
    planes = thickness(found.primitive) * counts
    assert planes.min() >= 10.0
    assert (planes * (np.array(counts) - 1) / counts).max() < 10.0, "no larger than needed"


@pytest.mark.parametrize(
    ("atoms", "words"),
    [
        (molecule("H2O"), "not periodic in three directions"),
        (Atoms("Cu", pbc=True), "not periodic in three directions"),
        (Atoms(cell=[3, 3, 3], pbc=True), "holds no atoms"),
        (Atoms("OH2", molecule("H2O").positions, cell=[15, 15, 15], pbc=True), "of a slab or of a molecule in a box"),
        (fcc111("Cu", (1, 1, 4), vacuum=8.0, periodic=True), "along lattice vector 3"),
        (Atoms("Cu2", cell=[3, 3, 3], pbc=True), "spglib cannot analyse it"),
    ],
)
def test_what_is_no_crystal_is_refused(atoms: Atoms, words: str) -> None:
    with pytest.raises(InputError, match=words) as told:
        Crystal.of(atoms, "given.xyz")
    assert str(told.value).startswith("given.xyz: ")


@pytest.mark.parametrize("name", ["POSCAR", "a.cif", "a.xyz"])
def test_any_file_of_ase_is_read(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, bulk("Cu", cubic=True))
    atoms = read_crystal(tmp_path / name)
    assert len(atoms) == 4
    assert Crystal.of(atoms, name).space_group == "Fm-3m"


def test_one_frame_of_many(tmp_path: Path) -> None:
    path = tmp_path / "a.xyz"
    write(path, [bulk("Cu"), bulk("Ag"), bulk("Au")])
    assert [read_crystal(f"{path}{part}").get_chemical_formula() for part in ("", "@1", "@-1")] == ["Cu", "Ag", "Au"]
    for name, words in ((f"{path}@0:2", "one frame is needed"), (f"{path}@7", "ASE cannot read it")):
        with pytest.raises(InputError, match=words):
            read_crystal(name)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "POSCAR").write_text("what is this?\n")
    with pytest.raises(InputError, match=r"POSCAR: ASE cannot read it .* give a POSCAR, CIF or extended xyz file"):
        read_crystal(tmp_path / "POSCAR")
    with pytest.raises(InputError, match=r"no\.cif: no such file"):
        read_crystal(tmp_path / "no.cif")


def test_disordered_structures_are_refused(tmp_path: Path) -> None:
    alloy = bulk("Cu", cubic=True)
    alloy.info["occupancy"] = {"0": {"Cu": 0.5, "Au": 0.5}}
    alloy.arrays["spacegroup_kinds"] = np.zeros(4, dtype=int)
    write(tmp_path / "alloy.cif", alloy)
    with pytest.raises(InputError, match=r"sites are shared or partly occupied \(Cu, Au\)"):
        read_crystal(tmp_path / "alloy.cif")


def test_without_phonopy_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crystal_module, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"install it with: pip install 'equibayes\[properties\]'"):
        Crystal.of(bulk("Cu"), "cu.cif")
