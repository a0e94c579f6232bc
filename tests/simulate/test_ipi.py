"""The client held to ASE's own server for i-PI's protocol, and to what the protocol asks of it."""

import json
import os
import socket
import threading
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.socketio import IPIProtocol, SocketClosed, SocketIOCalculator

from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.simulate.calculator import SKIN, Calculator
from equibayes.simulate.evaluator import Evaluator
from equibayes.simulate.ipi import Client, connect
from equibayes.simulate.trust import Deviation, atom_deviations
from tests.samples import salt, water
from tests.simulate.posteriors import linearised, random_posterior

POSTERIOR = random_posterior()


def client_for(structure: Structure, posterior: Posterior = POSTERIOR, **options: str) -> Client:
    return Client(Evaluator(posterior, "cpu", None, SKIN), structure, **options)


class InThread(threading.Thread):
    """The client beside a server in the same process."""

    def __init__(self, client: Client, line: socket.socket | str) -> None:
        super().__init__(daemon=True)
        self.client, self.line = client, line
        self.deviations: list[Deviation] = []
        self.problem: Exception | None = None
        self.start()

    def run(self) -> None:
        torch.set_num_threads(1)
        try:
            line = connect("", None, self.line, 20) if isinstance(self.line, str) else self.line
            self.deviations.extend(self.client.serve(line))
        except InputError as problem:
            self.problem = problem


@pytest.mark.parametrize(
    ("structure", "posterior"),
    [(salt(), POSTERIOR), (water(), POSTERIOR), (salt(), linearised(POSTERIOR))],
    ids=["crystal", "molecule", "linearised"],
)
def test_ase_server_gets_what_the_calculator_gives(structure: Structure, posterior: Posterior, tmp_path: Path) -> None:
    atoms: Atoms = structure.to_atoms()
    if not structure.pbc.any():
        atoms.set_cell([20, 20, 20])  # the protocol always sends one
    direct = Calculator(posterior, device="cpu")
    thread = InThread(client_for(structure, posterior), f"equibayes-test-{os.getpid()}")
    with SocketIOCalculator(unixsocket=f"equibayes-test-{os.getpid()}", timeout=30) as server:
        atoms.calc = server
        for _ in range(3):
            atoms.rattle(0.05, seed=3)
            other = atoms.copy()
            other.calc = direct
            assert atoms.get_potential_energy() == pytest.approx(other.get_potential_energy(), rel=0, abs=1e-8)
            np.testing.assert_allclose(atoms.get_forces(), other.get_forces(), rtol=0, atol=1e-8)
            if structure.pbc.all():
                np.testing.assert_allclose(atoms.get_stress(), other.get_stress(), rtol=0, atol=1e-8)
    thread.join(20)
    assert thread.problem is None
    assert len(thread.deviations) == 3
    expected = Deviation.of(direct.results["forces_uncertainty"])
    assert astuple(thread.deviations[-1]) == pytest.approx(astuple(expected), abs=1e-8, nan_ok=True)


def ask(protocol: IPIProtocol, bead: int, structure: Structure) -> tuple[float, np.ndarray, np.ndarray, dict]:
    """One evaluation as i-PI asks for it."""
    assert protocol.status() == "NEEDINIT"
    protocol.sendmsg("INIT")
    protocol.send(bead, np.int32)
    protocol.send(1, np.int32)
    protocol.send(np.zeros(1), np.byte)
    assert protocol.status() == "READY"
    cell = structure.cell if structure.pbc.any() else 20 * np.eye(3)
    protocol.sendposdata(cell, np.linalg.inv(cell).T, structure.positions)
    assert protocol.status() == "HAVEDATA"
    energy, forces, virial, extras = protocol.sendrecv_force()
    return energy, forces, virial, json.loads(extras.tobytes())


@pytest.mark.parametrize("deviation", ["total", "epistemic"])
def test_extras_and_beads(deviation: str) -> None:
    ours, theirs = socket.socketpair()
    client = client_for(water(), deviation=deviation)
    thread = InThread(client, ours)
    protocol = IPIProtocol(theirs)
    beads = {0: water(0), 5: water(1)}
    for turn in range(3):
        for bead, structure in beads.items():
            moved = Structure(structure.numbers, structure.positions + 0.01 * turn, structure.cell, structure.pbc)
            _, forces, virial, extras = ask(protocol, bead, moved)
            expected = POSTERIOR.predict(moved)
            np.testing.assert_allclose(forces, expected.forces, rtol=0, atol=1e-8)
            np.testing.assert_allclose(
                virial, np.einsum("ni,nj->ij", moved.positions, expected.forces), rtol=0, atol=1e-8
            )
            sigma = atom_deviations(expected.forces_std if deviation == "total" else expected.forces_epistemic)
            np.testing.assert_allclose(extras["devi_f"], sigma, rtol=1e-8)
            assert extras["max_devi_f"] == pytest.approx(sigma.max(), rel=1e-8)
            assert extras["energy_std"] == pytest.approx(expected.energy_std, rel=1e-8)
            assert extras["energy_epistemic"] == pytest.approx(expected.energy_epistemic, rel=1e-8)
            assert extras["pressure_std"] > 0
    protocol.end()
    thread.join(20)
    assert thread.problem is None
    lists = [evaluator.lists[0].searches for evaluator, _ in client._replicas.values()]
    assert lists == [1, 1], "a bead keeps its neighbour list although others come between"


def test_another_number_of_atoms() -> None:
    ours, theirs = socket.socketpair()
    thread = InThread(client_for(salt()), ours)
    protocol = IPIProtocol(theirs)
    with pytest.raises((SocketClosed, ConnectionError)):
        ask(protocol, 0, water())
    thread.join(20)
    assert "has 3 atoms, the start structure 8" in str(thread.problem)


def test_other_words() -> None:
    ours, theirs = socket.socketpair()
    thread = InThread(client_for(water()), ours)
    IPIProtocol(theirs).sendmsg("HELLO")
    thread.join(20)
    assert "sent 'HELLO'" in str(thread.problem)


def test_a_server_that_dies_ends_the_client() -> None:
    ours, theirs = socket.socketpair()
    thread = InThread(client_for(water()), ours)
    theirs.close()
    thread.join(20)
    assert not thread.is_alive()
    assert thread.problem is None
