"""The options of verbs that use a posterior as a potential: which samples, which precision, which σ, trust levels."""

import argparse
from typing import Any

from equibayes.cli.device import add_device_options


def add_potential_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--k", type=int, metavar="k", help="use the first k samples (default: all)")
    parser.add_argument("--dtype", choices=["float32", "float64"], help="default: that of the network")
    add_device_options(parser)


def add_trust_options(group: Any) -> None:
    """To a parser or a group of options; `Trust.of` reads them."""
    lower = "lower trust level: eV/Å, or 3x for three times the force error on held-back frames"
    group.add_argument("--trust-lo", metavar="x", help=lower)
    group.add_argument("--trust-hi", metavar="y", help="upper trust level, likewise")


def add_deviation_option(group: Any) -> None:
    which = ["total", "epistemic"]
    group.add_argument(
        "--deviation", choices=which, default="total", help="which σ of the forces to use (default total)"
    )
