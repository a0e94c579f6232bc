"""The writer of extended xyz: the bytes of ASE's writer, or every bit of the numbers."""

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.extxyz import read_xyz, write_xyz

from equibayes.data.extxyz import frame_text, read_exact, write_exact
from equibayes.data.structures import Structure
from tests.samples import salt, slab, water

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("structure", [water(), salt(), slab()], ids=["molecule", "crystal", "slab"])
def test_same_bytes_as_ase(structure: Structure) -> None:
    n = len(structure)
    info = {"step": 3, "energy_std": 0.1 + 0.2, "known": True, "from": "my file.xyz", "matrix": np.eye(3) / 3}
    arrays = {"forces_std": RNG.normal(size=(n, 3)), "atom_sigma": RNG.normal(size=n)}
    energy, forces, stress = -1.25, RNG.normal(size=(n, 3)), np.diag([1.0, 2.0, 3.0])
    atoms = Structure(structure.numbers, structure.positions, structure.cell, structure.pbc).to_atoms()
    atoms.info.update(info)
    for name, values in arrays.items():
        atoms.set_array(name, values)
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces, stress=np.array([1.0, 2, 3, 0, 0, 0]))
    expected = StringIO()
    write_xyz(expected, [atoms])
    ours = frame_text(structure, {**info, "energy": energy, "stress": stress}, {**arrays, "forces": forces})
    assert ours == expected.getvalue()


def test_exact_numbers_and_names_with_signs(tmp_path: Path) -> None:
    structure = salt()
    names = ("a=b.xyz", 'a "quoted" name', "C:\\data\\x.xyz, frame 3")
    for source in names:
        write_exact(
            tmp_path / "a.xyz", [Structure(structure.numbers, structure.positions / 3, structure.cell, source=source)]
        )
        assert read_exact(tmp_path / "a.xyz")[0].positions.tobytes() == (structure.positions / 3).tobytes()
        (atoms,) = read_xyz(StringIO((tmp_path / "a.xyz").read_text()), slice(None))
        assert atoms.info["from"] == source.replace("\\", "/").replace('"', "'")
