"""Energy over volume, with a Birch–Murnaghan equation of state fitted to the curve of every member."""

from dataclasses import dataclass

import numpy as np
from ase import Atoms
from ase.eos import EquationOfState

from equibayes.data.structures import FloatArray
from equibayes.solids.measurement import GPA, Bench
from equibayes.solids.quantity import Quantity

WHAT = "equation of state"
RANGE, POINTS = 0.06, 7
"""Volumes from 94 to 106 % of that at rest."""


@dataclass(frozen=True, eq=False)
class Curves:
    """Volumes and energies per atom of every member; energies relative to the minimum of its own fit.

    volumes, energies  [M, points] Å³, eV: what was computed
    parameters         [M, 4] E₀ (0), B₀ in eV/Å³, B₀′, V₀ in Å³ of the fit
    """

    volumes: Quantity
    energies: Quantity
    parameters: Quantity

    def fitted(self, volumes: FloatArray) -> FloatArray:
        """[present members, len(volumes)] eV per atom, by the fit of each."""
        from ase.eos import birchmurnaghan

        return np.array([birchmurnaghan(volumes, *own) for own in self.parameters.present])


def measure(bench: Bench) -> tuple[dict[str, Quantity], Curves]:
    """Cells scaled to several volumes; their shape and the atoms in them relax with the symmetry kept."""
    scales = np.cbrt(np.linspace(1 - RANGE, 1 + RANGE, POINTS))

    def change(atoms: Atoms) -> list[Atoms]:
        return [_scaled(atoms, scale) for scale in scales]

    found = bench.relax_each(WHAT, change, "shape", symmetric=True)
    volumes, energies, fits = {}, {}, {}
    for member, own in found.items():
        per_atom = len(bench.crystal.primitive)
        volume = np.array([each.atoms.get_volume() for each in own]) / per_atom
        energy = np.array([each.state.energy for each in own]) / per_atom
        fit = _fit(volume, energy)
        if fit is None:
            bench.leave_out(WHAT, member, "its energies have no minimum within 6 % of the relaxed volume")
            continue
        volumes[member], energies[member], fits[member] = volume, energy - fit[0], np.array([0.0, *fit[1:]])
    curves = Curves(bench.quantity(volumes, "Å³"), bench.quantity(energies, "eV"), bench.quantity(fits, ""))
    numbers = {
        "volume_per_atom": bench.quantity({member: fit[3] for member, fit in fits.items()}, "Å³"),
        "bulk_modulus": bench.quantity({member: fit[1] * GPA for member, fit in fits.items()}, "GPa"),
        "bulk_modulus_derivative": bench.quantity({member: fit[2] for member, fit in fits.items()}, ""),
    }
    return numbers, curves


def _scaled(atoms: Atoms, scale: float) -> Atoms:
    scaled = atoms.copy()
    scaled.set_cell(atoms.cell.array * scale, scale_atoms=True)
    return scaled


def _fit(volumes: FloatArray, energies: FloatArray) -> FloatArray | None:
    """E₀, B₀, B₀′, V₀; None where there is no minimum among the volumes."""
    lowest = energies.min()  # energies of millions of eV would spoil the fit
    try:
        equation = EquationOfState(volumes, energies - lowest, eos="birchmurnaghan")
        equation.fit(warn=False)
    except (RuntimeError, ValueError):  # the fit does not converge
        return None
    found = np.asarray(equation.eos_parameters, dtype=np.float64)
    inside = volumes.min() < found[3] < volumes.max() and found[1] > 0
    return found + np.array([lowest, 0, 0, 0]) if inside and np.isfinite(found).all() else None
