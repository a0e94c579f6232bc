"""`equibayes info FILE`: what is in a file."""

import argparse
import json
import sys
from pathlib import Path

from equibayes.cli.parser import add_reading_options, reading_options
from equibayes.data import read
from equibayes.data.summary import Summary
from equibayes.posterior.pretrained import PretrainedSummary, is_pretrained
from equibayes.posterior.summary import PosteriorSummary
from equibayes.tensor_file import is_tensor_file

AnySummary = Summary | PosteriorSummary | PretrainedSummary

HELP = "describe a data file, a posterior or a pretrained network"
DESCRIPTION = (
    "Describe a file.  Data: frames, species, labels and units, as every verb reads them.  A posterior: its data and "
    "settings, its error on held-back frames, and whether the chains agree."
)
EPILOG = """\
examples:
  equibayes info bundled:ethanol
  equibayes info train.xyz.gz@0:500
  equibayes info train.xyz --energy-key dft_energy --forces-key dft_forces
  equibayes info md.npz --energy-unit kcal/mol --json
  equibayes info start.xyz                              labels may be missing; what is missing is listed
  equibayes info ethanol.posterior
  equibayes info 7net-0                                 a pretrained network: species, weights, licence
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="DATA", help="posterior file; or data: file, file@split or bundled:NAME (see equibayes --help)"
    )
    # in scripts: it was needed once
    parser.add_argument("--unlabelled", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print JSON, in eV and Å")
    add_reading_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Choose by the content of the file what to explain."""
    path = Path(arguments.file)
    summary: AnySummary
    if is_pretrained(arguments.file):
        summary = PretrainedSummary(arguments.file)
    elif path.suffix == ".posterior" or is_tensor_file(path):
        summary = PosteriorSummary(path)
    else:
        summary = read(arguments.file, require_labels=False, **reading_options(arguments)).summary()
    if arguments.json:
        print(json.dumps(summary.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print_table(summary)
    return 0


def _print_table(summary: AnySummary) -> None:
    """A table on a terminal; plain lines into a pipe, where a table would be folded at 80 columns."""
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
