"""`equibayes serve OUT.posterior START.xyz --unix NAME`: energies and forces for i-PI, through its socket protocol."""

import argparse
import time
from typing import Any

from equibayes.cli.device import add_device_options, chosen_device
from equibayes.data import read
from equibayes.data.graph import check_species
from equibayes.errors import InputError
from equibayes.posterior.file import load

_EPILOG = """\
examples:
  i-pi input.xml &  equibayes serve water.posterior water.xyz --unix water
  equibayes serve water.posterior water.xyz --host node7 --port 31415

Start it as often as there are processors or GPUs to use: i-PI gives each a bead.  It ends when i-PI does.

START.xyz gives the elements, in the order in which i-PI has the atoms, and along which directions the system is periodic;
positions and cell come from i-PI.  Uncertainties go into i-PI's extras, a JSON text with energy_std, energy_epistemic (eV),
max_devi_f, avg_devi_f, min_devi_f and devi_f of each atom (eV/Å).  To have them in a file, write in input.xml:

  <trajectory filename='sigma' stride='10' extra_type='max_devi_f'> extras </trajectory>
"""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "serve",
        help="forces with uncertainties for i-PI (path integrals) and others that speak its protocol",
        description="Connect to a program that speaks i-PI's socket protocol and compute for it.",
        epilog=_EPILOG,
    )
    parser.add_argument("posterior", metavar="OUT.posterior", help="posterior file")
    parser.add_argument("start", metavar="START.xyz", help="file, file@5:6 or bundled:NAME; the first frame of it")
    where = parser.add_argument_group("where the other program listens")
    where.add_argument("--unix", metavar="NAME", help="Unix socket: the address in i-PI's input, or a path")
    where.add_argument("--host", default="localhost", metavar="HOST", help="default localhost")
    where.add_argument("--port", type=int, metavar="N", help="default 31415")
    where.add_argument("--wait", type=float, default=60.0, metavar="s", help="seconds to wait for it (default 60)")
    parser.add_argument(
        "--deviation",
        choices=["total", "epistemic"],
        default="total",
        help="which σ of the forces to give (default total)",
    )
    parser.add_argument("--k", type=int, metavar="k", help="use the first k samples (default: all)")
    parser.add_argument("--dtype", choices=["float32", "float64"], help="default: that of the network")
    add_device_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from equibayes.simulate.calculator import SKIN
    from equibayes.simulate.evaluator import Evaluator
    from equibayes.simulate.ipi import Client, connect

    if arguments.unix is not None and arguments.port is not None:
        raise InputError("--unix and --port exclude each other; give the one that stands in the other program's input")
    posterior = load(arguments.posterior)
    if arguments.k is not None:
        posterior = posterior.subset(arguments.k)
    frames = read(arguments.start, require_labels=False)
    if not len(frames):
        raise InputError(f"{arguments.start}: holds no structure")
    check_species(frames[0], posterior.species_of)
    evaluator = Evaluator(posterior, chosen_device(arguments), arguments.dtype, SKIN)
    client = Client(evaluator, frames[0], arguments.deviation)
    line = connect(arguments.host, arguments.port, arguments.unix, arguments.wait)
    print("connected", flush=True)
    count, largest, began = 0, 0.0, time.monotonic()
    said = began
    for deviation in client.serve(line):
        count, largest = count + 1, max(largest, deviation.largest)
        if time.monotonic() - said >= 10:
            said = time.monotonic()
            pace = count / (said - began)
            print(
                f"{count} evaluations, {pace:.1f} a second; largest σ now {1e3 * deviation.largest:.1f} meV/Å",
                flush=True,
            )
    print(f"the other program has ended; {count} evaluations, largest σ {1e3 * largest:.1f} meV/Å")
    return 0
