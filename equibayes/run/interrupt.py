"""Stopping when the user asks: signals are collected, and the run ends at a place from which it can be resumed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_STOPS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(Exception):
    """The user asked to stop; a checkpoint has been written."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"interrupted at step {step}")
        self.signal, self.step = number, step


@contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Collects SIGINT, SIGTERM and SIGHUP (a terminal that was closed) in a list.

    A signal that is ignored, as SIGHUP is under nohup, stays ignored.  Outside the main thread no signal arrives, and
    the list stays empty.
    """
    pending: list[int] = []
    names = [s for s in _STOPS if signal.getsignal(s) is not signal.SIG_IGN]
    try:
        old = {s: signal.signal(s, lambda number, _: pending.append(number)) for s in names}
    except ValueError:
        old = {}
    try:
        yield pending
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
