"""The options of verbs that use a posterior as a potential: which samples, which precision, which σ, trust levels."""

import argparse
from typing import Any

from equibayes.cli.device import add_device_options
from equibayes.errors import InputError, one_line
from equibayes.posterior.novelty import NOVELTY


def add_potential_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--k", type=int, metavar="k", help="use the first k samples (default: all)")
    parser.add_argument("--dtype", choices=["float32", "float64"], help="default: that of the network")
    add_device_options(parser)


def add_trust_options(group: Any) -> None:
    """To a parser or a group of options; `Trust.of` reads them."""
    lower = "lower trust level: eV/Å, or 3x for three times the force error on held-back frames"
    group.add_argument("--trust-lo", metavar="x", help=lower)
    group.add_argument("--trust-hi", metavar="y", help="upper trust level, likewise")


def add_novelty_options(group: Any) -> None:
    """To a parser or a group of options; `novelty_levels` reads them."""
    edge, far = NOVELTY
    lower = f"novelty from which a frame is a candidate (default {edge:g}: the edge of what was learned; none: never)"
    upper = f"novelty from which the model does not know, whatever σ is (default {far:g}; none: never)"
    group.add_argument("--novelty-lo", default=f"{edge:g}", metavar="x", help=lower)
    group.add_argument("--novelty-hi", default=f"{far:g}", metavar="y", help=upper)


def novelty_levels(arguments: argparse.Namespace) -> tuple[float | None, float | None]:
    """The levels given, for `Trust.of`."""
    return novelty_level(arguments.novelty_lo, "--novelty-lo"), novelty_level(arguments.novelty_hi, "--novelty-hi")


def novelty_level(text: str, option: str) -> float | None:
    """A number above 0, or `none`."""
    if text.strip().lower() == "none":
        return None
    try:
        value = float(text)
        if 0 < value < float("inf"):
            return value
    except ValueError:
        pass
    raise InputError(f"{option} {one_line(text)}: give a number above 0 such as 1, or none")


def add_deviation_option(group: Any) -> None:
    which = ["total", "epistemic"]
    group.add_argument(
        "--deviation", choices=which, default="total", help="which σ of the forces to use (default total)"
    )
