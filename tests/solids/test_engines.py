"""Crystals whose properties are known: the machinery with ASE's EMT and with the Stillinger–Weber potential."""

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, make_supercell
from ase.calculators.emt import EMT
from ase.eos import EquationOfState
from ase.optimize import BFGS

from equibayes.solids.phonons import WHAT as PHONONS
from equibayes.solids.properties import Properties, properties
from tests.solids.engines import stillinger_weber

GPA = 160.2176634


def value(found: Properties, group: str, name: str) -> float:
    return float(found.numbers[group][name].mean)


@pytest.fixture(scope="module")
def copper() -> Properties:
    return properties(EMT(), bulk("Cu", a=3.7, cubic=True), supercell_length=8.0)


def relaxed(symbol: str, a: float) -> Atoms:
    """The conventional cell with the lattice parameter found, with EMT."""
    atoms = bulk(symbol, a=a, cubic=True)
    atoms.calc = EMT()
    return atoms


def curvature(atoms: Atoms, strain: np.ndarray, step: float = 2e-3) -> float:
    """∂²E/∂ε² / V in GPa of the strain ε · `strain`, from energies alone."""
    energies = []
    for amount in (-step, 0.0, step):
        changed = atoms.copy()
        changed.set_cell(atoms.cell.array @ (np.eye(3) + amount * strain), scale_atoms=True)
        changed.calc = EMT()
        energies.append(changed.get_potential_energy())
    return GPA * (energies[0] - 2 * energies[1] + energies[2]) / step**2 / atoms.get_volume()


def test_copper_of_emt(copper: Properties) -> None:
    """Known values of EMT for copper, from a start 3 % too wide."""
    assert value(copper, "lattice", "a") == pytest.approx(3.590, abs=0.001)
    assert value(copper, "eos", "bulk_modulus") == pytest.approx(134.4, rel=0.005)
    assert value(copper, "elastic", "bulk_modulus") == pytest.approx(134.4, rel=0.005)
    assert value(copper, "eos", "volume_per_atom") == pytest.approx(3.590**3 / 4, rel=1e-3)
    assert value(copper, "lattice", "density") == pytest.approx(9.12, abs=0.01)  # of 63.546 u in 11.565 Å³
    assert copper.left_out == []
    assert copper.skipped == {}


@pytest.mark.parametrize("symbol", ["Cu", "Au", "Ni"])
def test_elastic_constants_agree_with_the_curvature_of_the_energy(symbol: str) -> None:
    found = properties(EMT(), bulk(symbol), only=["lattice", "elastic"])
    atoms = relaxed(symbol, value(found, "lattice", "a"))
    along, shear, both = np.zeros((3, 3)), np.zeros((3, 3)), np.diag([1.0, 1.0, 0.0])
    along[0, 0] = 1.0
    shear[0, 1] = shear[1, 0] = 0.5  # an engineering strain of 1
    c11 = curvature(atoms, along)
    assert value(found, "elastic", "C11") == pytest.approx(c11, rel=0.01)
    assert value(found, "elastic", "C12") == pytest.approx((curvature(atoms, both) - 2 * c11) / 2, rel=0.01)
    assert value(found, "elastic", "C44") == pytest.approx(curvature(atoms, shear), rel=0.01)


@pytest.mark.parametrize("symbol", ["Au", "Ni"])
def test_bulk_modulus_agrees_with_a_scan_of_volumes(symbol: str) -> None:
    found = properties(EMT(), bulk(symbol), only=["eos"])
    volumes, energies = [], []
    for a in np.linspace(0.98, 1.02, 9) * np.cbrt(4 * value(found, "eos", "volume_per_atom")):
        atoms = relaxed(symbol, a)
        volumes.append(atoms.get_volume())
        energies.append(atoms.get_potential_energy())
    modulus = GPA * EquationOfState(volumes, energies, eos="birchmurnaghan").fit()[2]
    assert value(found, "eos", "bulk_modulus") == pytest.approx(modulus, rel=0.005)


def test_long_waves_travel_at_the_speed_of_sound(copper: Properties) -> None:
    """Near Γ towards X the longitudinal branch has ω = k √(C11/ρ), the transverse ones ω = k √(C44/ρ)."""
    bands = copper.bands
    assert bands is not None
    assert bands.ticks[0][1] == "Γ"
    assert bands.ticks[1][1] == "X"
    kilogram_per_m3 = 1e3 * value(copper, "lattice", "density")
    edge = next(place for place, name in bands.ticks if name == "X")
    point = int(np.searchsorted(bands.distance, 0.15 * edge))
    # X is 1/a from Γ, without the factor 2π
    wave = bands.distance[point] / edge * 1e10 / value(copper, "lattice", "a")
    speeds = 1e12 * bands.frequencies.mean[point] / wave
    expected = {name: np.sqrt(1e9 * value(copper, "elastic", name) / kilogram_per_m3) for name in ("C11", "C44")}
    np.testing.assert_allclose(speeds, [expected["C44"], expected["C44"], expected["C11"]], rtol=0.04)
    np.testing.assert_allclose(bands.frequencies.mean[0], 0, atol=1e-3)
    assert bands.stable == 1


def test_vacancy_agrees_with_a_relaxation_by_hand(copper: Properties) -> None:
    """In a cell of another shape, with ASE alone."""
    atoms = relaxed("Cu", value(copper, "lattice", "a")).repeat(3)
    per_atom = relaxed("Cu", value(copper, "lattice", "a")).get_potential_energy() / 4
    del atoms[0]
    atoms.calc = EMT()
    BFGS(atoms, logfile=None).run(fmax=0.005)
    energy = atoms.get_potential_energy() - len(atoms) * per_atom
    assert value(copper, "vacancy", "formation_energy_Cu") == pytest.approx(energy, abs=0.01)


def test_silicon_of_stillinger_and_weber() -> None:
    """Published: C11 151.4, C12 76.4, C44 56.4 GPa; with the atoms held in place C44 is 117 GPa."""
    found = properties(stillinger_weber(), bulk("Si", a=5.5), only=["lattice", "eos", "elastic"])
    assert value(found, "lattice", "a") == pytest.approx(5.431, abs=0.001)
    for name, published in (("C11", 151.4), ("C12", 76.4), ("C44", 56.4), ("bulk_modulus", 101.4)):
        assert value(found, "elastic", name) == pytest.approx(published, abs=0.2)
    assert value(found, "eos", "bulk_modulus") == pytest.approx(101.4, abs=0.5)


def test_numbers_do_not_depend_on_how_the_crystal_is_described(copper: Properties) -> None:
    """A sheared, turned supercell of eight atoms, with its atoms a little displaced."""
    atoms = make_supercell(bulk("Cu", a=3.6), [[2, 1, 0], [0, 2, 0], [0, 0, 2]])
    atoms.rotate(40, (1, 2, 3), rotate_cell=True)
    atoms.rattle(0.001, seed=0)
    found = properties(EMT(), atoms, only=["lattice", "elastic"])
    assert found.crystal.given == 8
    assert len(found.crystal.primitive) == 1
    for group, names in (("lattice", ["a"]), ("elastic", ["C11", "C12", "C44"])):
        for name in names:
            assert value(found, group, name) == pytest.approx(value(copper, group, name), rel=1e-4)


def test_a_hexagonal_crystal_has_its_five_constants() -> None:
    found = properties(EMT(), bulk("Cu", "hcp", a=2.55, c=4.2), only=["lattice", "elastic"])
    assert list(found.numbers["lattice"])[:2] == ["a", "c"]
    names = [name for name in found.numbers["elastic"] if name.startswith("C")]
    assert names == ["C11", "C12", "C13", "C33", "C44"]
    assert found.elastic is not None
    c = found.elastic.matrix.mean
    np.testing.assert_allclose(c, c.T, atol=1e-9)
    assert c[5, 5] == pytest.approx((c[0, 0] - c[0, 1]) / 2)
    assert found.elastic.stable == 1


def test_imaginary_frequencies_are_reported() -> None:
    """A simple cubic metal shears without resistance."""
    found = properties(EMT(), bulk("Cu", "sc", a=2.4), only=["phonons", "elastic"], supercell_length=7.0)
    assert value(found, "phonons", "lowest_frequency") < -1
    assert found.bands is not None
    assert found.bands.stable == 0
    assert found.elastic is not None
    assert found.elastic.stable == 0
    assert PHONONS not in {each.property for each in found.left_out}
