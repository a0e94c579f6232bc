"""Energies and forces from a quantum-chemistry engine, for one structure after another.

    with Labeller("gfn2-xtb") as labeller:
        answer = labeller.label(structure)      # a Label, or a Refusal with the reason

The engine runs in a separate process, which serves many structures: a library can be loaded into it before Python
starts, and an engine that crashes or hangs affects nothing else.  Any failure with a structure is a `Refusal`; the
next structure gets a working engine again.
"""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from equibayes.data.structures import FloatArray, Structure
from equibayes.errors import InputError
from equibayes.labelling.blas import preload_environment
from equibayes.labelling.engine_process import Died, EngineProcess, TookTooLong
from equibayes.labelling.engines import resolve
from equibayes.plural import counted

TIME_LIMIT_S = 600.0
"""Default time limit for one structure."""

START_LIMIT_S = 120.0
"""Time limit for loading Python and the libraries of the engine."""


@dataclass(frozen=True)
class Label:
    """The result of an engine.

    energy: eV, relative to the engine's own zero. forces: [n, 3] eV/Å, minus the gradient of this energy. seconds:
    computing time. stress: [3, 3] eV/Å³ with ASE's sign, for three-dimensional periodic structures if the engine
    computes it, else None.
    """

    energy: float
    forces: FloatArray
    seconds: float
    stress: FloatArray | None = None

    def attach(self, structure: Structure) -> Structure:
        """The structure with this label instead of any other."""
        return dataclasses.replace(structure, energy=self.energy, forces=self.forces, stress=self.stress)


@dataclass(frozen=True)
class Refusal:
    """Why a structure has no label, in one line, and the time spent, in seconds."""

    reason: str
    seconds: float


class LabelSource(Protocol):
    """Anything that labels structures: an engine, a cluster of engines, or a pool of known labels."""

    def label(self, structure: Structure) -> Label | Refusal: ...

    def close(self) -> None: ...


class Labeller:
    """An engine at a fixed level of theory.

    Parameters
    ----------
    engine: `gfn2-xtb`, `gfn1-xtb`, `pbe/def2-svp`, `b3lyp-d3bj/6-31g*`, `pyscf`; the name of one of ASE's
        calculators (`emt`, `orca`); or `module:Class` for any other ASE calculator.
    settings: keyword settings of the engine.  Paths in them must be absolute: the process runs in a temporary folder.
    time_limit_s: seconds for one structure, after which the process is killed and the structure refused.
    threads: processor threads of the engine.
    follow: start from the wave function of the previous structure, if the engine can.  Faster along a trajectory, but
        the labels then depend, within the convergence threshold, on the previous structures.

    Raises `InputError` if the engine is unknown, is not installed or refuses its settings.
    """

    def __init__(
        self,
        engine: str,
        settings: Mapping[str, Any] | None = None,
        *,
        time_limit_s: float = TIME_LIMIT_S,
        threads: int = 1,
        follow: bool = False,
    ) -> None:
        if not time_limit_s > 0:
            raise InputError(f"time limit of {time_limit_s} s: must be above 0")
        if threads < 1:
            raise InputError(f"{threads} threads: must be at least 1")
        self.engine = engine
        self.time_limit_s = time_limit_s
        self._order = resolve(engine, settings or {})
        environment = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        if self._order.factory == "tblite":  # its wheel contains the reference BLAS, which is several times slower
            environment |= preload_environment(threads)
        self._process = EngineProcess(self._order, environment, follow)
        try:
            self.provenance: dict[str, Any] = self._start()
        except (Died, TookTooLong) as cause:
            raise InputError(f"{engine}: the engine does not start: {cause}") from None

    def label(self, structure: Structure) -> Label | Refusal:
        """Energy and forces of one structure, or the reason why there are none."""
        started = time.monotonic()
        try:
            if not self._process.alive:
                self._start()
            kind, content = self._process.ask(
                (structure.numbers, structure.positions, structure.cell, structure.pbc), self.time_limit_s
            )
        except TookTooLong:
            return Refusal(f"no answer within {self.time_limit_s:g} s", time.monotonic() - started)
        except (Died, InputError) as cause:
            return Refusal(str(cause), time.monotonic() - started)
        seconds = time.monotonic() - started
        if kind == "refusal":
            return Refusal(content, seconds)
        energy, forces, stress = content
        if fault := fault_of(energy, forces, stress, len(structure)):
            return Refusal(fault, seconds)
        return Label(energy, forces, seconds, stress)

    def close(self) -> None:
        """End the process; a later `label` starts a new one."""
        self._process.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> dict[str, Any]:
        """Start the process; returns engine, settings and versions."""
        kind, content = self._process.start(START_LIMIT_S)
        if kind == "refusal":
            self._process.end()
            raise InputError(f"{self.engine}: {content}")
        return {"engine": self.engine, **content}


def fault_of(energy: float, forces: FloatArray, stress: FloatArray | None, atoms: int) -> str:
    """Why an answer cannot be a label; empty if it can."""
    if forces.shape != (atoms, 3):
        return f"forces of shape {forces.shape} for {counted(atoms, 'atom')}"
    if not np.isfinite(energy):
        return f"energy is {energy}"
    if not np.isfinite(forces).all():
        return f"forces of {int((~np.isfinite(forces)).any(axis=1).sum())} atoms are not finite"
    if stress is not None and not np.isfinite(stress).all():
        return "stress is not finite"
    return ""
