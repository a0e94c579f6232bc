"""ASE's integrators by the name of their ensemble, with the state needed to resume bit for bit.

| ensemble        | integrator                                  | conserves                     | degrees of freedom   |
|-----------------|---------------------------------------------|-------------------------------|----------------------|
| nve             | velocity Verlet                             | energy                        | without rigid motion |
| bussi           | Bussi's stochastic velocity rescaling (SVR) | energy minus heat exchanged   | without rigid motion |
| langevin        | Vanden-Eijnden and Ciccotti's               | nothing                       | all 3n               |
| npt             | isotropic Martyna-Tobias-Klein, Nosé-Hoover | the extended energy           | all 3n               |
| npt-anisotropic | the same, for each cell vector on its own   | the extended energy           | all 3n               |

nve and bussi conserve the total momentum and, without a cell, the angular momentum.  Both start at 0 and are not
degrees of freedom: ethanol has 21 of 27, and a thermostat that counted all would heat the molecule by 29 %.

Atoms that have momenta keep them; rigid motion then counts if the momenta contain it.  With constraints the degrees of
freedom are 3n without those that the constraints remove, since fixed atoms can take up momentum.
"""

from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from ase import Atoms, units
from ase.md.bussi import Bussi
from ase.md.langevin import Langevin
from ase.md.md import MolecularDynamics
from ase.md.nose_hoover_chain import IsotropicMTKNPT, MaskedMTKNPT
from ase.md.verlet import VelocityVerlet

from equibayes.errors import InputError
from equibayes.simulate.start import check_pressure, free_degrees, has_velocities

SMALLEST, LARGEST = 1e-6, 1e12
"""Of temperatures and times; beyond, kinetic energies are 0 or overflow."""
ENSEMBLES = ("nve", "langevin", "bussi", "npt", "npt-anisotropic")

RIGID_SHARE = 1e-6
"""Share of the kinetic energy in rigid motion below which given momenta contain none."""

# The state of an integrator besides positions, momenta, cell and random numbers: paths of attributes.
_MEMORY: dict[str, tuple[str, ...]] = {
    "nve": (),
    "langevin": (),
    "bussi": ("transferred_energy",),
    "npt-anisotropic": (
        *("_q", "_p", "_h", "_p_c", "_thermostat._eta", "_thermostat._p_eta", "_barostat._xi", "_barostat._p_xi"),
    ),
    "npt": ("_q", "_p", "_eps", "_p_eps", "_thermostat._eta", "_thermostat._p_eta", "_barostat._xi", "_barostat._p_xi"),
}


@dataclass(frozen=True)
class Conditions:
    """Ensemble and its parameters.

    temperature    K
    timestep       fs
    tau            fs, time constant of the thermostat (Langevin: 1/friction)
    pressure       GPa, npt and npt-anisotropic only
    pressure_tau   fs, time constant of the barostat
    """

    ensemble: str = "bussi"
    temperature: float = 300.0
    timestep: float = 0.5
    tau: float = 100.0
    pressure: float = 0.0
    pressure_tau: float = 1000.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ensemble not in ENSEMBLES:
            raise InputError(f"ensemble {self.ensemble}: choose one of {', '.join(ENSEMBLES)}")
        for name, unit in (("temperature", "K"), ("timestep", "fs"), ("tau", "fs"), ("pressure_tau", "fs")):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InputError(f"{name.replace('_', '-')} {value:g}: must be above 0, in {unit}")
            if not SMALLEST <= value <= LARGEST:
                raise InputError(
                    f"{name.replace('_', '-')} {value:g}: must be between {SMALLEST:g} and {LARGEST:g} {unit}"
                )
        if not np.isfinite(self.pressure):
            raise InputError(f"pressure {self.pressure:g}: must be a number, in GPa")
        if self.seed < 0:
            raise InputError(f"seed {self.seed}: must be 0 or more")


class Integrator:
    """Moves `atoms`, which must have a calculator."""

    def __init__(self, atoms: Atoms, conditions: Conditions) -> None:
        """Starts with the momenta of the atoms; without any it draws velocities and scales them to exactly the kinetic
        energy of the temperature."""
        if conditions.ensemble.startswith("npt"):
            check_pressure(atoms, conditions.ensemble)
        self.atoms, self.conditions = atoms, conditions
        self.rng = np.random.default_rng(conditions.seed)
        self.degrees = self._keep_velocities() if has_velocities(atoms) else self._draw_velocities()
        self.dynamics: Any = self._build()

    def step(self) -> None:
        self.dynamics.step()

    def temperature(self) -> float:
        """K, of the degrees of freedom in the table above."""
        return float(2 * self.atoms.get_kinetic_energy() / (self.degrees * units.kB))

    def conserved(self) -> float:
        """eV, the energy that an exact integrator conserves; NaN if there is none."""
        if self.conditions.ensemble == "langevin":
            return float("nan")
        if isinstance(self.dynamics, (IsotropicMTKNPT, MaskedMTKNPT)):
            return self.dynamics.get_conserved_energy()
        return float(self.atoms.get_total_energy()) - float(getattr(self.dynamics, "transferred_energy", 0.0))

    def memory(self) -> dict[str, np.ndarray]:
        """The state of atoms and integrator as arrays."""
        atoms = {"positions": self.atoms.positions, "momenta": self.atoms.get_momenta(), "cell": self.atoms.cell.array}
        own = {path: attrgetter(path)(self.dynamics) for path in _MEMORY[self.conditions.ensemble]}
        return {name: np.array(value, dtype=np.float64) for name, value in (atoms | own).items()}

    def remember(self, memory: dict[str, np.ndarray]) -> None:
        """The inverse of `memory`; an `InputError` where it belongs to other atoms or another integrator."""
        own = {name: array.shape for name, array in self.memory().items()}
        for name, shape in own.items():
            if name not in memory or memory[name].shape != shape:
                found = memory[name].shape if name in memory else "missing"
                raise InputError(
                    f"the saved state of the simulation: {name} has shape {found}, not {shape}; start again"
                )
        self.atoms.set_cell(memory["cell"], scale_atoms=False)
        self.atoms.set_positions(memory["positions"], apply_constraint=False)
        self.atoms.set_momenta(memory["momenta"], apply_constraint=False)
        for path in _MEMORY[self.conditions.ensemble]:
            value = memory[path].copy()
            parents, _, name = path.rpartition(".")
            owner = attrgetter(parents)(self.dynamics) if parents else self.dynamics
            setattr(owner, name, value if value.ndim else float(value))

    def _keep_velocities(self) -> int:
        """Returns the number of degrees of freedom."""
        momenta = self.atoms.get_momenta()
        self.atoms.set_momenta(momenta)  # those that the constraints allow
        if self.atoms.constraints:
            return free_degrees(self.atoms)
        inner, rigid = self._without_rigid_motion(momenta)
        away = ((momenta - inner) ** 2 / self.atoms.get_masses()[:, None]).sum() / 2
        moves = away > RIGID_SHARE * self.atoms.get_kinetic_energy()
        return 3 * len(self.atoms) - (0 if moves else rigid)

    def _draw_velocities(self) -> int:
        """Returns the number of degrees of freedom."""
        atoms, thermal = self.atoms, units.kB * self.conditions.temperature
        masses = atoms.get_masses()[:, None]
        momenta = self.rng.normal(size=(len(atoms), 3)) * np.sqrt(masses * thermal)
        if atoms.constraints:
            degrees = free_degrees(atoms)
        else:
            momenta, rigid = self._without_rigid_motion(momenta)
            degrees = 3 * len(atoms) - rigid
        atoms.set_momenta(momenta)
        atoms.set_momenta(atoms.get_momenta() * np.sqrt(degrees * thermal / 2 / atoms.get_kinetic_energy()))
        return degrees

    def _without_rigid_motion(self, momenta: np.ndarray) -> tuple[np.ndarray, int]:
        """Momenta [n, 3] without the motion that the ensemble conserves, and its number of degrees of freedom."""
        atoms, masses = self.atoms, self.atoms.get_masses()[:, None]
        if self.conditions.ensemble not in ("nve", "bussi") or len(atoms) < 2:
            return momenta, 0
        momenta = momenta - masses * momenta.sum(0) / masses.sum()
        if atoms.pbc.any():
            return momenta, 3
        momenta, turning = _without_rotation(atoms, momenta)
        return momenta, 3 + turning

    def _build(self) -> MolecularDynamics:
        atoms, c = self.atoms, self.conditions
        step, temperature, tau = c.timestep * units.fs, c.temperature, c.tau * units.fs
        if c.ensemble == "nve":
            return VelocityVerlet(atoms, step)
        if c.ensemble == "langevin":
            return Langevin(atoms, step, temperature_K=temperature, friction=1 / tau, rng=self.rng, fixcm=False)
        if c.ensemble.startswith("npt"):
            kind = IsotropicMTKNPT if c.ensemble == "npt" else partial(MaskedMTKNPT, mask=(True, True, True))
            pressure, damping = c.pressure * units.GPa, c.pressure_tau * units.fs
            return kind(atoms, step, temperature_K=temperature, pressure_au=pressure, tdamp=tau, pdamp=damping)
        dynamics = Bussi(atoms, step, temperature_K=temperature, taut=tau, rng=self.rng)
        dynamics.ndof = self.degrees  # ASE counts the rigid motion too
        dynamics.target_kinetic_energy = 0.5 * dynamics.temp * self.degrees
        return dynamics


def _without_rotation(atoms: Atoms, momenta: np.ndarray) -> tuple[np.ndarray, int]:
    """Momenta [n, 3] without angular momentum, and the number of rotational axes: 2 for a linear molecule."""
    masses = atoms.get_masses()[:, None]
    away = atoms.positions - atoms.get_center_of_mass()
    inertia = np.eye(3) * (masses * away**2).sum() - (masses * away).T @ away
    omega = np.linalg.pinv(inertia, rcond=1e-9, hermitian=True) @ np.cross(away, momenta).sum(0)
    return momenta - masses * np.cross(omega, away), int(np.linalg.matrix_rank(inertia, rtol=1e-9, hermitian=True))
