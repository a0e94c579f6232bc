"""A posterior of copper: a tiny network that has learned the forces of EMT to 6.5 meV/Å.

Made of the frames below, written as copper.xyz, by

    equibayes sample copper.xyz -o copper.posterior --network tiny --chains 2 --samples 4 --threads 1 \\
        data.validation=10 burn_in.steps=6000 burn_in.batch_size=4 cycles.length=200 cycles.batch_size=4 \\
        output.records=5 network.r_max=4.5 network.per_type_energy_shifts_trainable=true \\
        network.model_dtype=float64 output.half_precision=true
"""

from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

COPPER = Path(__file__).parent / "copper.posterior"


def copper_frames() -> list[Atoms]:
    """100 strained and rattled cells of 4 atoms, every fourth one of 7 with a vacancy; energies and forces of EMT."""
    rng, frames = np.random.default_rng(0), []
    for number in range(100):
        atoms = bulk("Cu", a=3.6, cubic=True)
        if number % 4 == 3:
            atoms = atoms * (2, 1, 1)
            del atoms[0]
        noise = 0.01 * rng.normal(size=(3, 3))
        strain = (noise + noise.T) / 2 + np.eye(3) * rng.uniform(-0.04, 0.04)
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + strain), scale_atoms=True)
        atoms.rattle(rng.uniform(0.01, 0.1), seed=number)
        atoms.calc = EMT()
        energy = atoms.get_potential_energy() - 3.5 * len(atoms)
        forces = atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
        frames.append(atoms)
    return frames
