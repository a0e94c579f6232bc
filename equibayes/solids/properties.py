"""`equibayes.properties(posterior, crystal)`: properties of a crystal, each with its σ over the samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load
from equibayes.run.progress import Display, Silent
from equibayes.solids import elastic, eos, lattice, phonons, vacancy
from equibayes.solids.crystal import SYMPREC, Crystal, check_packages, read_crystal
from equibayes.solids.elastic import Elastic
from equibayes.solids.eos import Curves
from equibayes.solids.measurement import Bench, LeftOut
from equibayes.solids.members import AseMembers, Members, PosteriorMembers
from equibayes.solids.phonons import Bands
from equibayes.solids.quantity import Quantity

PROPERTIES = ("lattice", "eos", "elastic", "phonons", "vacancy")
SUPERCELL_LENGTH = 10.0
"""Å between opposite faces of the supercells for phonons and vacancies."""
LARGEST = 5000
"""Most atoms in a supercell."""
SIGMA = "standard deviation over the members (population); no noise term, no calibration"


@dataclass(frozen=True, eq=False)
class Properties:
    """What was found about a crystal.

    numbers   quantities by property and name, such as numbers["elastic"]["C11"]
    curves, elastic, bands   equation of state, stiffness matrix and phonon bands; None where not asked for
    names     of the members, in the order of the arrays in quantities
    left_out  members that some property was computed without, and why
    skipped   properties that were left out altogether, and why
    """

    crystal: Crystal
    names: list[str]
    numbers: dict[str, dict[str, Quantity]]
    curves: Curves | None
    elastic: Elastic | None
    bands: Bands | None
    left_out: list[LeftOut]
    skipped: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; null stands for members that were left out."""
        from equibayes.solids.results import as_dict

        return as_dict(self)

    def plot(self, path: str | Path) -> None:
        """One figure with a panel for each property; SVG, PDF or PNG by the ending of `path`."""
        from equibayes.solids.figures import save_overview

        save_overview(self, path)

    def report(self, path: str | Path, about: str = "") -> None:
        """One HTML page that works offline; `about`: a sentence on where the potential comes from."""
        from equibayes.solids.report import write_report

        write_report(self, path, about)


def properties(
    potential: Any,
    crystal: Atoms | str | Path,
    *,
    only: Sequence[str] = PROPERTIES,
    supercell_length: float = SUPERCELL_LENGTH,
    chemical_potentials: Mapping[str, float] | None = None,
    symprec: float = SYMPREC,
    device: str | None = None,
    dtype: str = "float64",
    display: Display | None = None,
) -> Properties:
    """Compute properties of a crystal with every sample of a posterior.

    potential            a posterior or its file; or an ASE calculator, or a list of them as an ensemble
    crystal              ASE atoms, or a file that ASE reads
    only                 some of lattice, eos, elastic, phonons, vacancy
    supercell_length     Å between opposite faces of the supercells for phonons and vacancies
    chemical_potentials  eV by symbol, for vacancies in compounds; an element is its own reservoir
    symprec              Å by which positions may differ from the symmetry that is looked for and then kept
    device               of a posterior: "cpu" or "cuda" (default: cuda if there is one)
    dtype                of the arithmetic of a posterior
    display              shows progress; default: nothing is shown
    """
    check_packages()
    unknown = [name for name in only if name not in PROPERTIES]
    if unknown or not only:
        raise InputError(f"no property '{unknown[0] if unknown else ''}'; choose from {', '.join(PROPERTIES)}")
    for what, value in (("supercell length", supercell_length), ("symprec", symprec)):
        if not 0 < value < np.inf:
            raise InputError(f"{what} {value:g}: must be above 0, in Å")
    source = "structure" if isinstance(crystal, Atoms) else str(crystal)
    atoms = crystal if isinstance(crystal, Atoms) else read_crystal(crystal)
    members = members_of(potential, device, dtype)
    members.check(atoms, source)
    bench = Bench(members, Crystal.of(atoms, source, symprec), display or Silent())
    potentials = dict(chemical_potentials or {})
    vacancy.check_potentials(potentials, bench.crystal.primitive)
    wanted = [name for name in PROPERTIES if name in only]
    if "phonons" in wanted or "vacancy" in wanted:
        _check_size(bench.crystal, supercell_length)
    return _measure(bench, wanted, supercell_length, potentials)


def members_of(potential: Any, device: str | None, dtype: str) -> Members:
    """The potentials behind whatever was given."""
    if isinstance(potential, str | Path):
        potential = load(potential)
    if isinstance(potential, Posterior):
        return PosteriorMembers(potential, device or _default_device(), dtype)
    return AseMembers(potential if isinstance(potential, Sequence) else [potential])


def _measure(bench: Bench, only: Sequence[str], length: float, potentials: Mapping[str, float]) -> Properties:
    numbers: dict[str, dict[str, Quantity]] = {}
    skipped: dict[str, str] = {}
    curves = matrix = bands = None
    lattice.relax_crystal(bench)
    if "lattice" in only:
        numbers["lattice"] = lattice.measure(bench)
    if "eos" in only:
        numbers["eos"], curves = eos.measure(bench)
    if "elastic" in only:
        numbers["elastic"], matrix = elastic.measure(bench)
    if "phonons" in only:
        numbers["phonons"], bands = phonons.measure(bench, length)
    if "vacancy" in only:
        reason = vacancy.why_not(bench, potentials, length)
        if reason:
            skipped["vacancy"] = reason
        else:
            numbers["vacancy"] = vacancy.measure(bench, potentials, length)
    for name, own in list(numbers.items()):
        numbers[name] = {key: each for key, each in own.items() if len(each.present)}
        if not numbers[name]:
            del numbers[name]
            skipped[name] = "every member was left out"
    return Properties(
        crystal=bench.crystal,
        names=list(bench.members.names),
        numbers=numbers,
        curves=curves if "eos" in numbers else None,
        elastic=matrix if "elastic" in numbers else None,
        bands=bands if "phonons" in numbers else None,
        left_out=bench.left_out,
        skipped=skipped,
    )


def _check_size(crystal: Crystal, length: float) -> None:
    """An `InputError` before hours are spent on a supercell that nobody wants."""
    atoms = len(crystal.primitive) * int(np.prod(crystal.supercell(length)))
    if atoms > LARGEST:
        raise InputError(f"supercell length {length:g} Å: gives supercells of {atoms} atoms; choose a smaller one")


def _default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
