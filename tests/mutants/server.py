"""Runs tests in copies of a process that has imported the large packages already, which takes longer than most tests.

The arguments are these packages: nothing of the project, and nothing that starts threads.  One line of JSON, a list of
arguments of pytest, on the standard input; two lines on the standard output: the number of the process that runs them,
which is its own process group, and its exit status when it has ended.
"""

import importlib
import json
import os
import sys


def serve() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _test(json.loads(line))
        os.setpgid(child, child)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _test(arguments: list[str]) -> None:
    """In the working directory, silently; does not return."""
    import pytest

    status = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        sys.path[0] = os.getcwd()
        status = int(pytest.main(arguments))
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve()
