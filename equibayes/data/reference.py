"""The energy reference: composition-dependent energies that are subtracted before learning and added to predictions.

Total energies are thousands of eV, the part that forces come from is a few.  float32 cannot hold both, so the reference
is fitted, subtracted and added in float64.

Kinds
-----
lstsq: one shift per species, least squares over the energies per atom.  Where compositions do not determine the shifts
    (a single molecule) it is the solution of least norm; the sum is still correct for compositions of the training data
    and for sums of them.  For others `knows` is False, as for per_structure.
isolated: energies of the free atoms, from frames with config_type=IsolatedAtom.
given: shifts given by the user.
per_structure: one offset per chemical formula, the mean energy of its frames, for sets whose energies are relative to
    the minimum of each molecule.  For an unknown formula the offsets are extrapolated by one shift per species; `knows`
    is then False, and predicted energies of that molecule are defined only up to an unknown constant.  Forces do not
    depend on any of this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number, formula, symbol
from equibayes.errors import InputError, one_line

LARGEST = 1e12
"""eV."""
KINDS = ("lstsq", "isolated", "given", "per_structure")
Means = dict[str, tuple[npt.NDArray[np.int64], float, int]]
"""By formula: atomic numbers of one frame, mean energy in eV, number of frames."""


@dataclass(frozen=True)
class EnergyReference:
    """`shifts` in eV by atomic number; `offsets` in eV by formula, for kind per_structure only.

    `undetermined` (kind lstsq): directions in the space of shifts, by atomic number, that the data do not determine.
    """

    kind: str
    shifts: dict[int, float]
    offsets: dict[str, float] = field(default_factory=dict)
    undetermined: tuple[dict[int, float], ...] = ()

    def total(self, numbers: npt.ArrayLike) -> float:
        """Reference energy in eV of a structure with these atomic numbers [n]: subtract to learn, add to predict."""
        atoms = np.asarray(numbers)
        if self.offsets:
            name = formula(atoms)
            if name in self.offsets:
                return self.offsets[name]
        species, counts = np.unique(atoms, return_counts=True)
        missing = [symbol(int(z)) for z in species if int(z) not in self.shifts]
        if missing:
            known = ", ".join(symbol(z) for z in sorted(self.shifts))
            raise InputError(
                f"no reference energy for {', '.join(missing)}: known are {known}; add data or given values"
            )
        return float(sum(self.shifts[int(z)] * int(n) for z, n in zip(species, counts)))

    def knows(self, numbers: npt.ArrayLike) -> bool:
        """Whether energies with this reference are absolute, not only defined up to a constant."""
        atoms = np.asarray(numbers)
        if self.kind == "per_structure":
            return formula(atoms) in self.offsets
        species, counts = np.unique(atoms, return_counts=True)
        if not all(int(z) in self.shifts for z in species):
            return False
        pairs = list(zip(species.tolist(), counts.tolist()))
        away = (sum(direction.get(z, 0.0) * n for z, n in pairs) for direction in self.undetermined)
        return all(abs(each) <= 1e-9 * len(atoms) for each in away)

    def check(self) -> None:
        """An `InputError` for values that no fit gives."""
        if self.kind not in KINDS:
            raise InputError(f"energy_reference.kind={one_line(self.kind, 60)}: must be one of {', '.join(KINDS)}")
        parts = [(f"shifts.{symbol(z)}", value) for z, value in self.shifts.items()]
        parts += [(f"offsets.{name}", value) for name, value in self.offsets.items()]
        parts += [("undetermined", value) for each in self.undetermined for value in each.values()]
        for name, value in parts:
            if not abs(value) <= LARGEST:  # NaN too
                raise InputError(f"energy_reference.{one_line(name)}={value}: must be at most {LARGEST:g} eV")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        shifts = {symbol(z): energy for z, energy in sorted(self.shifts.items())}
        undetermined = [{symbol(z): part for z, part in sorted(each.items())} for each in self.undetermined]
        return {"kind": self.kind, "shifts": shifts, "offsets": dict(self.offsets), "undetermined": undetermined}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "EnergyReference":
        """The inverse of `to_dict`."""
        shifts = {atomic_number(name): float(energy) for name, energy in content["shifts"].items()}
        offsets = {str(name): float(energy) for name, energy in content["offsets"].items()}
        undetermined = tuple(
            {atomic_number(name): float(part) for name, part in each.items()}
            for each in content.get("undetermined", [])  # absent in early files
        )
        return cls(str(content["kind"]), shifts, offsets, undetermined)


def fit(
    data: Dataset, kind: str = "lstsq", values: Mapping[str, float] | Mapping[int, float] | None = None
) -> EnergyReference:
    """Fit on training data (never on test data).

    Parameters
    ----------
    kind: one of `KINDS`.
    values: energies in eV by symbol or atomic number; needed for kind "given", and for "isolated" they add to or
        replace the isolated atoms of the data.
    """
    if kind not in KINDS:
        raise InputError(f"unknown energy reference '{kind}'; valid: {', '.join(KINDS)}")
    told = {atomic_number(z) if isinstance(z, str) else int(z): float(e) for z, e in (values or {}).items()}
    bad = [symbol(z) for z, energy in told.items() if not np.isfinite(energy)]
    if bad:
        raise InputError(f"reference energy of {bad[0]} is not finite; give a number in eV")
    if kind in ("given", "isolated"):
        shifts = {**data.isolated_atoms, **told} if kind == "isolated" else told
        _require_species(data, shifts, kind)
        return EnergyReference(kind, shifts)
    if told:
        raise InputError(f"energy reference '{kind}' is fitted and takes no values; use kind 'given'")
    means = _means_by_formula(data)
    shifts = _least_squares(data.species, means)
    if kind == "lstsq":
        return EnergyReference(kind, shifts, undetermined=_undetermined(data.species, means))
    return EnergyReference(kind, shifts, {name: mean for name, (_, mean, _) in means.items()})


def suggest_kind(data: Dataset) -> str:
    """The kind that suits the data, which `auto` takes.

    Free atoms for all species: isolated.  Molecules of several formulas, all with energies above -0.1 eV/atom: those
    are relative to the minimum of each, since cohesion alone is some eV/atom: per_structure.  Else lstsq, with which
    a crystal has the same energy per atom in every cell, however large.
    """
    if data.species and set(data.species) <= set(data.isolated_atoms):
        return "isolated"
    per_atom = [s.energy / len(s) for s in data if s.energy is not None]
    molecules = not any(s.pbc.any() for s in data)
    if molecules and per_atom and min(per_atom) > -0.1 and len({s.composition for s in data}) > 1:
        return "per_structure"
    return "lstsq"


def _require_species(data: Dataset, shifts: Mapping[int, float], kind: str) -> None:
    missing = [symbol(z) for z in data.species if z not in shifts]
    if missing:
        remedy = "add IsolatedAtom frames or values" if kind == "isolated" else "give one per species"
        raise InputError(f"{data.name}: no {kind} energy for {', '.join(missing)}; {remedy}, or use lstsq")


def _means_by_formula(data: Dataset) -> Means:
    grouped: dict[str, list[float]] = {}
    example: dict[str, npt.NDArray[np.int64]] = {}
    for structure in data:
        if structure.energy is not None:
            name = formula(structure.numbers)
            grouped.setdefault(name, []).append(structure.energy)
            example.setdefault(name, structure.numbers)
    if not grouped:
        raise InputError(f"{data.name}: no energies to fit a reference to; name them with energy_key, or give values")
    return {name: (example[name], float(np.mean(energies)), len(energies)) for name, energies in grouped.items()}


def _counts(species: tuple[int, ...], means: Means) -> npt.NDArray[np.float64]:
    """[formulas, species]"""
    return np.array([[np.sum(numbers == z) for z in species] for numbers, _, _ in means.values()], dtype=np.float64)


def _undetermined(species: tuple[int, ...], means: Means) -> tuple[dict[int, float], ...]:
    """Orthonormal basis of the null space of the counts: shifts that change the energy of no known formula."""
    _, lengths, directions = np.linalg.svd(_counts(species, means))
    rank = int(np.sum(lengths > 1e-10 * lengths.max()))
    return tuple({z: float(part) for z, part in zip(species, direction)} for direction in directions[rank:])


def _least_squares(species: tuple[int, ...], means: Means) -> dict[int, float]:
    """Shifts that minimise the squared error of the energy per atom over all frames; of least norm where undetermined.

    Frames of one formula share their row of counts, so their mean with the root of their number as weight gives the
    same solution as all of them, from a small and well-conditioned system.
    """
    counts = _counts(species, means)
    energies = np.array([mean for _, mean, _ in means.values()], dtype=np.float64)
    frames = np.array([n for _, _, n in means.values()], dtype=np.float64)
    weights = np.sqrt(frames) / counts.sum(axis=1)
    solution, *_ = np.linalg.lstsq(counts * weights[:, None], energies * weights, rcond=1e-10)
    return {z: float(shift) for z, shift in zip(species, solution)}
