"""Energies and forces from a quantum-chemistry engine, for one structure after another.

    with Labeller("gfn2-xtb") as labeller:
        answer = labeller.label(structure)      # a Label, or a Refusal that says why there is none

The engine works in a process of its own, which serves many structures: a library can be loaded into it before Python
starts, and an engine that crashes or hangs takes nothing else with it.  Whatever goes wrong with a structure is a
`Refusal`; the next structure finds a working engine again.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from equibayes.data.structures import FloatArray, Structure
from equibayes.errors import InputError
from equibayes.labelling.blas import preload_environment
from equibayes.labelling.engines import resolve
from equibayes.labelling.process import Died, EngineProcess, TookTooLong

TIME_LIMIT_S = 600.0
"""For one structure, unless told otherwise."""

START_LIMIT_S = 120.0
"""For Python and the engine's libraries to load."""


@dataclass(frozen=True)
class Label:
    """What an engine found.

    energy: eV, on the engine's own zero.
    forces: [n, 3] eV/Å, minus the gradient of this energy.
    seconds: how long it took.
    stress: [3, 3] eV/Å³ with ASE's sign, for structures periodic in three directions and engines that know it; else None.
    """

    energy: float
    forces: FloatArray
    seconds: float
    stress: FloatArray | None = None

    def attach(self, structure: Structure) -> Structure:
        """The structure with this label in place of whatever it had."""
        return dataclasses.replace(structure, energy=self.energy, forces=self.forces, stress=self.stress)


@dataclass(frozen=True)
class Refusal:
    """Why a structure got no label, in one line, and how many seconds that took."""

    reason: str
    seconds: float


class Labeller:
    """An engine at a fixed level of theory.

    Parameters
    ----------
    engine: `gfn2-xtb`, `gfn1-xtb`, `pbe/def2-svp`, `b3lyp-d3bj/6-31g*`, `pyscf`; the name under which ASE knows a
        calculator (`emt`, `orca`); or `module:Class` for a calculator of one's own.
    settings: keyword settings of the engine.  Paths in them must be absolute: the process works in a folder of its own.
    time_limit_s: seconds for one structure; then the process is ended and the structure refused.
    threads: processor threads of the engine.
    follow: start from the wave function of the structure before, where the engine can.  Faster along a trajectory; but the labels then
        depend, within the convergence threshold, on what came before.

    Raises `InputError` where the engine is unknown, not installed or refuses its settings.
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
        if self._order.factory == "tblite":  # its wheel carries a reference BLAS, several times slower
            environment |= preload_environment(threads)
        self._process = EngineProcess(self._order, environment, follow)
        try:
            self.provenance: dict[str, Any] = self._start()
        except (Died, TookTooLong) as cause:
            raise InputError(f"{engine}: the engine does not start: {cause}") from None

    def label(self, structure: Structure) -> Label | Refusal:
        """Energy and forces of one structure, or why there are none."""
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
        if fault := _fault(energy, forces, stress, len(structure)):
            return Refusal(fault, seconds)
        return Label(energy, forces, seconds, stress)

    def close(self) -> None:
        """End the process; a later `label` starts a new one."""
        self._process.end()

    def __enter__(self) -> Labeller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> dict[str, Any]:
        """Start the process and hear what it is made of."""
        kind, content = self._process.start(START_LIMIT_S)
        if kind == "refusal":
            self._process.end()
            raise InputError(f"{self.engine}: {content}")
        return {"engine": self.engine, **content}


def _fault(energy: float, forces: FloatArray, stress: FloatArray | None, atoms: int) -> str:
    """What makes an answer unfit for a label; empty if nothing does."""
    if forces.shape != (atoms, 3):
        return f"forces of shape {forces.shape} for {atoms} atoms"
    if not np.isfinite(energy):
        return f"energy is {energy}"
    if not np.isfinite(forces).all():
        return f"forces of {int((~np.isfinite(forces)).any(axis=1).sum())} atoms are not finite"
    if stress is not None and not np.isfinite(stress).all():
        return "stress is not finite"
    return ""
