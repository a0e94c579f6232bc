"""`equibayes info FILE`: what is in a file."""

import argparse
import json
import sys
from typing import Any

from equibayes.cli.parser import add_reading_options, reading_options
from equibayes.data import Dataset, read

_EPILOG = """\
examples:
  equibayes info bundled:ethanol
  equibayes info train.xyz.gz@0:500
  equibayes info train.xyz --energy-key dft_energy --forces-key dft_forces
  equibayes info md.npz --energy-unit kcal/mol --json
  equibayes info start.xyz --unlabelled
"""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "info",
        help="say what is in a data file",
        description="Read a data file as every verb does and say what was found: frames, species, labels, units.",
        epilog=_EPILOG,
    )
    parser.add_argument("file", metavar="DATA", help="file, file@split or bundled:NAME (see equibayes --help)")
    parser.add_argument("--unlabelled", action="store_true", help="accept frames without energy or forces")
    parser.add_argument("--json", action="store_true", help="print JSON, in eV and Å")
    add_reading_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Choose by the kind of file what to explain.  Data sets are the only kind; others join here by their ending."""
    return _explain_data(arguments)


def _explain_data(arguments: argparse.Namespace) -> int:
    data = read(arguments.file, require_labels=not arguments.unlabelled, **reading_options(arguments))
    if arguments.json:
        print(json.dumps(data.summary().to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print_table(data)
    return 0


def _print_table(data: Dataset) -> None:
    """A table on a terminal; plain lines into a pipe, where a table would be folded at 80 columns."""
    summary = data.summary()
    if not sys.stdout.isatty():
        print(summary)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, title=None, pad_edge=False)
    for heading, text in summary.lines():
        table.add_row(Text(heading, style="bold"), Text(text))  # Text: brackets in a file name are no markup
    Console().print(table)
