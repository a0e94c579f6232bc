"""`equibayes export OUT.posterior -o MODEL.pt`: a posterior in the format of other programs."""

import argparse
from pathlib import Path

from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.outputs import check_output
from equibayes.files import check_target
from equibayes.plural import counted
from equibayes.posterior.file import load

HELP = "write a posterior as a metatomic model"
DESCRIPTION = (
    "Write a posterior as a metatomic model: one file for LAMMPS, i-PI, ASE, torch-sim, GROMACS, chemiscope and other "
    "programs that run such models.  Needs: pip install 'equibayes[metatomic]'"
)
EPILOG = """\
examples:
  equibayes export water.posterior -o water.pt
  equibayes export water.posterior -o water.pt --k 4 --device cuda

Outputs of the model, in eV: energy (the mean), energy_ensemble (of every sample), energy_uncertainty (σ of the energy,
calibrated if the posterior is).  Forces and stress are derivatives, which the other program computes; the σ of forces
is the spread of the derivatives of energy_ensemble.

The model computes energies with the reference network in PyTorch.  It runs on the kind of device that it was exported
on.  The commands of equibayes itself (md, lammps, serve) use the faster engines.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("posterior", metavar="OUT.posterior", help="posterior file")
    parser.add_argument("-o", "--output", required=True, metavar="MODEL.pt", help="file to write")
    parser.add_argument("--format", choices=["metatomic"], default="metatomic", help="default metatomic")
    parser.add_argument("--k", type=int, metavar="k", help="use the first k samples (default: all)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    add_device_options(parser)


def run(arguments: argparse.Namespace) -> int:
    check_output("output", arguments.output, ".pt")
    check_target(Path(arguments.output), overwrite=arguments.overwrite)
    from equibayes.adapters.metatomic import export

    posterior = load(arguments.posterior)
    if arguments.k is not None:
        posterior = posterior.subset(arguments.k)
    export(posterior, arguments.output, device=chosen_device(arguments), name=Path(arguments.posterior).stem)
    print(f"{arguments.output}: metatomic model with {counted(len(posterior), 'sample')}")
    return 0
