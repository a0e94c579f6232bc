"""A posterior as a client of i-PI and other programs with its socket protocol: path integrals, replica exchange …

The other program listens, sends positions, and asks for energy, forces and virial.  Uncertainties are sent as
"extras", a JSON text that i-PI writes to its own files; `equibayes serve --help` lists its keys.
"""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from ase.calculators.socketio import IPIProtocol, SocketClosed, actualunixsocketname

from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.posterior.predict import Prediction
from equibayes.simulate.evaluator import Evaluator
from equibayes.simulate.trust import DEVIATIONS, Deviation, atom_deviations
from equibayes.simulate.vacuum_cell import VacuumCell

PORT = 31415
"""The default of i-PI."""


def connect(host: str, port: int | None, unix: str | None, patience: float) -> socket.socket:
    """Connect to the listening program, by host and port or by Unix socket; wait up to `patience` seconds for it to
    start.

    unix: i-PI's name NAME for `/tmp/ipi_NAME`, or a path with a slash
    """
    path = None if unix is None else unix if "/" in unix else actualunixsocketname(unix)
    where = f"{host}:{port or PORT}" if path is None else path
    end = time.monotonic() + patience
    while True:
        found = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
        try:
            found.connect((host, port or PORT) if path is None else path)
            return found
        except OSError as cause:
            found.close()
            if time.monotonic() >= end:
                raise InputError(
                    f"{where}: no program listens there ({cause.strerror or cause}); "
                    "start i-PI first, or wait longer with --wait"
                ) from cause
            time.sleep(0.2)


class Client:
    """Answers one program until it ends the connection."""

    def __init__(self, evaluator: Evaluator, start: Structure, deviation: str = "total") -> None:
        """start: gives the elements and periodic directions; positions and cell come from the other program."""
        self.evaluator, self.start, self.sigma_name = evaluator, start, DEVIATIONS[deviation]
        self._replicas: dict[int, tuple[Evaluator, VacuumCell]] = {}

    def serve(self, line: socket.socket) -> Iterator[Deviation]:
        """Answer queries; yields the deviation after each evaluation.

        We ask for the number of the bead before each evaluation (NEEDINIT), so that every bead keeps its own
        neighbour list.
        """
        protocol = IPIProtocol(line)
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
                elif message == "STATUS":
                    protocol.sendmsg(state)
                elif message == "INIT":
                    number, _ = protocol.recvinit()
                    state, bead = "READY", int(number[0])
                elif message == "POSDATA":
                    cell, _, positions = protocol.recvposdata()
                    prediction, volume = self._evaluate(bead, cell, positions)
                    answer, state = self._answer(prediction, volume), "HAVEDATA"
                    yield Deviation.of(getattr(prediction, self.sigma_name))
                elif message == "GETFORCE":
                    protocol.sendforce(*answer)
                    state = "NEEDINIT"
                else:
                    raise InputError(f"the other program sent '{message}', which is not in i-PI's protocol")

    def _evaluate(self, bead: int, cell: np.ndarray, positions: np.ndarray) -> tuple[Prediction, float]:
        if len(positions) != len(self.start):
            raise InputError(
                f"the other program has {counted(len(positions), 'atom')}, the start structure {len(self.start)}; "
                "use the same file for both"
            )
        if bead not in self._replicas:
            reach = self.evaluator.posterior.network.r_max + self.evaluator.skin
            self._replicas[bead] = self.evaluator.twin(), VacuumCell(reach)
        evaluator, in_vacuum = self._replicas[bead]
        structure = in_vacuum(self.start.numbers, positions, cell, self.start.pbc, "i-PI")
        (prediction,) = evaluator([structure])
        return prediction, float(abs(np.linalg.det(structure.cell)))

    def _answer(self, prediction: Prediction, volume: float) -> tuple[Any, ...]:
        assert prediction.stress is not None  # the cell is always periodic
        sigma = getattr(prediction, self.sigma_name)
        deviation = Deviation.of(sigma)
        extras = {
            "energy_std": prediction.energy_std,
            "energy_epistemic": prediction.energy_epistemic,
            "max_devi_f": deviation.largest,
            "avg_devi_f": deviation.mean,
            "min_devi_f": deviation.smallest,
            "devi_f": atom_deviations(sigma).tolist(),
        }
        text = np.frombuffer(json.dumps(extras).encode(), dtype=np.byte)
        return prediction.energy, prediction.forces, -volume * prediction.stress, text
