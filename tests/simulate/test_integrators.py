"""ASE's integrators as we set them up: conservation, temperatures, and going on bit for bit."""

from typing import Any

import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk, molecule
from ase.calculators.calculator import Calculator as AseCalculator
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms

from equibayes.errors import InputError
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.integrators import Conditions, Integrator
from equibayes.simulate.start import check_pressure
from tests.samples import salt
from tests.simulate.posteriors import ETHANOL, ethanol_start, random_posterior

POSTERIOR = random_posterior()


def upright_salt() -> Atoms:
    """Salt with a cell at right angles."""
    atoms = salt().to_atoms()
    atoms.set_cell(np.diag(atoms.cell.lengths()), scale_atoms=True)
    return atoms


class Springs(AseCalculator):
    """Every atom on a spring of 1 eV/Å² to its place: a thermostat's temperature is then known exactly, in no time."""

    implemented_properties = ["energy", "forces"]  # noqa: RUF012

    def __init__(self, places: np.ndarray) -> None:
        super().__init__()
        self.places = places

    def calculate(self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = ()) -> None:
        super().calculate(atoms, properties, system_changes)
        away = self.atoms.positions - self.places
        self.results = {"energy": 0.5 * float(np.square(away).sum()), "forces": -away}


class PairSprings(Springs):
    """Springs between all pairs: momentum and angular momentum are kept, as in a molecule."""

    def calculate(self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = ()) -> None:
        AseCalculator.calculate(self, atoms, properties, system_changes)
        vector = self.atoms.positions[:, None] - self.atoms.positions[None]
        length = np.linalg.norm(vector, axis=2) + np.eye(len(vector))
        rest = np.linalg.norm(self.places[:, None] - self.places[None], axis=2) + np.eye(len(vector))
        forces = -(((length - rest) / length)[..., None] * vector).sum(1)
        self.results = {"energy": 0.25 * float(np.square(length - rest).sum()), "forces": forces}


def shadow_energies(atoms: Atoms, steps: int, timestep_fs: float) -> np.ndarray:
    """The energy that velocity Verlet itself keeps, up to the fourth power of the time step h:

    H + h² (v·V''·v/12 − F·F/(24 m)),   where v·V'' = −dF/dt is taken from the forces before and after.

    H alone oscillates by h², which would hide a drift of this size in a short run.
    """
    integrator = Integrator(atoms, Conditions("nve", 300.0, timestep_fs))
    forces, velocities, energies = [], [], []
    for _ in range(steps):
        integrator.step()
        forces.append(atoms.get_forces())
        velocities.append(atoms.get_velocities())
        energies.append(atoms.get_total_energy())
    h, masses = timestep_fs * units.fs, atoms.get_masses()[:, None]
    force, velocity = np.array(forces), np.array(velocities)
    change = (force[2:] - force[:-2]) / (2 * h)
    curvature = -(velocity[1:-1] * change).sum((1, 2))
    return np.array(energies)[1:-1] + h**2 * (curvature / 12 - (force[1:-1] ** 2 / masses).sum((1, 2)) / 24)


def drift(energies: np.ndarray, timestep_fs: float, atoms: int) -> float:
    """meV/atom/ns."""
    nanoseconds = np.arange(len(energies)) * timestep_fs * 1e-6
    return float(np.polyfit(nanoseconds, energies, 1)[0]) * 1e3 / atoms


class OffByLittle(Calculator):
    """Forces that are not quite those of the energy."""

    def calculate(self, *arguments: Any, **options: Any) -> None:
        super().calculate(*arguments, **options)
        self.results["forces"] = self.results["forces"] * 1.001


def test_energy_drift_in_float64() -> None:
    """Below 1 meV/atom/ns; forces that are off by one part in a thousand would show (found 0.03 and 60)."""
    found = {}
    for kind in (Calculator, OffByLittle):
        atoms = ethanol_start()
        atoms.calc = kind(ETHANOL, device="cpu", k=2, dtype="float64")
        found[kind] = abs(drift(shadow_energies(atoms, 300, 0.1), 0.1, len(atoms)))
    assert found[Calculator] < 1.0
    assert found[OffByLittle] > 10.0


@pytest.mark.parametrize(
    ("ensemble", "calculator", "degrees"),
    [("langevin", Springs, 27), ("bussi", PairSprings, 21), ("nve", PairSprings, 21)],
)
def test_temperature_counts_what_moves(ensemble: str, calculator: Any, degrees: int) -> None:
    atoms = molecule("CH3CH2OH")
    atoms.calc = calculator(atoms.positions.copy())
    integrator = Integrator(atoms, Conditions(ensemble, 500.0, 1.0, tau=20.0, seed=1))
    assert integrator.degrees == degrees
    assert integrator.temperature() == pytest.approx(500.0)
    if degrees == 21:
        assert np.abs(atoms.get_momenta().sum(0)).max() < 1e-9
        assert np.abs(atoms.get_angular_momentum()).max() < 1e-9


@pytest.mark.parametrize(("ensemble", "calculator"), [("langevin", Springs), ("bussi", PairSprings)])
def test_thermostats_reach_their_temperature(ensemble: str, calculator: Any) -> None:
    """8000 steps are some 200 independent draws of 21 or more degrees: the mean is within 5 % (four standard
    errors)."""
    atoms = molecule("CH3CH2OH")
    atoms.calc = calculator(atoms.positions.copy())
    integrator = Integrator(atoms, Conditions(ensemble, 500.0, 1.0, tau=20.0, seed=1))
    temperatures = []
    for _ in range(8000):
        integrator.step()
        temperatures.append(integrator.temperature())
    assert np.mean(temperatures[1000:]) == pytest.approx(500.0, rel=0.05)
    if ensemble == "bussi":
        assert np.abs(atoms.get_angular_momentum()).max() < 1e-6, "the molecule does not begin to turn"


def test_what_is_conserved() -> None:
    """Bussi's exchange with its bath and the extended energy of npt are taken into account; Langevin keeps nothing."""
    for ensemble in ("nve", "bussi", "npt", "npt-anisotropic", "langevin"):
        atoms = bulk("Cu", cubic=True).repeat(2)
        atoms.calc = EMT()
        integrator = Integrator(atoms, Conditions(ensemble, 300.0, 2.0, tau=50.0, pressure_tau=200.0))
        conserved, total = [], []
        for _ in range(60):
            integrator.step()
            conserved.append(integrator.conserved())
            total.append(atoms.get_total_energy())
        if ensemble == "langevin":
            assert np.isnan(conserved).all()
        else:
            assert np.ptp(conserved) < 0.03, ensemble
            assert ensemble == "nve" or np.ptp(total) > 5 * np.ptp(conserved), ensemble


@pytest.mark.parametrize("ensemble", ["nve", "langevin", "bussi", "npt", "npt-anisotropic"])
def test_memory_is_all_there_is(ensemble: str) -> None:
    """A second integrator that is told what the first remembers goes the same way, to the last bit."""

    def fresh() -> Integrator:
        atoms = upright_salt()
        atoms.calc = Calculator(POSTERIOR, device="cpu")
        return Integrator(atoms, Conditions(ensemble, 300.0, 1.0, tau=50.0, pressure=1.0, pressure_tau=200.0, seed=5))

    first = fresh()
    for _ in range(7):
        first.step()
    memory, rng = first.memory(), first.rng.bit_generator.state
    expected = []
    for _ in range(7):
        first.step()
        expected.append((first.conserved(), first.temperature()))
    second = fresh()
    second.remember(memory)
    second.rng.bit_generator.state = rng
    for numbers in expected:
        second.step()
        np.testing.assert_array_equal((second.conserved(), second.temperature()), numbers)
    for name, array in first.memory().items():
        np.testing.assert_array_equal(second.memory()[name], array)


def test_seed_decides() -> None:
    def positions(seed: int) -> np.ndarray:
        atoms = molecule("H2O")
        atoms.calc = Springs(atoms.positions.copy())
        integrator = Integrator(atoms, Conditions("langevin", 300.0, seed=seed))
        for _ in range(5):
            integrator.step()
        return atoms.positions

    assert np.array_equal(positions(1), positions(1))
    assert not np.array_equal(positions(1), positions(2))


@pytest.mark.parametrize(("name", "degrees"), [("H2", 1), ("CO2", 4), ("H2O", 3)])
def test_small_molecules(name: str, degrees: int) -> None:
    atoms = molecule(name)
    atoms.calc = PairSprings(atoms.positions.copy())
    integrator = Integrator(atoms, Conditions("nve", 300.0))
    assert integrator.degrees == degrees
    for _ in range(10):
        integrator.step()
    assert np.isfinite(atoms.positions).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ensemble": "nvt"}, "ensemble nvt: choose one of nve, langevin, bussi, npt"),
        ({"temperature": 0.0}, "temperature 0: must be above 0, in K"),
        ({"timestep": float("nan")}, "timestep nan"),
        ({"tau": -1.0}, "tau -1"),
        ({"pressure": float("inf")}, "pressure inf"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_bad_conditions(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Conditions(**settings)


def test_pressure_needs_a_cell() -> None:
    with pytest.raises(InputError, match="no pressure"):
        Integrator(molecule("H2O"), Conditions("npt"))


def slab(vacuum: float, periodic: bool) -> Atoms:
    atoms = bulk("Cu", cubic=True).repeat((1, 1, 2))
    atoms.center(vacuum=vacuum / 2, axis=2)
    atoms.pbc = (True, True, periodic)
    return atoms


@pytest.mark.parametrize("ensemble", ["npt", "npt-anisotropic"])
def test_a_slab_has_no_pressure(ensemble: str) -> None:
    with pytest.raises(
        InputError, match=r"periodic in 2 of 3 directions; the volume of a slab or a wire is not defined"
    ):
        Integrator(slab(12.0, False), Conditions(ensemble))
    with pytest.raises(InputError, match=r"12\.0 Å of vacuum along c; a slab in vacuum has no pressure"):
        Integrator(slab(12.0, True), Conditions(ensemble))
    check_pressure(slab(4.0, True), ensemble)


def test_a_changing_cell_does_not_go_with_everything() -> None:
    with pytest.raises(InputError, match="needs right angles"):
        check_pressure(bulk("Cu"), "npt-anisotropic")
    check_pressure(bulk("Cu"), "npt")
    held = bulk("Cu", cubic=True)
    held.set_constraint(FixAtoms([0]))
    with pytest.raises(InputError, match="constraints do not go with a changing cell"):
        check_pressure(held, "npt")


def strained(calculator: AseCalculator) -> Atoms:
    """Copper in orthorhombic cells of a/√2 × a/√2 × a, 3 × 3 × 2 of them; one vector too short and one too long."""
    atoms = bulk("Cu", orthorhombic=True).repeat((3, 3, 2))
    atoms.set_cell(atoms.cell.array * [[0.97], [1.0], [1.03]], scale_atoms=True)
    atoms.calc = calculator
    return atoms


def lengths_after(ensemble: str, steps: int) -> np.ndarray:
    """Mean lengths of the cell vectors over the second half of a cold run."""
    atoms = strained(EMT())
    integrator = Integrator(atoms, Conditions(ensemble, 300.0, 4.0, tau=100.0, pressure_tau=200.0))
    lengths = []
    for _ in range(steps):
        integrator.step()
        lengths.append(atoms.cell.lengths())
    return np.mean(lengths[steps // 2 :], axis=0)


def test_cell_vectors_relax_on_their_own() -> None:
    """To 3a/√2, 3a/√2 and 2a, with which the crystal is cubic; the isotropic barostat keeps the strain."""
    a, b, c = lengths_after("npt-anisotropic", 250)
    assert a / b == pytest.approx(1.0, abs=0.015)
    assert c / a == pytest.approx(2 * np.sqrt(2) / 3, abs=0.015)
    a, b, c = lengths_after("npt", 20)
    assert a / b == pytest.approx(0.97)
    assert c / b == pytest.approx(1.03 * 2 * np.sqrt(2) / 3)


@pytest.mark.parametrize("ensemble", ["npt", "npt-anisotropic"])
def test_barostats_conserve_the_energy_of_the_network(ensemble: str) -> None:
    """With the virial of the network; a virial that is off by a tenth shows."""

    class OffVirial(Calculator):
        def calculate(self, *arguments: Any, **options: Any) -> None:
            super().calculate(*arguments, **options)
            self.results["stress"] = 1.1 * self.results["stress"]

    found = []
    for kind in (Calculator, OffVirial):
        atoms = upright_salt()
        atoms.calc = kind(POSTERIOR, device="cpu")
        integrator = Integrator(atoms, Conditions(ensemble, 300.0, 0.2, tau=20.0, pressure=1.0, pressure_tau=20.0))
        first = integrator.conserved()
        for _ in range(25):
            integrator.step()
        found.append(abs(integrator.conserved() - first))
    assert found[0] < 0.04 * found[1]


def copper(calculator: AseCalculator | None = None) -> Atoms:
    atoms = bulk("Cu", cubic=True).repeat((2, 2, 1))
    atoms.calc = calculator or EMT()
    return atoms


@pytest.mark.parametrize("ensemble", ["nve", "bussi", "langevin"])
def test_fixed_atoms_stay_and_do_not_count(ensemble: str) -> None:
    atoms = copper()
    atoms.set_constraint(FixAtoms([0, 5, 7]))
    integrator = Integrator(atoms, Conditions(ensemble, 300.0, 2.0, tau=20.0))
    assert integrator.degrees == 3 * 13
    assert integrator.temperature() == pytest.approx(300.0)
    before = atoms.positions.copy()
    temperatures = []
    for _ in range(400):
        integrator.step()
        temperatures.append(integrator.temperature())
    np.testing.assert_array_equal(atoms.positions[[0, 5, 7]], before[[0, 5, 7]])
    assert np.abs(atoms.positions - before).max() > 0.05
    if ensemble == "bussi":
        assert np.mean(temperatures[100:]) == pytest.approx(300.0, rel=0.25)


def test_nothing_left_to_move() -> None:
    atoms = copper()
    atoms.set_constraint(FixAtoms(range(16)))
    with pytest.raises(InputError, match="leave nothing to move"):
        Integrator(atoms, Conditions("nve"))


def test_velocities_of_the_atoms_start_the_run() -> None:
    """They are kept as they are; the temperature counts rigid motion only where there is some."""
    atoms = molecule("CH3CH2OH")
    atoms.calc = PairSprings(atoms.positions.copy())
    first = Integrator(atoms, Conditions("nve", 500.0))
    given = atoms.get_momenta()
    again = Integrator(atoms, Conditions("bussi", 300.0, seed=9))
    np.testing.assert_array_equal(atoms.get_momenta(), given)
    assert again.degrees == first.degrees == 21
    assert again.temperature() == pytest.approx(500.0)
    atoms.set_momenta(given + atoms.get_masses()[:, None] * [0.01, 0, 0])
    assert Integrator(atoms, Conditions("bussi")).degrees == 27
    atoms.set_momenta(0 * given)
    assert Integrator(atoms, Conditions("bussi", 300.0)).temperature() == pytest.approx(300.0)


def test_masses_decide_the_velocities() -> None:
    """Deuterium is slower than hydrogen at the same temperature."""

    def speed(mass: float) -> float:
        atoms = molecule("H2")
        atoms.set_masses([mass, mass])
        atoms.calc = PairSprings(atoms.positions.copy())
        Integrator(atoms, Conditions("nve", 300.0))
        return float(np.abs(atoms.get_velocities()).max())

    assert speed(2.014) / speed(1.008) == pytest.approx(np.sqrt(1.008 / 2.014))
