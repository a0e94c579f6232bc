"""Simulations with the forces of each posterior sample, in memory: a reference for those that `observe` keeps in
files."""

from ase import Atoms

from equibayes.posterior.file import Posterior
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.integrators import Conditions, Integrator
from equibayes.simulate.observables import single_sample


def member_trajectories(
    posterior: Posterior,
    start: Atoms,
    conditions: Conditions,
    steps: int,
    *,
    every: int = 10,
    discard: int = 0,
    device: str | None = None,
) -> list[list[Atoms]]:
    """One simulation with the forces of each sample: k lists of frames, one frame in `every` steps, without the first
    `discard` steps.

    All start with the same velocities and random numbers, so that they differ only by their potentials.
    """
    return [
        _trajectory(
            Calculator(single_sample(posterior, index), device=device), start, conditions, steps, every, discard
        )
        for index in range(len(posterior))
    ]


def _trajectory(
    calculator: Calculator, start: Atoms, conditions: Conditions, steps: int, every: int, discard: int
) -> list[Atoms]:
    atoms = Atoms(start.numbers, start.positions, cell=start.cell, pbc=start.pbc)
    atoms.calc = calculator
    integrator = Integrator(atoms, conditions)
    frames = []
    for step in range(1, steps + 1):
        integrator.step()
        if step > discard and step % every == 0:
            frames.append(atoms.copy())
    return frames
