"""A baseline potential: a cheap engine whose energies, forces and stress a network corrects.

    label = baseline + network        learned: the difference;   predicted: the sum

With it, where nothing was learned, predictions tend to those of the engine instead of to nothing.  The posterior file
holds its name and numbers, never code: `TRUSTED` engines alone are built without being asked for.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from equibayes import expect
from equibayes.data.dataset import Dataset
from equibayes.data.elements import symbol
from equibayes.data.structures import Structure
from equibayes.errors import InputError, one_line
from equibayes.labelling.engines import FORMULAS, INSTALL, Order, ask, build_calculator, resolve, runs_code
from equibayes.labelling.labellers import Label, Labeller, Refusal, fault_of

ALLOW = "EQUIBAYES_BASELINES"
"""Environment variable with other engines that may be built, separated by commas."""
PLUS = "+"
REMEMBERED = 100_000
"""Labels of structures that are learned from, which are asked for several times."""
Progress = Callable[[Iterable[Structure]], Iterable[Structure]]


@dataclass(frozen=True)
class Baseline:
    """One engine, or several with a sum of energies: `gfn2-xtb`, `zbl+d4/pbe`.

    settings  numbers for the engine, such as charge 1; none where there are several
    """

    engine: str
    settings: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, engine: str | None, settings: Mapping[str, float] | None = None) -> "Baseline | None":
        """From settings, checked; nothing is imported."""
        if engine is None:
            if settings:
                raise InputError("prior.baseline_settings belong to prior.baseline, which is none; name an engine")
            return None
        found = cls(engine, tuple(sorted((settings or {}).items())))
        found.check()
        return found

    @classmethod
    def from_dict(cls, content: Any) -> "Baseline":
        """From a posterior file.  Nothing is imported, and a name alone does no harm (`_allowed`)."""
        settings = expect.section(content["settings"], "baseline.settings")
        numbers = {name: expect.number(value, f"baseline.settings.{name}") for name, value in settings.items()}
        return cls(expect.text(content["engine"], "baseline.engine"), tuple(sorted(numbers.items())))

    def to_dict(self) -> dict[str, Any]:
        return {"engine": self.engine, "settings": dict(self.settings)}

    def check(self) -> None:
        """An `InputError` for a name that is not known or not trusted."""
        if self.settings and len(self.names) > 1:
            raise InputError(
                f"prior.baseline={self.engine}: settings are possible for one engine alone; leave them out"
            )
        for name in self.names:
            resolve(name, self._numbers)
            _allowed(name)

    @property
    def _numbers(self) -> dict[str, float]:
        """Whole numbers as such: some engines know no charge of 1.0."""
        return {name: int(value) if value == int(value) else value for name, value in self.settings}

    @property
    def names(self) -> list[str]:
        return [name.strip() for name in self.engine.split(PLUS)]

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {value:g}" for name, value in self.settings)
        return self.engine + (f" ({numbers})" if numbers else "")

    def label(self, structure: Structure) -> Label:
        """Energy, forces and, of periodic structures, stress; an `InputError` where the engine has no answer."""
        parts = [self._part(name, structure) for name in self.names]
        stress = [part.stress for part in parts if part.stress is not None]
        return Label(
            sum(part.energy for part in parts),
            sum(part.forces for part in parts),  # type: ignore[arg-type]
            sum(part.seconds for part in parts),
            sum(stress) if len(stress) == len(parts) else None,  # type: ignore[arg-type]
        )

    def _part(self, name: str, structure: Structure) -> Label:
        engine = _engine(name, tuple(self._numbers.items()), os.getpid())
        answer = engine(structure)
        if isinstance(answer, Refusal):
            where = f"{structure.source}: " if structure.source else ""
            raise InputError(f"{where}the baseline {one_line(name, 60)} has no answer: {answer.reason}")
        if answer.stress is None and structure.pbc.all():
            raise InputError(f"the baseline {one_line(name, 60)} has no stress for periodic structures; use another")
        return answer

    def taken_off(self, data: Dataset, progress: Progress = iter) -> Dataset:
        """The differences that are learned: labels minus those of the baseline, free atoms as well."""
        differences = [self._difference(structure) for structure in progress(data.structures)]
        atoms = {z: energy - self._free_atom(z) for z, energy in data.isolated_atoms.items()}
        return Dataset(differences, data.name, atoms, data.report, data.specs)

    def _difference(self, structure: Structure) -> Structure:
        own = _remembered(self, Asked(structure))
        return replace(
            structure,
            energy=None if structure.energy is None else structure.energy - own.energy,
            forces=None if structure.forces is None else structure.forces - own.forces,
            stress=None if structure.stress is None or own.stress is None else structure.stress - own.stress,
        )

    def _free_atom(self, number: int) -> float:
        atom = Structure([number], [[0.0, 0.0, 0.0]], source=f"free atom of {symbol(number)}")  # type: ignore[arg-type]
        return _remembered(self, Asked(atom)).energy


@dataclass(frozen=True)
class Asked:
    """A structure that is equal to others with the same geometry."""

    structure: Structure = field(compare=False)
    digest: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", self.structure.geometry_digest())


@lru_cache(maxsize=REMEMBERED)
def _remembered(baseline: Baseline, asked: Asked) -> Label:
    return baseline.label(asked.structure)


@lru_cache(maxsize=16)
def _engine(name: str, settings: tuple[tuple[str, float], ...], process: int) -> Callable[[Structure], Label | Refusal]:
    """Built when it is asked for first.  process: this one, since a fork must not share an engine."""
    _allowed(name)
    order = resolve(name, dict(settings))
    if order.factory not in FORMULAS:
        return Labeller(name, dict(settings)).label
    return _Formula(name, order)


class _Formula:
    """A formula, evaluated in this process."""

    def __init__(self, name: str, order: Order) -> None:
        try:
            self.calculator = build_calculator(order)
        except ImportError as cause:
            raise InputError(f"{name}: not installed ({one_line(cause)}); {INSTALL}") from None
        except Exception as cause:
            raise InputError(f"{name}: cannot be set up: {one_line(cause)}") from None

    def __call__(self, structure: Structure) -> Label | Refusal:
        try:
            geometry = structure.numbers, structure.positions, structure.cell, structure.pbc
            energy, forces, stress = ask(self.calculator, *geometry)
        except Exception as cause:
            return Refusal(one_line(cause), 0.0)
        if fault := fault_of(energy, forces, stress, len(structure)):
            return Refusal(fault, 0.0)
        return Label(energy, forces, 0.0, stress)


def _allowed(name: str) -> None:
    """An `InputError` for an engine that can run programs, unless the user names it in the environment."""
    allowed = [each.strip().lower() for each in os.environ.get(ALLOW, "").split(",")]
    if runs_code(name) and name.lower() not in allowed:
        shown = one_line(name, 60)
        raise InputError(
            f"the baseline {shown} can make this machine run any program; if you trust it, set {ALLOW}={shown}"
        )
