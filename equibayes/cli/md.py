"""`equibayes md OUT.posterior START.xyz -o TRAJ.xyz`: molecular dynamics that watches its own uncertainty."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equibayes.cli.device import add_device_options, chosen_device
from equibayes.data import read
from equibayes.errors import InputError
from equibayes.posterior.file import load

if TYPE_CHECKING:
    from equibayes.simulate.md import MdResult, Watch

_EPILOG = """\
examples:
  equibayes md ethanol.posterior bundled:ethanol@0:1 -o traj.xyz --steps 2000 --temperature 300
  equibayes md out.posterior start.xyz -o hot.xyz --steps 20000 --temperature 600 --trust-lo 3x --trust-hi 10x --on-uncertain write
  equibayes md out.posterior start.xyz -o hot.xyz --steps 40000 … --resume       continue after a kill, bit for bit, or go on longer

The deviation of an atom is the root mean square of its three force σ.  Between the trust levels a frame is a candidate for a label;
beyond the upper one it has exploded and is never kept.  A σ that is not a finite number means that the model does not know.

Beside TRAJ.xyz a folder TRAJ-md holds md.log (max_devi_f, avg_devi_f, min_devi_f …), md.svg, candidates.xyz and the state for --resume.
"""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "md",
        help="molecular dynamics that watches its own uncertainty",
        description="Molecular dynamics with ASE's integrators; the uncertainty of the forces is looked at in every step.",
        epilog=_EPILOG,
    )
    parser.add_argument("posterior", metavar="OUT.posterior", help="posterior file")
    parser.add_argument("start", metavar="START.xyz", help="file, file@5:6 or bundled:NAME; the first frame of it")
    parser.add_argument("-o", "--output", required=True, metavar="TRAJ.xyz", help="trajectory to write (extended xyz)")
    parser.add_argument("--steps", type=int, required=True, metavar="N", help="steps in all")
    parser.add_argument(
        "--temperature", type=float, required=True, metavar="K", help="of the first velocities and of the thermostat"
    )
    parser.add_argument(
        "--ensemble",
        choices=["nve", "langevin", "bussi", "npt"],
        default="bussi",
        help="default bussi: stochastic velocity rescaling",
    )
    parser.add_argument("--timestep", type=float, default=0.5, metavar="fs", help="default 0.5 fs")
    parser.add_argument(
        "--tau", type=float, default=100.0, metavar="fs", help="time constant of the thermostat (default 100 fs)"
    )
    parser.add_argument("--pressure", type=float, default=0.0, metavar="GPa", help="for npt (default 0)")
    parser.add_argument(
        "--pressure-tau", type=float, default=1000.0, metavar="fs", help="of the barostat (default 1000 fs)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of velocities and thermostat (default 0)")
    _add_watch_options(parser)
    parser.add_argument("--k", type=int, metavar="k", help="use the first k samples (default: all)")
    parser.add_argument("--dtype", choices=["float32", "float64"], help="default: that of the network")
    parser.add_argument(
        "--resume", action="store_true", help="continue an interrupted run, or one that shall be longer"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing trajectory")
    add_device_options(parser)
    parser.set_defaults(run=run)


def _add_watch_options(parser: argparse.ArgumentParser) -> None:
    watch = parser.add_argument_group("uncertainty")
    watch.add_argument(
        "--trust-lo",
        metavar="x",
        help="lower trust level: eV/Å, or 3x for three times the force error on held-back frames",
    )
    watch.add_argument("--trust-hi", metavar="y", help="upper trust level, likewise")
    watch.add_argument(
        "--on-uncertain",
        choices=["log", "write", "stop"],
        default="log",
        help="log: only say so (default); write: keep candidates, end beyond the upper level; stop: end at the first",
    )
    watch.add_argument(
        "--deviation", choices=["total", "epistemic"], default="total", help="which σ to look at (default total)"
    )
    watch.add_argument(
        "--every", type=int, default=10, metavar="n", help="steps between frames and log lines (default 10)"
    )
    watch.add_argument(
        "--save-every", type=int, default=100, metavar="n", help="steps between states for --resume (default 100)"
    )
    watch.add_argument(
        "--candidate-gap", type=int, default=10, metavar="n", help="at most one candidate in so many steps (default 10)"
    )


def run(arguments: argparse.Namespace) -> int:
    from equibayes.sampling.chain import Interrupted
    from equibayes.simulate.calculator import Calculator
    from equibayes.simulate.display import choose_display
    from equibayes.simulate.integrators import Conditions
    from equibayes.simulate.md import Watch, check_output, run_md
    from equibayes.simulate.trust import Trust, trust_level

    check_output(arguments.output, resume=arguments.resume, overwrite=arguments.overwrite)
    names = ("ensemble", "temperature", "timestep", "tau", "pressure", "pressure_tau", "seed")
    conditions = Conditions(**{name: getattr(arguments, name) for name in names})
    device = chosen_device(arguments)
    posterior = load(arguments.posterior)
    levels = [trust_level(getattr(arguments, f"trust_{end}"), posterior, f"--trust-{end}") for end in ("lo", "hi")]
    watched = ("on_uncertain", "deviation", "every", "save_every", "candidate_gap")
    watch = Watch(Trust(*levels), **{name: getattr(arguments, name) for name in watched})
    frames = read(arguments.start, require_labels=False)
    if not len(frames):
        raise InputError(f"{arguments.start}: holds no structure to start from")
    calculator = Calculator(posterior, device=device, dtype=arguments.dtype, k=arguments.k)
    try:
        result = run_md(
            calculator,
            frames[0].to_atoms(),
            conditions,
            arguments.steps,
            arguments.output,
            watch=watch,
            resume=arguments.resume,
            overwrite=arguments.overwrite,
            display=choose_display(),
        )
    except Interrupted as stop:
        print(f"stopped at step {stop.step}; continue with the same command and --resume", flush=True)
        return 128 + stop.signal
    print("\n".join(summary_lines(result, watch, arguments)))
    return 0


def summary_lines(result: "MdResult", watch: "Watch", arguments: argparse.Namespace) -> list[str]:
    """What happened, for people."""
    from equibayes.simulate.md import folder_of

    statistics, atoms = result.statistics, len(result.atoms)
    time = result.step * arguments.timestep / 1e3
    pace = result.steps_done / result.seconds if result.seconds > 0 else float("nan")
    lines = [
        f"steps        {result.step} of {arguments.steps} ({time:g} ps) with {atoms} atoms; {pace:.1f} steps a second",
        f"temperature  {statistics.mean_temperature:.1f} ± {statistics.temperature_spread:.1f} K (mean and spread over all steps)",
    ]
    if statistics.first_energy is not None:
        lines.append(f"drift        {statistics.drift(atoms):+.3g} meV/atom/ps of the conserved energy")
    element = result.atoms.symbols[statistics.largest_atom]
    lines.append(
        f"largest σ    {1e3 * statistics.largest:.1f} meV/Å, in step {statistics.largest_step}, "
        f"atom {statistics.largest_atom} ({element}, counted from 0)"
    )
    if watch.trust != type(watch.trust)() or statistics.states["unknown"]:
        shares = ", ".join(f"{100 * statistics.fraction(state):.1f} % {state}" for state in statistics.states)
        lines.append(f"frames       {shares}; {result.candidates} candidates written")
    if result.ended:
        lines.append(f"ended early  {result.ended}")
    lines.append(
        f"trajectory in {Path(arguments.output).name}; log, plot and state in {folder_of(arguments.output).name}"
    )
    return lines
