"""A peer that speaks nonsense: the client ends in one line."""

import socket
import struct
import threading

import numpy as np
import pytest
import torch

from equibayes.errors import InputError
from equibayes.simulate.calculator import SKIN
from equibayes.simulate.evaluator import Evaluator
from equibayes.simulate.ipi import Client, connect
from tests.samples import salt, water
from tests.simulate.posteriors import random_posterior

POSTERIOR = random_posterior(2)
START = {"molecule": water(), "crystal": salt()}


def word(text: str) -> bytes:
    return text.encode().ljust(12)


def ints(*values: int) -> bytes:
    return struct.pack(f"={len(values)}i", *values)


def numbers(values: object) -> bytes:
    return np.asarray(values, dtype=np.float64).tobytes()


def posdata(cell: object, positions: object, count: int | None = None) -> bytes:
    """A message in bohr, as given."""
    rows = np.asarray(positions, dtype=np.float64).reshape(-1, 3)
    return word("POSDATA") + numbers(cell) + numbers(cell) + ints(len(rows) if count is None else count) + numbers(rows)


def outcome(message: bytes, start: str = "molecule", *, then_close: bool = True) -> str:
    """What the client says in the end; empty if it ends without a complaint.  Anything but `InputError` is raised."""
    torch.set_num_threads(1)
    ours, theirs = socket.socketpair()
    theirs.settimeout(30)

    def send() -> None:
        try:
            theirs.sendall(message)
            if then_close:
                theirs.shutdown(socket.SHUT_WR)
            while theirs.recv(65536):
                pass
        except OSError:
            pass

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    client = Client(Evaluator(POSTERIOR, "cpu", None, SKIN), START[start])
    try:
        list(client.serve(ours))
    except InputError as error:
        return str(error)
    finally:
        ours.close()
        sender.join(20)
        theirs.close()
        assert not sender.is_alive()
    return ""


BOX, GOOD = 40 * np.eye(3), water().positions / 0.529
CASES: dict[str, tuple[bytes, str]] = {
    "bytes that are no text": (b"\xff\x00\x81" * 4, "bytes that are not in i-PI's protocol"),
    "another protocol": (b"GET / HTTP/1.1\r\n\r\n", "sent 'GET / HTTP/1"),
    "half a word": (b"STAT", ""),
    "forces before positions": (word("GETFORCE"), "sent 'GETFORCE' after NEEDINIT"),
    "negative bead": (word("INIT") + ints(-1, 1) + b"0", "a bead number of -1"),
    "giant bead": (word("INIT") + ints(2**31 - 1, 1) + b"0", "a bead number of 2147483647"),
    "negative length": (word("INIT") + ints(0, -5), "an initialisation of length of -5"),
    "giant length": (word("INIT") + ints(0, 2**31 - 1), "an initialisation of length of 2147483647"),
    "ends in the middle": (word("INIT") + ints(0), "ended in the middle of a message"),
    "negative atoms": (posdata(BOX, GOOD, -3), "a number of atoms of -3"),
    "giant number of atoms": (posdata(BOX, GOOD, 2**31 - 1), "has 2147483647 atoms, the start structure 3"),
    "NaN in the cell": (posdata(np.full((3, 3), np.nan), GOOD), "not finite"),
    "NaN in the positions": (posdata(BOX, np.full((3, 3), np.nan)), "not finite"),
    "positions of 1e300": (posdata(BOX, np.eye(3) * 1e300), "coordinates are beyond|not finite"),
    "positions of 1e308": (posdata(BOX, np.eye(3) * 1e308), "coordinates are beyond|not finite"),
    "positions of 1e12": (posdata(BOX, np.eye(3) * 1e12), "coordinates are beyond"),
    "cell of 1e300": (posdata(np.eye(3) * 1e300, GOOD), "coordinates are beyond|not finite|cell"),
    "cell of 0": (posdata(np.zeros((3, 3)), GOOD), "a cell without a volume"),
    "flat cell": (posdata(np.diag([40.0, 40.0, 0.0]), GOOD), "a cell without a volume"),
}


@pytest.mark.parametrize("case", CASES)
def test_nonsense_ends_in_one_line(case: str) -> None:
    message, words = CASES[case]
    found = outcome(message)
    assert "\n" not in found
    assert (found == "") == (words == ""), found
    assert any(part in found for part in words.split("|")), found


@pytest.mark.parametrize("scale", [1e-300, 1e-6, 0.01, 1e6, 1e300])
def test_cells_of_a_crystal_that_cannot_be(scale: float) -> None:
    """Nothing of these reaches the neighbour list, which would end in a signal or take all memory."""
    start = salt()
    found = outcome(posdata(start.cell * scale, start.positions), "crystal")
    assert any(word in found for word in ("volume", "beyond", "not finite")), found


def test_a_peer_that_leaves_before_its_answer() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(word("STATUS") * 3)
    theirs.close()
    client = Client(Evaluator(POSTERIOR, "cpu", None, SKIN), water())
    with pytest.raises(InputError, match="ended in the middle of a message"):
        list(client.serve(ours))


@pytest.mark.parametrize("port", [99999, -1])
def test_ports_that_are_none(port: int) -> None:
    with pytest.raises(InputError, match="not an address"):
        connect("localhost", port, None, 60)


def test_patience_is_a_number() -> None:
    with pytest.raises(InputError, match="--wait nan"):
        connect("localhost", 1, None, float("nan"))
