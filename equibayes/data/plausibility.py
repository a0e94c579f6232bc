"""Input that can be read but looks wrong: an `InputWarning`, never a change of the data.

These rules detect a wrong unit or sign; none warns about real sets (molecules at 300 to 1000 K, liquid water, metals,
silicon):

* Forces: at temperatures of interest a force component has a root mean square of 0.1 to 5 eV/Å.  Above 12 the forces
  are kcal/mol (23 times eV) or kJ/mol (96 times) taken for eV.
* Energy: no arrangement of atoms lies below the Thomas-Fermi energy of its atoms, -20.9 Z^(7/3) eV each, which is
  itself below every all-electron energy.  Total energies in kcal/mol or kJ/mol read as eV fall below it.
* Distances: the median distance to the nearest neighbour lies between 0.5 and 5.5 Å (H2 0.74, caesium 5.2); nm taken
  for Å and the reverse fall outside.  In organic molecules hydrogen is 0.65 to 1.6 Å from its partner (H2 0.74, HS
  1.34); Bohr taken for Å (1.9 times) and the reverse fall outside that.
* Stress: its components reach 1 eV/Å³ (160 GPa) in the most compressed matter of common sets.  A root mean square above
  2 is that of GPa or kbar taken for eV/Å³.  Near one volume per atom the mean stress rises with the volume, since a
  cell that is expanded is under tension; where it falls instead, its sign is that of a pressure.
* Density: a periodic cell holds at most 2 atoms/Å³ (diamond 0.18; metallic hydrogen at 500 GPa 0.7).  A cell in nm with
  positions in Å, or a cell of another frame, holds more, and every atom would have thousands of neighbours.

They cannot detect forces that are too small (as in a cold crystal), or relative energies in a wrong unit.
"""

import warnings
from collections import defaultdict
from collections.abc import Iterable
from math import gcd

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.data.elements import formula
from equibayes.data.geometry import nearest_distances
from equibayes.data.structures import FloatArray, Structure
from equibayes.errors import InputWarning
from equibayes.plural import counted
from equibayes.units import GPA

HIGHEST_RMS_FORCE = 12.0
HIGHEST_RMS_STRESS = 2.0
NEAR_VOLUME, FEWEST_VOLUMES, LEAST_SPREAD, CLEAR_CORRELATION = 0.1, 10, 0.01, -0.7
"""For the sign of the stress: relative distance from the median volume per atom, frames within it and their relative
spread at least, and the correlation of stress and volume at most."""
NEIGHBOUR_RANGE = (0.5, 5.5)
HYDROGEN_RANGE = (0.65, 1.6)
HIGHEST_DENSITY = 2.0
ORGANIC = (1, 6, 7, 8, 9, 15, 16, 17)


def warn_if_implausible(data: Dataset) -> None:
    """Warn about units that look wrong and about duplicate frames."""
    for message in (_forces(data), _energy(data), _stress(data), _distances(data), _density(data), _duplicates(data)):
        if message:
            warnings.warn(f"{data.name}: {message}", InputWarning, stacklevel=3)


def _forces(data: Dataset) -> str:
    rms = rms_force(data)
    if rms is None or rms <= HIGHEST_RMS_FORCE:
        return ""
    return f"RMS force {rms:.3g} eV/Å is far above that of any matter; check energy_unit and force_unit (--energy-unit)"


def rms_force(structures: Iterable[Structure]) -> float | None:
    """Root mean square of all force components, eV/Å; None where no structure has forces."""
    known = [s.forces.ravel() for s in structures if s.forces is not None]
    if not known:
        return None
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean(np.concatenate(known) ** 2)))


def _stress(data: Dataset) -> str:
    labelled = [(s, s.stress_label) for s in data if s.stress_label is not None]
    if not labelled:
        return ""
    with np.errstate(over="ignore"):
        rms = float(np.sqrt(np.mean([label**2 for _, label in labelled])))
    if rms > HIGHEST_RMS_STRESS:
        named = f"RMS stress {rms:.3g} eV/Å³ ({rms / GPA:.3g} GPa) is far above that of any matter"
        return f"{named}; check stress_unit (--stress-unit)"
    of_one_kind = defaultdict(list)  # by reduced formula
    for structure, label in labelled:
        units = gcd(*(count for _, count in structure.composition))
        numbers = [z for z, count in structure.composition for _ in range(count // units)]
        of_one_kind[formula(numbers)].append((structure.volume / len(structure), np.trace(label) / 3))
    for name, rows in of_one_kind.items():
        volume, stress = np.array(rows).T
        near = np.abs(volume / np.median(volume) - 1) < NEAR_VOLUME
        volume, stress = volume[near], stress[near]
        if near.sum() < FEWEST_VOLUMES or volume.std() < LEAST_SPREAD * volume.mean() or not stress.std():
            continue
        if np.corrcoef(volume, stress)[0, 1] < CLEAR_CORRELATION:
            return (
                f"stress of {name} falls as the cell grows: its sign is that of a pressure; change the sign in the file"
            )
    return ""


def _energy(data: Dataset) -> str:
    for structure in data:
        bound = -20.9 * float(np.sum(structure.numbers ** (7 / 3)))
        # The factor leaves room for relativity, which lowers the energy of the heaviest atoms by up to a tenth.
        if structure.energy is not None and structure.energy < 1.3 * bound:
            return (
                f"energy {structure.energy:.6g} eV of {_short(structure)} lies below the total of all its electrons "
                f"(about {bound:.4g} eV); check energy_unit (--energy-unit)"
            )
    return ""


def _distances(data: Dataset, frames: int = 40, atoms: int = 64) -> str:
    """Judge a sample of frames and atoms, evenly spread: enough for a median."""
    every = [s for s in data if len(s) > 1]
    if not every:
        return ""
    sample = [every[i] for i in _spread(len(every), frames)]
    chosen = [_spread(len(s), atoms) for s in sample]
    nearest = [nearest_distances(s, which) for s, which in zip(sample, chosen)]
    remedy = "check length_unit (--length-unit)"
    typical = float(np.median(np.concatenate(nearest)))
    if not NEIGHBOUR_RANGE[0] <= typical <= NEIGHBOUR_RANGE[1]:
        return f"atoms are {typical:.3g} Å from their nearest neighbour (median), unlike any matter; {remedy}"
    hydrogens: list[FloatArray] = [
        distance[s.numbers[which] == 1]
        for s, which, distance in zip(sample, chosen, nearest)
        if np.isin(s.numbers, ORGANIC).all()
    ]
    if hydrogens and (values := np.concatenate(hydrogens)).size:
        typical = float(np.median(values))
        if not HYDROGEN_RANGE[0] <= typical <= HYDROGEN_RANGE[1]:
            return f"hydrogen is {typical:.3g} Å from its nearest neighbour (median), not about 1 Å; {remedy}"
    return ""


def _density(data: Dataset) -> str:
    for structure in data:
        volume = abs(float(np.linalg.det(structure.cell)))
        if structure.pbc.all() and len(structure) > HIGHEST_DENSITY * volume:
            return (
                f"the cell of {_short(structure)} holds {counted(len(structure), 'atom')} in {volume:.3g} Å³, denser than any "
                "matter; check the cell and length_unit (--length-unit)"
            )
    return ""


def _duplicates(data: Dataset) -> str:
    places: dict[bytes, list[Structure]] = defaultdict(list)
    for structure in data:
        places[structure.geometry_digest()].append(structure)
    twins = [group for group in places.values() if len(group) > 1]
    if not twins:
        return ""
    pairs = "; ".join(" = ".join(_short(s) for s in group[:3]) for group in twins[:3])
    more = "; …" if len(twins) > 3 else ""
    count = sum(len(group) - 1 for group in twins)
    repeat, them = ("repeats", "it") if count == 1 else ("repeat", "them")
    return (
        f"{counted(count, 'frame')} {repeat} the geometry of another ({pairs}{more}, from 0); "
        f"remove {them} before splitting"
    )


def _short(structure: Structure) -> str:
    """ "frame 12" out of "file.xyz, frame 12"."""
    return structure.source.rpartition(", ")[2] or "a structure"


def _spread(n: int, at_most: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, at_most)).astype(np.int64))
