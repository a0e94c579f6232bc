"""Strained copper with the labels of ASE's EMT, made on the spot: energies, forces and stress of small cells, and
settings to learn them in seconds.

    EQUIBAYES_ENGINE=native python -m tests.copper      learns them, and prints the numbers of docs/periodic.md
"""

from functools import cache

import numpy as np
from ase.build import bulk
from ase.calculators.emt import EMT

from equibayes.data import Dataset, Structure
from equibayes.units import GPA

LEARN = {
    "data": {"validation": 10},
    "burn_in": {"steps": 1200, "initial": 3e-2, "final": 3e-4, "decay": "linear", "noise_free": 0.9},
    "cycles": {"length": 100, "peak": 1e-3},
    "guard": {"interval": 100},
}
"""Changes to `tests.runs.SMALL`."""
STRAIN, SHAKE = 0.03, 0.05
"""Of each element of the strain, and of each coordinate in Å."""


@cache
def copper(count: int, seed: int = 0, *, bare: int = 0) -> Dataset:
    """Cells of 4 atoms; of `bare` among them, evenly spread, the stress is not known."""
    rng, frames = np.random.default_rng(seed), []
    without = set(np.linspace(0, count - 1, bare).astype(int).tolist()) if bare else set()
    for number in range(count):
        atoms = bulk("Cu", cubic=True)
        strain = STRAIN * rng.normal(size=(3, 3))
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + (strain + strain.T) / 2), scale_atoms=True)
        atoms.positions += SHAKE * rng.normal(size=atoms.positions.shape)
        atoms.calc = EMT()
        frames.append(
            Structure(
                atoms.numbers,
                atoms.positions,
                atoms.cell.array,
                atoms.pbc,
                energy=atoms.get_potential_energy(),
                forces=atoms.get_forces(),
                stress=None if number in without else atoms.get_stress(voigt=False),
                source=f"copper, frame {number}",
            )
        )
    return Dataset(frames, "copper")


def spread_of_stress(data: Dataset) -> float:
    """Mean absolute deviation of the elements of the labels from their mean, GPa: the error of a constant."""
    upper = np.triu_indices(3)
    labels = np.array([s.stress[upper] for s in data if s.stress is not None])
    return float(np.abs(labels - labels.mean(0)).mean() / GPA)


def main() -> None:
    """Errors of the stress on 200 unseen cells, before and after calibration on 30 others."""
    from equibayes.evaluation.evaluated import evaluate
    from equibayes.evaluation.tables import measure
    from equibayes.posterior.calibrate import calibrate
    from equibayes.posterior.sample import sample
    from tests.runs import small_config

    posterior, test = sample(copper(50, bare=10), small_config(LEARN), device="cpu"), copper(200, seed=1)
    print(f"a constant: {spread_of_stress(test):.2f} GPa")
    for name, each in (
        ("as sampled", posterior),
        ("calibrated", calibrate(posterior, copper(30, seed=2), device="cpu")),
    ):
        values = measure(evaluate(each, test, device="cpu"))
        inside = ", ".join(f"{100 * values[f'stress_coverage_{p}']:.0f} in {p} %" for p in (50, 68, 90, 95))
        print(f"{name}: MAE {values['gpa']['stress_mae']:.2f}, σ {values['gpa']['stress_sharpness']:.2f} GPa; {inside}")


if __name__ == "__main__":
    main()
