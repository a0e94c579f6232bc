"""The program `equibayes VERB …`: find the verb, run it, turn mistakes into one line and an exit status.

Exit status: 0 success, 1 a simulation that exploded, 2 bad input (one line on stderr), 130 interrupted, 141 when the
reader of a pipe went away.
"""

import argparse
import os
import sys
import warnings
from typing import Any

from equibayes.cli import (
    calibrate,
    compare,
    completion,
    evaluate,
    export,
    info,
    lammps,
    learn,
    md,
    predict,
    properties,
    refine,
    sample,
    serve,
    template,
)
from equibayes.cli.parser import Parser
from equibayes.errors import InputError, InputWarning, one_line
from equibayes.version import __version__

VERBS = (
    sample,
    predict,
    evaluate,
    calibrate,
    refine,
    md,
    properties,
    lammps,
    serve,
    export,
    learn,
    compare,
    info,
    template,
    completion,
)
"""Each verb is a module with `HELP`, `DESCRIPTION`, `EPILOG`, `add_options(parser)` and `run(arguments)`: exit
status."""

_EPILOG = """\
DATA is a file (.xyz, .extxyz, also .gz; .npz; .traj; .db), or a part of it:
  train.xyz@0:500            frames 0 to 499
  train.xyz@::10             every tenth
  rmd17_ethanol.npz@train_01 an official split, from splits_ethanol.npz beside it
  set.xyz@splits.json:train  a split from a file you name
  bundled:ethanol@train      comes with equibayes

try:  equibayes info bundled:ethanol
"""


def build_parser() -> Parser:
    """The whole command line."""
    parser = Parser("equibayes", description="Interatomic forces with uncertainties.", epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"equibayes {__version__}", help="print the version")
    verbs = parser.add_subparsers(metavar="VERB", dest="verb", required=True)
    for verb in VERBS:
        name = verb.__name__.rpartition(".")[2]
        own = verbs.add_parser(name, help=verb.HELP, description=verb.DESCRIPTION, epilog=verb.EPILOG)
        verb.add_options(own)
        own.set_defaults(run=verb.run)
    return parser


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Arguments of the verb.  Settings (`section.key=value`) may stand anywhere, which argparse alone refuses."""
    parser = build_parser()
    arguments, rest = parser.parse_known_args(argv)
    if rest:
        if not hasattr(arguments, "settings") or any(word.startswith("-") for word in rest):
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        arguments.settings = [*arguments.settings, *rest]
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Run the program; returns the exit status and never lets a traceback through for bad input."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", InputWarning)
        usual, said = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, InputWarning):
                line = one_line(message, 4000)
                if line not in said:  # several runs on the same data would repeat it
                    print(f"equibayes: warning: {line}", file=sys.stderr)
                said.add(line)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        return _run(argv)


def _run(argv: list[str] | None) -> int:
    try:
        arguments = parse(argv)
        status: int = arguments.run(arguments)
        sys.stdout.flush()  # here, so that a closed pipe is noticed here
        return status
    except InputError as error:
        print(f"equibayes: error: {one_line(error, 4000)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("equibayes: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `equibayes … | head`: the pipe is closed.  Python would report it again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a name of 260 characters, a folder without permission
        where = f"{error.filename}: " if error.filename else ""
        print(f"equibayes: error: {one_line(f'{where}{error.strerror or error}', 4000)}", file=sys.stderr)
        return 2
    except SystemExit as leave:  # argparse after --help
        return leave.code if isinstance(leave.code, int) else 0
