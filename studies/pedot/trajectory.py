"""Relaxation and molecular dynamics of one oligomer, kept in one file from which a killed run continues.

The dynamics is that of the paper (appendix B): stochastic velocity rescaling with a relaxation time of 25 fs, time step
0.5 fs.  Frame 0 is the relaxed geometry, frame i the geometry after step i.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms, units
from ase.calculators.calculator import BaseCalculator
from ase.md.bussi import Bussi
from ase.md.velocitydistribution import Stationary, ZeroRotation, thermalize_momenta
from ase.optimize import LBFGS

from studies.pedot import oligomers

STEPS = 2000
TIME_STEP_FS = 0.5
THERMOSTAT_TIME_FS = 25.0
LARGEST_FORCE_EV_A = 0.023
"""The relaxation ends below it: the 0.00045 Hartree/Bohr of the paper's optimiser."""

SAVE_EVERY_STEPS = 20
SAVE_EVERY_RELAXATION_STEPS = 10


@dataclass
class Record:
    """All frames of a run, and the state needed for the next step.

    numbers [n]; positions Å, forces eV/Å and velocities Å/(ASE time) [frames, n, 3]; energies eV [frames], the engine's
    own zero; temperatures K [frames]; wall_seconds [frames] of each step.
    """

    numbers: np.ndarray
    positions: list[np.ndarray]
    forces: list[np.ndarray]
    energies: list[float]
    temperatures: list[float]
    wall_seconds: list[float]
    velocities: np.ndarray

    def save(self, path: Path) -> None:
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **vars(self))
        os.replace(partial, path)  # a kill leaves the old file or the new one

    @classmethod
    def load(cls, path: Path) -> Record:
        with np.load(path) as file:
            lists = {
                name: list(file[name]) for name in cls.__dataclass_fields__ if name not in ("numbers", "velocities")
            }
            return cls(numbers=file["numbers"], velocities=file["velocities"], **lists)

    def append(self, atoms: Atoms, wall_seconds: float) -> None:
        self.positions.append(atoms.get_positions())
        self.forces.append(atoms.get_forces())
        self.energies.append(atoms.get_potential_energy())
        self.temperatures.append(atoms.get_temperature())
        self.wall_seconds.append(wall_seconds)
        self.velocities = atoms.get_velocities()


def run(
    length: int,
    folder: str | Path,
    calculator: BaseCalculator,
    temperature: float = 300.0,
    steps: int = STEPS,
    seed: int = 0,
) -> Record:
    """Continue the run in the folder up to `steps` steps of the oligomer with `length` units; temperature in K."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"pedot_{length}.npz"
    if file.exists():
        record = Record.load(file)
    else:
        atoms = relaxed(length, folder / f"relaxation_{length}.npz", calculator, seed)
        thermalise(atoms, temperature, np.random.default_rng([seed, length, 0]))
        record = Record(atoms.numbers, [], [], [], [], [], atoms.get_velocities())
        record.append(atoms, 0.0)
        record.save(file)
    atoms = Atoms(record.numbers, record.positions[-1], velocities=record.velocities, calculator=calculator)
    dynamics = Bussi(atoms, TIME_STEP_FS * units.fs, temperature_K=temperature, taut=THERMOSTAT_TIME_FS * units.fs)
    atoms.get_forces()
    for step in range(len(record.positions), steps + 1):
        # one generator per step: the noise does not depend on where a run was interrupted
        dynamics.rng = np.random.default_rng([seed, length, step])
        began = time.perf_counter()
        dynamics.step()
        record.append(atoms, time.perf_counter() - began)
        if step % SAVE_EVERY_STEPS == 0 or step == steps:
            record.save(file)
            _show(length, step, steps, record)
    return record


def relaxed(length: int, file: Path, calculator: BaseCalculator, seed: int) -> Atoms:
    """The relaxed oligomer; intermediate geometries are kept in `file`."""
    atoms = oligomers.build(length, seed)
    if file.exists():
        with np.load(file) as kept:
            atoms.positions = kept["positions"]
    atoms.calc = calculator
    optimiser = LBFGS(atoms, logfile=None)
    for number, _ in enumerate(optimiser.irun(fmax=LARGEST_FORCE_EV_A, steps=3000)):
        if number % SAVE_EVERY_RELAXATION_STEPS == 0:
            np.savez(file, positions=atoms.positions)
            largest = np.linalg.norm(atoms.get_forces(), axis=1).max()
            print(f"{length} units, relaxation {number}: largest force {largest:.3f} eV/Å", flush=True)
    np.savez(file, positions=atoms.positions)
    return atoms


def thermalise(atoms: Atoms, temperature: float, generator: np.random.Generator) -> None:
    """Maxwell-Boltzmann velocities at `temperature` K without drift or rotation."""
    thermalize_momenta(atoms, temperature, rng=generator)
    Stationary(atoms)
    ZeroRotation(atoms)


def _show(length: int, step: int, steps: int, record: Record) -> None:
    """One line of progress; on a terminal it replaces the one before."""
    recent = np.mean(record.wall_seconds[-SAVE_EVERY_STEPS:])
    bar = "#" * (30 * step // steps)
    left = (steps - step) * recent / 60
    mean = np.mean(record.temperatures[-200:])
    line = f"{length} units [{bar:<30}] {step}/{steps}, {recent:.2f} s per step, {mean:.0f} K, {left:.0f} min left"
    print(
        f"\r{line}" if sys.stdout.isatty() else line,
        end="" if sys.stdout.isatty() and step < steps else "\n",
        flush=True,
    )
