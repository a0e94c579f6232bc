"""`equibayes refine MODEL DATA`: exact inference around every chain of a posterior."""

import argparse
from pathlib import Path
from typing import Any

from equibayes.cli.device import add_engine_options, use_engine
from equibayes.cli.parser import add_reading_options, reading_options
from equibayes.data import Dataset, read
from equibayes.errors import InputError
from equibayes.files import check_target
from equibayes.posterior.file import load
from equibayes.posterior.seen import marks_of, split_known
from equibayes.posterior.tangent import refine
from equibayes.posterior.tangent_choice import warnings_of
from equibayes.posterior.tangent_plan import DIRECTIONS, LABELS
from equibayes.posterior.tangent_store import Store
from equibayes.run.progress import watched

MOST_HELD = 50

HELP = "sharpen a posterior by exact inference around each of its chains"
DESCRIPTION = (
    "Refine a posterior or ensemble: around the last sample of each chain the network is taken as linear in its weights, "
    "where the posterior is Gaussian and exact.  Needs the labels that it was sampled from.  Its σ then "
    "contains how far the labels determine each prediction."
)
EPILOG = """\
examples:
  equibayes refine my.posterior train.xyz -o refined.posterior
  equibayes refine my.posterior train.xyz --add new.xyz -o refined.posterior     also learns from new frames

Frames of DATA that the posterior did not learn from (those held back when sampling) choose the noise level and the size
of σ.  Predictions cost three times as much as before.  A calibration is removed: calibrate again afterwards.

Time and memory are stated before it begins; --labels and --directions lower or raise both.  An interrupted call is
continued by the same command: REFINED.refine keeps the networks that are done until the file is written.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("posterior", metavar="MODEL", help="posterior file, or an ensemble written by compare")
    parser.add_argument("data", metavar="DATA", help="the file it was sampled from, with its held-back frames")
    parser.add_argument(
        "-o", "--output", metavar="REFINED.posterior", help="file to write (default: MODEL-refined.posterior)"
    )
    parser.add_argument("--add", metavar="DATA", help="labelled frames to learn from as well")
    parser.add_argument("--draws", type=int, default=2, metavar="N", help="draws around each chain (default 2)")
    parser.add_argument(
        "--labels",
        type=int,
        metavar="R",
        help=f"learn at most R labels around each network: all energies and a random share of the forces (default {LABELS})",
    )
    parser.add_argument(
        "--directions",
        type=int,
        metavar="M",
        help=f"move the weights of a network in at most M random directions (default {DIRECTIONS} / number of networks)",
    )
    parser.add_argument(
        "--last-layer",
        action="store_true",
        help="move only the weights of the last layer and the readout: less time and memory, a part of the gain",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the draws (default 0)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output file")
    add_engine_options(parser)
    add_reading_options(parser)


def run(arguments: argparse.Namespace) -> int:
    source = Path(arguments.posterior)
    target = Path(arguments.output or source.with_name(f"{source.stem}-refined.posterior"))
    check_target(target, overwrite=arguments.overwrite)
    if arguments.draws < 1:
        raise InputError(f"--draws {arguments.draws}: at least one draw around each chain")
    for name in ("labels", "directions"):
        if (getattr(arguments, name) or 1) < 1:
            raise InputError(f"--{name} {getattr(arguments, name)}: at least one")
    use_engine(arguments)
    posterior = load(source)
    data = read(arguments.data, **reading_options(arguments))
    known, held = split_known(marks_of(posterior), data)
    if not len(known):
        raise InputError(
            f"{data.name}: the posterior learned from none of these frames; give the file that it was sampled from, and "
            "new frames with --add"
        )
    if arguments.add:
        known = Dataset([*known, *read(arguments.add, **reading_options(arguments))], name=known.name)
    if len(held) > MOST_HELD:
        held = held.subset(range(0, len(held), -(-len(held) // MOST_HELD)))
    unfinished = target.with_suffix(".refine")
    limits = {name: getattr(arguments, name) for name in ("labels", "directions", "last_layer")}
    refined = refine(
        posterior, known, held, draws=arguments.draws, seed=arguments.seed, **limits, folder=unfinished, say=print,
        watch=watched,
    )  # fmt: skip
    refined.save(target)
    Store(unfinished, "").clear()
    print(_report(refined.verdict["tangent"], len(known), len(held)))
    for warning in warnings_of(refined.verdict["tangent"]):
        print(f"note: {warning}")
    print(f"{len(refined)} linearised networks written to {target}")
    return 0


def _report(about: dict[str, Any], labels: int, held: int) -> str:
    stress = about.get("stress_sigma_factor")
    chosen = f"chosen on {held} held-back frames" if held else "not checked: no held-back frames in DATA"
    errors = about["held_back_force_mae"]
    if errors:
        chosen += f"; force error there {1e3 * errors[1]:.1f} instead of {1e3 * errors[0]:.1f} meV/Å"
    return (
        f"exact inference from {labels} frames; noise λ = {about['noise']:g}, σ of forces × {about['force_sigma_factor']:.2f}, "
        f"of energies × {about['energy_sigma_factor']:.2f}"
        + (f", of stress × {stress:.2f}" if stress else "")
        + f" ({chosen})"
    )
