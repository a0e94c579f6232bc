"""A process that runs one engine: queried with a time limit, and killed together with its child processes."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from equibayes.labelling.engines import Order

Answer = tuple[str, Any]
"""("ready", provenance), ("label", (energy eV, forces eV/Å, stress eV/Å³ or None)) or ("refusal", reason)."""


class TookTooLong(Exception):
    """No answer within the time limit."""


class Died(Exception):
    """The process ended without an answer; the message is one line."""


class EngineProcess:
    """Starts `equibayes.labelling.engine_worker`, communicates over a socket, and kills it when an answer is
    overdue."""

    def __init__(self, order: Order, environment: Mapping[str, str], follow: bool) -> None:
        self._order, self._follow = order, follow
        import_path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)  # that of this process
        self._environment = {**os.environ, "PYTHONPATH": import_path, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, limit_s: float) -> Answer:
        """Start a new process; the answer is the provenance of the engine."""
        self.end()
        # Some engines leave files in the folder they run in.
        self._folder = tempfile.TemporaryDirectory(prefix="equibayes-engine-", ignore_cleanup_errors=True)
        ours, theirs = socket.socketpair()
        with theirs, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "equibayes.labelling.engine_worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # engines print at length
                stderr=stderr,
                cwd=self._folder.name,
                env=self._environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # its own group: can be killed with its children, and does not receive Ctrl-C
            )
        self._connection = Connection(ours.detach())
        return self.ask((self._order, self._follow), limit_s)

    def ask(self, question: Any, limit_s: float) -> Answer:
        """Send and wait; after an overdue, broken or interrupted answer the process is killed."""
        assert self._connection is not None, "start it first"
        try:
            self._connection.send(question)
            if not self._connection.poll(limit_s):
                raise TookTooLong(f"no answer within {limit_s:g} s")
            answer: Answer = self._connection.recv()
        except (EOFError, ConnectionError):
            raise Died(self._how_it_ended()) from None
        except BaseException:  # a later answer would be mistaken for the answer to the next question
            self.end()
            raise
        return answer

    def end(self) -> None:
        """Kill the process and its children, if it is running."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._connection = self._folder = None

    def __del__(self) -> None:
        with suppress(Exception):
            self.end()

    @property
    def _stderr(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / ".stderr"

    def _how_it_ended(self) -> str:
        """How the process ended, with the last line of its error output; cleans up after it."""
        assert self._process is not None
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            status = None  # it closed the socket but still runs
        lines = self._stderr.read_text(errors="replace").split("\n") if self._stderr.exists() else []
        last = next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")
        self.end()
        how = "stopped answering" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            how = f"died from signal {-status}"
        return f"the engine {how}" + (f": {last}" if last else "")
