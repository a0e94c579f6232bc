"""Data and tables of the studies of solids."""

import numpy as np
import pytest
from ase.calculators.emt import EMT

from equibayes.data import read
from studies.solids import emt, foundation
from studies.solids.cases import alloys
from studies.solids.tables import summary


def test_frames_of_emt_carry_its_labels() -> None:
    data = emt.frames("Cu-Au", 12, seed=3)
    assert {tuple(sorted(set(s.numbers.tolist()))) for s in data} >= {(29,), (79,), (29, 79)}
    for structure in data:
        atoms = structure.to_atoms()
        atoms.calc = EMT()
        np.testing.assert_allclose(structure.stress, atoms.get_stress(voigt=False), atol=1e-9)
    other = emt.frames("Cu-Au", 12, seed=4)
    assert not {s.geometry_digest() for s in data} & {s.geometry_digest() for s in other}


@pytest.mark.parametrize("name", foundation.CRYSTALS)
def test_bundled_labels_are_apart(name: str) -> None:
    """Frames to learn from, to choose settings on and to judge by, all with stress, of the crystal's elements."""
    parts = [read(foundation.LABELS / f"{name}{end}.xyz") for end in foundation.PARTS]
    assert [len(part) for part in parts] == [count for count, _ in foundation.PARTS.values()]
    every = [structure for part in parts for structure in part]
    assert all(structure.stress_label is not None for structure in every)
    assert len({structure.geometry_digest() for structure in every}) == len(every)
    assert {*every[0].numbers} == {*foundation.crystal(name).numbers}


def test_ordered_compounds() -> None:
    found = alloys(["Cu", "Ni", "Au"])
    assert list(found)[:3] == ["Cu", "Ni", "Au"]
    assert {str(atoms.symbols) for name, atoms in found.items() if "3" in name} == {"NiCu3", "AuNi3"}


def test_summary_counts_errors_and_intervals() -> None:
    def quantity(value: float, low: float, high: float) -> dict:
        return {"value": value, "sigma": 1.0, "interval_95": [low, high]}

    own = {"eos": {"bulk_modulus": quantity(102.0, 99.0, 105.0)}, "elastic": {"C11": quantity(110.0, 105.0, 115.0)}}
    truth = {"eos": {"bulk_modulus": {"value": 100.0}}, "elastic": {"C11": {"value": 100.0}}}
    case = {"views": {"refined": {"properties": {"Cu": own}}}, "engine": {"Cu": truth}}
    lines = [[word.strip() for word in line.split("|")[1:-1]] for line in summary([case]).splitlines()[2:]]
    assert lines[0] == ["refined", "B, GPa", "1", "2.00", "2.00", "2.0", "100", "100"]
    assert lines[1] == ["refined", "C11, GPa", "1", "10.00", "10.00", "10.0", "0", "0"]
    assert lines[2] == ["refined", "all", "2", "6.00", "10.00", "10.0", "50", "50"]
