"""The program of an engine process (see `engine_process.py`): answers queries until the socket closes.

python -m equibayes.labelling.engine_worker SOCKET      # the number of an open socket
"""

import sys
from multiprocessing.connection import Connection
from typing import Any

from ase.calculators.calculator import BaseCalculator

from equibayes.labelling.engine_process import Answer
from equibayes.labelling.engines import INSTALL, Order, ask, build_calculator, versions


def main(descriptor: int) -> None:
    connection = Connection(descriptor)
    order, follow = connection.recv()
    try:
        # reports missing packages and wrong settings before the first structure
        calculator: BaseCalculator | None = build_calculator(order)
    except ImportError as cause:
        connection.send(("refusal", f"not installed ({_line(cause)}); {INSTALL}"))
        return
    except Exception as cause:
        connection.send(("refusal", f"cannot be set up: {_line(cause)}"))
        return
    connection.send(("ready", {"settings": order.settings, "versions": versions(order)}))
    while True:
        try:
            question = connection.recv()
        except EOFError:
            return  # the other process has ended
        if not follow:
            calculator = None
        answer, calculator = _answer(question, order, calculator)
        connection.send(answer)


def _answer(question: Any, order: Order, calculator: BaseCalculator | None) -> tuple[Answer, BaseCalculator | None]:
    """Label or refusal, and the calculator for the next structure: a new one after a failure."""
    try:
        calculator = build_calculator(order) if calculator is None else calculator
        return ("label", ask(calculator, *question)), calculator
    except Exception as cause:
        return ("refusal", _line(cause)), None


def _line(cause: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(cause).split())[:300]
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__


if __name__ == "__main__":
    main(int(sys.argv[1]))
