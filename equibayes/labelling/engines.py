"""The engines, by the names that users write, and how each becomes an ASE calculator."""

import difflib
import importlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from equibayes.errors import InputError

if TYPE_CHECKING:  # a posterior names its baseline, and is also read where there is no ASE
    from ase.calculators.calculator import BaseCalculator

INSTALL = "pip install equibayes[label]"

_LEVELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gfn2-xtb": ("tblite", {"method": "GFN2-xTB"}),
    "gfn1-xtb": ("tblite", {"method": "GFN1-xTB"}),
    "pbe/def2-svp": ("pyscf", {"xc": "pbe", "basis": "def2-svp"}),
    "b3lyp-d3bj/6-31g*": ("pyscf", {"xc": "b3lyp", "basis": "6-31g*", "dispersion": "d3bj"}),
    "pyscf": ("pyscf", {}),
    "zbl": ("zbl", {}),
}
"""Level of theory: the program that computes it, and its settings.

Revised MD17 uses pbe/def2-svp, the PEDOT data of the paper b3lyp-d3bj/6-31g*.
"""


_DISPERSION = {"d3bj": "dftd3", "d4": "dftd4"}
"""Dispersion by the name before the slash, and its package; after it stands the functional whose parameters are used:
d3bj/pbe."""
_HARMLESS = ("emt", "lj", "morse")
"""Calculators of ASE that are formulas."""
FORMULAS = ("zbl", "ase", "dispersion")
"""Factories of what may run in this process, if it runs no code: neither threads nor files nor failures to fear."""


def runs_code(engine: str) -> bool:
    """Whether name and settings of an engine can make this machine run any program.

    `module:Class` imports a module; most calculators of ASE start a program, which their settings can name.
    """
    name = engine.lower()
    return name not in (*_LEVELS, *_HARMLESS) and name.partition("/")[0] not in _DISPERSION


@dataclass(frozen=True)
class Order:
    """The calculator that an engine process builds; factory: tblite, pyscf, zbl, dispersion, ase or own."""

    factory: str
    settings: dict[str, Any] = field(default_factory=dict)
    target: str = ""
    """For `ase`: the name known to ASE; for `own`: module:Class; for `dispersion`: its package."""


def resolve(engine: str, settings: Mapping[str, Any]) -> Order:
    """The order for an engine name; no engine is imported."""
    key = engine.lower()
    if key in _LEVELS:
        factory, level = _LEVELS[key]
        return Order(factory, {**level, **settings})
    dispersion, _, functional = key.partition("/")
    if dispersion in _DISPERSION:
        if not functional:
            raise InputError(f"{engine}: name the functional whose parameters are to be used: {dispersion}/pbe")
        own = {"damping": "d3bj"} if dispersion == "d3bj" else {}
        return Order("dispersion", {"method": functional, **own, **settings}, _DISPERSION[dispersion])
    if ":" in engine:
        return Order("own", dict(settings), engine)
    from ase.calculators.calculator import external_calculators, names

    known = {*names, *external_calculators}
    if key in known:
        return Order("ase", dict(settings), key)
    close = difflib.get_close_matches(key, [*_LEVELS, "d3bj/pbe", *sorted(known)], n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(_LEVELS)}, d3bj/pbe and ASE's calculators"
    raise InputError(f"{engine}: no such engine; {hint}")


def build_calculator(order: Order) -> "BaseCalculator":
    """A new calculator; `ImportError` if its package is missing."""
    if order.factory == "tblite":
        return _tblite(order.settings)
    if order.factory == "pyscf":
        from equibayes.labelling.pyscf import PySCF

        return PySCF(**order.settings)
    if order.factory == "zbl":
        from equibayes.labelling.zbl import ZBL

        return ZBL(**order.settings)
    if order.factory == "dispersion":
        return getattr(importlib.import_module(f"{order.target}.ase"), order.target.upper())(**order.settings)
    if order.factory == "ase":
        from ase.calculators.calculator import get_calculator_class

        return get_calculator_class(order.target)(**order.settings)
    module, _, name = order.target.partition(":")
    return getattr(importlib.import_module(module), name)(**order.settings)


def ask(
    calculator: "BaseCalculator", numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray, pbc: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray | None]:
    """Energy (eV), forces [n, 3] (eV/Å) and, of three-dimensional periodic structures, stress [3, 3] (eV/Å³)."""
    from ase import Atoms

    atoms = Atoms(numbers=numbers, positions=positions, cell=cell, pbc=pbc)
    atoms.calc = calculator
    forces = atoms.get_forces()
    # With smeared occupations the forces are derivatives of the free energy, not of the energy extrapolated to 0 K.
    free = calculator.results.get("free_energy")
    energy = atoms.get_potential_energy() if free is None else free
    has_stress = atoms.pbc.all() and "stress" in calculator.implemented_properties
    stress = atoms.get_stress(voigt=False) if has_stress else None
    return float(energy), np.array(forces, dtype=np.float64), stress


def versions(order: Order) -> dict[str, str]:
    """Versions of the packages that compute the labels, as far as known."""
    packages = {"tblite": ["tblite"], "pyscf": ["pyscf", "dftd3"], "dispersion": [order.target]}.get(
        order.factory, ["ase"]
    )
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _tblite(settings: dict[str, Any]) -> "BaseCalculator":
    from tblite.ase import TBLite

    for name in settings:  # tblite ignores unknown names, so that a misspelt charge would be neutral
        if name not in TBLite.default_parameters:
            raise InputError(f"no setting '{name}'; there are {', '.join(TBLite.default_parameters)}")
    return TBLite(**{"verbosity": 0, **settings})
