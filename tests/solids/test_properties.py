"""Means and σ over members, what is left out, and what is written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.calculator import all_changes
from ase.calculators.emt import EMT
from ase.io import read
from PIL import Image

from equibayes import Properties, properties
from equibayes.errors import InputError
from equibayes.solids.figures import pieces
from equibayes.solids.quantity import Quantity
from equibayes.solids.results import lines, notes
from tests.evaluation.test_report import Page
from tests.runs import Listener
from tests.solids.engines import ScaledEMT

FACTORS = (0.9, 1.0, 1.2)


class Moody(EMT):
    """EMT that fails in a way of its own: a NaN, a cell that expands without end, or a trap in small cells only."""

    def __init__(self, mood: str) -> None:
        super().__init__()
        self.mood = mood

    def calculate(self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes) -> None:
        super().calculate(atoms, properties, system_changes)
        if self.mood == "nan" or (self.mood == "nan in supercells" and len(self.atoms) > 8):
            self.results["energy"] = np.nan
        if self.mood == "expands":
            self.results["stress"] = -0.2 * np.array([1.0, 1.0, 1.0, 0, 0, 0])


@pytest.fixture(scope="module")
def found() -> Properties:
    """Three members whose moduli differ by known factors."""
    return properties([ScaledEMT(factor) for factor in FACTORS], bulk("Cu", a=3.6), supercell_length=6.0)


def test_sigma_is_the_spread_over_members(found: Properties) -> None:
    for group, name in (("eos", "bulk_modulus"), ("elastic", "C44"), ("vacancy", "formation_energy_Cu")):
        quantity = found.numbers[group][name]
        np.testing.assert_allclose(quantity.members / quantity.members[1], FACTORS, rtol=1e-3)
        assert quantity.mean == pytest.approx(quantity.members[1] * np.mean(FACTORS), rel=1e-3)
        assert quantity.sigma == pytest.approx(quantity.members[1] * np.std(FACTORS), rel=1e-2)
    frequency = found.numbers["phonons"]["highest_frequency"].members
    np.testing.assert_allclose(frequency / frequency[1], np.sqrt(FACTORS), rtol=1e-3)
    assert found.numbers["lattice"]["a"].sigma < 1e-4


def test_quantities_as_text() -> None:
    assert str(Quantity(np.array([130.0, 134.0]), "GPa")) == "132.0 ± 2.0 GPa"
    assert str(Quantity(np.array([3.589, np.nan, 3.591]), "Å")) == "3.5900 ± 0.0010 Å"
    assert str(Quantity(np.array([3.5901234]), "Å")) == "3.5901 Å"
    assert str(Quantity(np.array([-1.0, 1.0]), "")) == "0.0 ± 1.0"
    assert str(Quantity(np.array([151.4, 151.4]), "GPa")) == "151.4000 ± 0.0000 GPa"


def test_intervals_hold_one_more_draw() -> None:
    """Of 20 000 sets of five normal numbers, 95 % of the intervals contain a sixth; 3 standard errors are 0.5 %."""
    numbers = np.random.default_rng(0).normal(3.0, 2.0, (6, 20_000))
    low, high = Quantity(numbers[:5], "GPa").interval(0.95)
    assert np.mean((low < numbers[5]) & (numbers[5] < high)) == pytest.approx(0.95, abs=0.005)
    assert Quantity(np.array([1.0, np.nan]), "GPa").interval() is None


def test_json_holds_every_member(found: Properties) -> None:
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["structure"]["space_group"] == "Fm-3m"
    c11 = values["properties"]["elastic"]["C11"]
    assert c11["unit"] == "GPa"
    assert c11["value"] == pytest.approx(np.mean(c11["members"]))
    assert c11["sigma"] == pytest.approx(np.std(c11["members"]))
    assert c11["interval_95"] == pytest.approx(found.numbers["elastic"]["C11"].interval().tolist())
    assert np.shape(values["stiffness_matrix"]["value"]) == (6, 6)
    bands = values["phonon_bands"]
    assert np.shape(bands["members"]) == (3, len(bands["distance"]), 3)
    assert [point["name"] for point in bands["special_points"]][:2] == ["Γ", "X"]
    assert np.shape(values["curves"]["energy_per_atom"]["members"]) == (3, 7)
    assert values["left_out"] == []


def test_figure_and_report(found: Properties, tmp_path: Path) -> None:
    found.plot(tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text()
    for words in ("Lattice", "Equation of state", "Elastic constants", "Phonons", "Vacancy", "frequency, THz", "C44"):
        assert words in drawn
    found.plot(tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").size[0] > 800
    found.report(tmp_path / "a.html", "Made of <EMT>.")
    page = Page((tmp_path / "a.html").read_text())
    assert len(page.ids()) == len(set(page.ids()))
    sections = ["summary", "lattice", "eos", "elastic", "phonons", "vacancy"]
    assert [each for each in page.ids() if each in sections] == sections
    assert len(page.all("svg")) == 5
    assert "Made of <EMT>." in page.words
    assert "σ is the standard deviation over members" in page.words
    modulus = str(found.numbers["eos"]["bulk_modulus"]).split(" ± ")
    assert f"bulk modulus {modulus[0]} {modulus[1].removesuffix(' GPa')} GPa 3" in page.words


def test_bands_are_not_joined_where_the_path_jumps() -> None:
    """The path of a hexagonal crystal jumps from A to L and from M to K."""
    found = properties(EMT(), bulk("Cu", "hcp", a=2.55, c=4.2), only=["phonons"], supercell_length=5.0)
    assert found.bands is not None
    assert [name for _, name in found.bands.ticks if "|" in name] == ["A|L", "M|K"]
    parts = pieces(found.bands.distance)
    assert len(parts) == 3
    assert sum(part.stop - part.start for part in parts) == len(found.bands.distance)
    for before, after in zip(parts, parts[1:]):
        ends = found.bands.q_points[[before.stop - 1, after.start]]
        assert np.abs(ends[0] - ends[1]).max() > 0.1


def test_members_that_fail_are_left_out_and_named() -> None:
    members = [EMT(), Moody("nan"), Moody("expands"), Moody("nan in supercells")]
    only = ["lattice", "elastic", "vacancy"]
    found = properties(members, bulk("Cu", a=3.6), only=only, supercell_length=7.0)
    reasons = {(each.property, each.member): each.reason for each in found.left_out}
    assert reasons[("lattice", 1)] == "its energy or forces are not finite"
    assert "its cell went to 2" in reasons[("lattice", 2)] or "its cell ran away" in reasons[("lattice", 2)]
    assert reasons[("vacancy", 3)] == "its energy or forces are not finite"
    assert len(reasons) == 3
    assert np.isfinite(found.numbers["lattice"]["a"].members).tolist() == [True, False, False, True]
    assert np.isfinite(found.numbers["vacancy"]["formation_energy_Cu"].members).tolist() == [True, False, False, False]
    assert found.numbers["vacancy"]["formation_energy_Cu"].sigma is None
    assert found.to_dict()["properties"]["lattice"]["a"]["members"][1] is None
    assert "lattice: calculator 1 left out: its energy or forces are not finite" in notes(found)


def test_no_member_relaxes() -> None:
    with pytest.raises(InputError, match=r"structure: no member relaxes this crystal; calculator 0: its energy"):
        properties([Moody("nan")], bulk("Cu"), only=["lattice"])


def test_a_property_without_members_is_skipped() -> None:
    found = properties([Moody("nan in supercells")], bulk("Cu"), only=["lattice", "vacancy"], supercell_length=7.0)
    assert found.skipped == {"vacancy": "every member was left out"}
    assert "vacancy left out: every member was left out" in notes(found)
    assert "a single member has no spread: there is no σ" in notes(found)
    assert "±" not in "\n".join(lines(found))


def test_a_compound_needs_chemical_potentials() -> None:
    alloy = bulk("CuAu", "cesiumchloride", a=3.1)
    only = {"only": ["vacancy"], "supercell_length": 6.0}
    found = properties(EMT(), alloy, **only)
    assert "add --mu Au=…" in found.skipped["vacancy"]
    found = properties(EMT(), alloy, chemical_potentials={"Cu": 0.0, "Au": 0.0}, **only)
    shifted = properties(EMT(), alloy, chemical_potentials={"Cu": -0.3, "Au": 0.0}, **only)
    assert set(found.numbers["vacancy"]) == {"formation_energy_Cu", "formation_energy_Au"}
    for name, shift in (("Cu", -0.3), ("Au", 0.0)):
        before, after = (each.numbers["vacancy"][f"formation_energy_{name}"].mean for each in (found, shifted))
        assert after - before == pytest.approx(shift, abs=1e-6)
    with pytest.raises(InputError, match="--mu Ni=1: the crystal holds Au, Cu only"):
        properties(EMT(), alloy, chemical_potentials={"Ni": 1.0}, **only)


def test_progress_is_shown() -> None:
    listener = Listener()
    properties(EMT(), bulk("Cu"), only=["lattice", "elastic", "phonons"], supercell_length=6.0, display=listener)
    assert {record["what"] for record in listener.records} == {"lattice", "elastic constants", "phonons"}
    assert listener.records[-1]["step"] == 1


def test_the_structure_given_stays_as_it_is() -> None:
    atoms = bulk("Cu", a=3.7)
    before = atoms.copy()
    properties(EMT(), atoms, only=["lattice"])
    assert atoms == before
    assert atoms.calc is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": ["density"]}, "no property 'density'; choose from lattice, eos"),
        ({"only": []}, "no property ''"),
        ({"supercell_length": 0.0}, "supercell length 0: must be above 0"),
        ({"supercell_length": 100.0}, "gives supercells of 1[0-9]* atoms; choose a smaller one"),
        ({"symprec": -1.0}, "symprec -1: must be above 0"),
    ],
)
def test_bad_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        properties(EMT(), bulk("Cu"), **options)


def test_the_documented_chemistry_holds() -> None:
    """docs/properties.md: 1 % of volume strain costs copper 0.5 meV per atom."""
    found = properties(EMT(), bulk("Cu"), only=["eos"])
    assert found.curves is not None
    volume = float(found.numbers["eos"]["volume_per_atom"].mean)
    cost = found.curves.fitted(np.array([0.99, 1.01]) * volume)
    np.testing.assert_allclose(1e3 * cost, 0.485, atol=0.03)


def test_a_file_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "a.cif"
    bulk("Cu").write(path)
    assert properties(EMT(), path, only=["lattice"]).crystal.source == str(path)
    assert read(path).get_chemical_formula() == "Cu"
