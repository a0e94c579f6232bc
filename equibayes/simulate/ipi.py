"""A posterior as a client of i-PI and other programs with its socket protocol: path integrals, replica exchange …

The other program listens, sends positions, and asks for energy, forces and virial.  Uncertainties are sent as
"extras", a JSON text that i-PI writes to its own files; `equibayes serve --help` lists its keys.
"""

import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
from ase import units
from ase.calculators.socketio import IPIProtocol, SocketClosed, actualunixsocketname

from equibayes.data.structures import Structure
from equibayes.errors import InputError, one_line
from equibayes.plural import counted
from equibayes.posterior.prediction import Prediction
from equibayes.simulate.evaluator import Evaluator
from equibayes.simulate.trust import DEVIATIONS, Deviation, atom_deviations
from equibayes.simulate.vacuum_cell import VacuumCell

PORT = 31415
"""The default of i-PI."""
MOST_BEADS = 100_000
LARGEST_CELL = 1e9
"""Å; that of a molecule may be anything."""
MOST_BYTES = 2**24
"""Of the text that initialises a client."""


def connect(host: str, port: int | None, unix: str | None, patience: float) -> socket.socket:
    """Connect to the listening program, by host and port or by Unix socket; wait up to `patience` seconds for it to
    start.

    unix: i-PI's name NAME for `/tmp/ipi_NAME`, or a path with a slash
    """
    path = None if unix is None else unix if "/" in unix else actualunixsocketname(unix)
    where = one_line(f"{host}:{PORT if port is None else port}" if path is None else path)
    if not 0 <= patience < float("inf"):
        raise InputError(f"--wait {patience:g}: must be 0 or more, in s")
    end = time.monotonic() + patience
    while True:
        found = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
        try:
            found.connect((host, PORT if port is None else port) if path is None else path)
            return found
        except (OverflowError, ValueError, TypeError) as cause:  # no port, or no name
            found.close()
            raise InputError(f"{where}: not an address ({one_line(cause)}); correct --host, --port or --unix") from None
        except OSError as cause:
            found.close()
            if time.monotonic() >= end:
                raise InputError(
                    f"{where}: no program listens there ({cause.strerror or cause}); "
                    "start i-PI first, or wait longer with --wait"
                ) from cause
            time.sleep(0.2)


class _Protocol(IPIProtocol):
    """ASE's side of the protocol, with every count and number checked before it is used: the peer may be any."""

    def recv(self, shape: Any, dtype: Any) -> np.ndarray:
        buffer = self._recvall(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        found = np.frombuffer(buffer, dtype).reshape(shape)
        if not np.isfinite(found).all():
            raise InputError("the other program sent numbers that are not finite; its simulation has exploded")
        return found

    def recvmsg(self) -> str:
        try:
            return str(super().recvmsg())
        except UnicodeDecodeError:
            raise InputError("the other program sent bytes that are not in i-PI's protocol") from None

    def recvinit(self) -> int:
        """The number of the bead; the text that follows is not used."""
        bead = self._count("a bead number", MOST_BEADS)
        self._recvall(self._count("an initialisation of length", MOST_BYTES))
        return bead

    def recvpositions(self, atoms: int) -> tuple[np.ndarray, np.ndarray]:
        """Cell [3, 3] and positions [atoms, 3], Å."""
        cell = self.recv((3, 3), np.float64).T * units.Bohr
        if np.abs(cell).max() > LARGEST_CELL:
            raise InputError(f"the other program sent a cell beyond {LARGEST_CELL:g} Å; its simulation has exploded")
        self._recvall(9 * 8)  # the inverse of the cell
        count = self._count("a number of atoms", 2**31)
        if count != atoms:
            raise InputError(
                f"the other program has {counted(count, 'atom')}, the start structure {atoms}; use the same file for both"
            )
        return cell, self.recv((atoms, 3), np.float64) * units.Bohr

    def _count(self, what: str, limit: int) -> int:
        found = int(self.recv(1, np.int32)[0])
        if not 0 <= found < limit:
            raise InputError(f"the other program sent {what} of {found}, which is not in i-PI's protocol")
        return found


@contextmanager
def _unbroken() -> Iterator[None]:
    """An `InputError` where the connection ends in the middle of a message."""
    try:
        yield
    except (SocketClosed, OSError):
        raise InputError(
            "the connection ended in the middle of a message; look at the output of the other program"
        ) from None


class Client:
    """Answers one program until it ends the connection."""

    def __init__(
        self, evaluator: Evaluator, start: Structure, deviation: str = "total", *, committee: bool = False
    ) -> None:
        """start: gives the elements and periodic directions; positions and cell come from the other program.
        committee: also send what every sample predicts."""
        self.evaluator, self.start, self.sigma_name = evaluator, start, DEVIATIONS[deviation]
        self.committee = committee
        self._replicas: dict[int, tuple[Evaluator, VacuumCell]] = {}

    def serve(self, line: socket.socket) -> Iterator[Deviation]:
        """Answer queries; yields the deviation after each evaluation.

        We ask for the number of the bead before each evaluation (NEEDINIT), so that every bead keeps its own
        neighbour list.
        """
        protocol = _Protocol(line)
        state, bead = "NEEDINIT", 0
        answer: tuple[Any, ...] = ()
        with line:
            while True:
                try:
                    message = protocol.recvmsg()
                except (SocketClosed, ConnectionResetError):
                    return
                if message == "EXIT":
                    return
                with _unbroken():
                    if message == "STATUS":
                        protocol.sendmsg(state)
                    elif message == "INIT":
                        state, bead = "READY", protocol.recvinit()
                    elif message == "POSDATA":
                        cell, positions = protocol.recvpositions(len(self.start))
                        prediction, volume = self._evaluate(bead, cell, positions)
                        answer, state = self._answer(prediction, volume), "HAVEDATA"
                    elif message == "GETFORCE" and state == "HAVEDATA":
                        protocol.sendforce(*answer)
                        state = "NEEDINIT"
                    else:
                        raise InputError(
                            f"the other program sent '{one_line(message)}' after {state}, which is not in i-PI's protocol"
                        )
                if message == "POSDATA":
                    yield Deviation.of(getattr(prediction, self.sigma_name), prediction.novelty)

    def answers(self, cells: Sequence[np.ndarray], positions: Sequence[np.ndarray]) -> list[tuple[Any, ...]]:
        """What `sendforce` would send for all beads, evaluated together; cells [3, 3] and positions [n, 3] in Å."""
        structures = [self._structure(*each) for each in zip(count(), cells, positions)]
        predictions = self.evaluator(structures, members=self.committee)
        return [self._answer(_finite(each), s.volume) for each, s in zip(predictions, structures)]

    def _evaluate(self, bead: int, cell: np.ndarray, positions: np.ndarray) -> tuple[Prediction, float]:
        structure = self._structure(bead, cell, positions)
        (prediction,) = self._replicas[bead][0]([structure], members=self.committee)
        return _finite(prediction), structure.volume

    def _structure(self, bead: int, cell: np.ndarray, positions: np.ndarray) -> Structure:
        """Periodic in all directions."""
        if bead not in self._replicas:
            reach = self.evaluator.posterior.network.r_max + self.evaluator.skin
            self._replicas[bead] = self.evaluator.twin(), VacuumCell(reach)
        if not self.start.pbc.all() and abs(np.linalg.det(cell)) < 1e-9:
            raise InputError("the other program sent a cell without a volume; give it one, also for a molecule")
        return self._replicas[bead][1](self.start.numbers, positions, cell, self.start.pbc, "i-PI")

    def _answer(self, prediction: Prediction, volume: float) -> tuple[Any, ...]:
        assert prediction.stress is not None  # the cell is always periodic
        sigma = getattr(prediction, self.sigma_name)
        deviation = Deviation.of(sigma, prediction.novelty)
        extras: dict[str, Any] = {
            "energy_std": prediction.energy_std,
            "energy_epistemic": prediction.energy_epistemic,
            "pressure_std": prediction.pressure_std,
            "max_devi_f": deviation.largest,
            "avg_devi_f": deviation.mean,
            "min_devi_f": deviation.smallest,
            "devi_f": atom_deviations(sigma).tolist(),
        }
        if prediction.novelty is not None:
            extras |= {"max_novelty": deviation.novelty, "novelty": prediction.novelty.tolist()}
        if prediction.members is not None:
            extras |= committee_of(prediction.members, volume)
        text = np.frombuffer(json.dumps(extras).encode(), dtype=np.byte)
        return prediction.energy, prediction.forces, -volume * prediction.stress, text


def _finite(prediction: Prediction) -> Prediction:
    """The same, or an `InputError`."""
    if not (np.isfinite(prediction.energy) and np.isfinite(prediction.forces).all()):
        raise InputError("the model's energy or forces are not finite for these positions; the simulation has exploded")
    return prediction


def committee_of(members: dict[str, np.ndarray], volume: float) -> dict[str, Any]:
    """What every sample predicts, under the names and in the atomic units that i-PI expects of a committee.

    committee_pot [k], committee_force [k, 3n] and committee_virial [k, 3, 3]; volume in Å³
    """
    hartree, bohr = units.Hartree, units.Bohr
    return {
        "committee_pot": (members["energy"] / hartree).tolist(),
        "committee_force": (members["forces"] * bohr / hartree).reshape(len(members["energy"]), -1).tolist(),
        "committee_virial": (-volume * members["stress"] / hartree).tolist(),
    }
