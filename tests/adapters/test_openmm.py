"""The potential within OpenMM: forces, conservation of energy, a part of a system, reported σ."""

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

pytest.importorskip("openmmml", reason="OpenMM-ML is not installed: pip install 'equibayes[openmm]'")

import openmm
from openmm import app, unit
from openmmml import MLPotential

from equibayes.adapters.openmm import SigmaReporter
from equibayes.adapters.openmm_factory import Factory
from equibayes.posterior.file import load
from equibayes.simulate.calculator import Calculator
from tests.samples import salt
from tests.simulate.posteriors import ETHANOL, ethanol_start, random_posterior

MLPotential.registerImplFactory("equibayes", Factory())  # tests/test_wheel.py finds it by its entry point
KJ_PER_MOL = 96.48533212


def topology_of(atoms: Atoms, copies: int = 1) -> app.Topology:
    topology = app.Topology()
    for _ in range(copies):
        residue = topology.addResidue("X", topology.addChain())
        for z in atoms.numbers:
            topology.addAtom("X", app.Element.getByAtomicNumber(int(z)), residue)
    if atoms.pbc.all():
        topology.setPeriodicBoxVectors(0.1 * atoms.cell.array * unit.nanometer)
    return topology


def simulation_of(potential: MLPotential, atoms: Atoms) -> app.Simulation:
    system = potential.createSystem(topology_of(atoms), removeCMMotion=False)
    platform = openmm.Platform.getPlatformByName("Reference")
    simulation = app.Simulation(topology_of(atoms), system, openmm.VerletIntegrator(0.0005), platform)
    simulation.context.setPositions(0.1 * atoms.positions)
    return simulation


def upright(atoms: Atoms) -> Atoms:
    """Rotated so that the cell is lower triangular, as OpenMM wants it."""
    lower = np.linalg.qr(atoms.cell.array.T)[1].T
    lower = lower * np.sign(np.diag(lower))
    atoms.set_cell(lower, scale_atoms=True)
    return atoms


@pytest.mark.parametrize("atoms", [ethanol_start(), upright(salt().to_atoms())], ids=["molecule", "crystal"])
def test_energy_and_forces(atoms: Atoms) -> None:
    posterior = random_posterior()
    potential = MLPotential("equibayes", posterior=posterior, device="cpu", k=2)
    state = simulation_of(potential, atoms).context.getState(energy=True, forces=True)
    expected = posterior.subset(2).predict(atoms, device="cpu")
    energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
    forces = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
    assert energy == pytest.approx(KJ_PER_MOL * expected.energy, rel=1e-8)
    np.testing.assert_allclose(forces, 10 * KJ_PER_MOL * expected.forces, rtol=1e-6, atol=1e-4)


def test_dynamics_conserve_energy_and_report_sigma(tmp_path: Path) -> None:
    calculator = Calculator(ETHANOL, device="cpu")
    simulation = simulation_of(MLPotential("equibayes", calculator=calculator), ethanol_start())
    simulation.context.setVelocitiesToTemperature(300, 1)
    simulation.reporters.append(SigmaReporter(str(tmp_path / "sigma.csv"), 10, calculator))
    totals = []
    for _ in range(3):
        simulation.step(10)
        state = simulation.context.getState(energy=True, positions=True)
        total = state.getPotentialEnergy() + state.getKineticEnergy()
        totals.append(total.value_in_unit(unit.kilojoule_per_mole) / KJ_PER_MOL)
    assert np.ptp(totals) < 0.01
    rows = np.loadtxt(tmp_path / "sigma.csv", delimiter=",", skiprows=1)
    assert rows[:, 0].tolist() == [10, 20, 30]
    last = ethanol_start()
    last.positions = state.getPositions(asNumpy=True).value_in_unit(unit.angstrom)
    expected = load(ETHANOL).predict(last, device="cpu")
    assert rows[-1, 1:3] == pytest.approx([expected.energy, expected.energy_std], rel=1e-6)
    sigma = np.sqrt(np.square(expected.forces_std).mean(1))
    assert rows[-1, 3:] == pytest.approx([sigma.max(), sigma.mean(), sigma.argmax()], rel=1e-4)


def test_a_part_of_a_system() -> None:
    """Two ethanol molecules, one of them the posterior's: its energy does not depend on the other's place."""
    atoms, posterior = ethanol_start(), random_posterior()
    topology = topology_of(atoms, copies=2)
    classical = openmm.System()
    for atom in topology.atoms():
        classical.addParticle(atom.element.mass)
    potential = MLPotential("equibayes", posterior=posterior, device="cpu")
    system = potential.createMixedSystem(topology, classical, list(range(len(atoms))))
    context = openmm.Context(system, openmm.VerletIntegrator(0.0005), openmm.Platform.getPlatformByName("Reference"))
    for distance in (5.0, 1.0):
        context.setPositions(0.1 * np.concatenate([atoms.positions, atoms.positions + distance]))
        energy = context.getState(energy=True).getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
        assert energy == pytest.approx(KJ_PER_MOL * posterior.predict(atoms, device="cpu").energy, rel=1e-8)
