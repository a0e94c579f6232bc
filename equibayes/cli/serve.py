"""`equibayes serve OUT.posterior START.xyz --unix NAME`: energies and forces for i-PI over its socket protocol."""

import argparse
import time

from equibayes.cli.device import chosen_device
from equibayes.cli.parser import add_number
from equibayes.cli.potential import add_deviation_option, add_potential_options
from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.posterior.file import load

HELP = "forces with uncertainties for i-PI (path integrals) and other programs with its protocol"
DESCRIPTION = "Connect to a program with i-PI's socket protocol and compute energies and forces for it."
EPILOG = """\
examples:
  i-pi input.xml &  equibayes serve water.posterior water.xyz --unix water
  equibayes serve water.posterior water.xyz --host node7 --port 31415

Start one process per processor or GPU: i-PI distributes the beads among them.  They end when i-PI does.

START.xyz gives the elements, in the order of the atoms in i-PI, and the periodic directions; positions and cell come
from i-PI.  Uncertainties are sent as i-PI's extras, a JSON text with energy_std, energy_epistemic (eV), pressure_std
(eV/Å³), max_devi_f, avg_devi_f, min_devi_f, and devi_f of each atom (eV/Å).  To write them to a file, add to
input.xml:

  <trajectory filename='sigma' stride='10' extra_type='max_devi_f'> extras </trajectory>
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("posterior", metavar="OUT.posterior", help="posterior file")
    parser.add_argument("start", metavar="START.xyz", help="file, file@5:6 or bundled:NAME; its first frame is used")
    where = parser.add_argument_group("where the other program listens")
    where.add_argument("--unix", metavar="NAME", help="Unix socket: the address in i-PI's input, or a path")
    where.add_argument("--host", default="localhost", metavar="HOST", help="default localhost")
    where.add_argument("--port", type=int, metavar="N", help="default 31415")
    add_number(where, "--wait", 60.0, "s", "seconds to wait for the other program")
    add_deviation_option(parser)
    add_potential_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from equibayes.simulate.calculator import SKIN
    from equibayes.simulate.evaluator import Evaluator
    from equibayes.simulate.ipi import Client, connect
    from equibayes.simulate.start import start_structure

    if arguments.unix is not None and arguments.port is not None:
        raise InputError("--unix and --port exclude each other; give the one in the input of the other program")
    posterior = load(arguments.posterior)
    if arguments.k is not None:
        posterior = posterior.subset(arguments.k)
    start = start_structure(arguments.start, posterior)
    evaluator = Evaluator(posterior, chosen_device(arguments), arguments.dtype, SKIN)
    client = Client(evaluator, start, arguments.deviation)
    line = connect(arguments.host, arguments.port, arguments.unix, arguments.wait)
    print("connected", flush=True)
    count, largest, began = 0, 0.0, time.monotonic()
    reported = began
    for deviation in client.serve(line):
        count, largest = count + 1, max(largest, deviation.largest)
        if time.monotonic() - reported >= 10:
            reported = time.monotonic()
            pace = count / (reported - began)
            print(
                f"{counted(count, 'evaluation')}, {pace:.1f} per second; largest σ now {1e3 * deviation.largest:.1f} meV/Å",
                flush=True,
            )
    print(f"the other program has ended; {counted(count, 'evaluation')}, largest σ {1e3 * largest:.1f} meV/Å")
    return 0
