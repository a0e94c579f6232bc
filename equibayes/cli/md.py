"""`equibayes md OUT.posterior START.xyz -o TRAJ.xyz`: molecular dynamics with uncertainties."""

import argparse
from typing import TYPE_CHECKING, Any

from equibayes.cli.device import chosen_device
from equibayes.cli.outputs import check_output
from equibayes.cli.parser import add_chemiscope_option, add_number, add_reading_options, reading_options
from equibayes.cli.potential import (
    add_deviation_option,
    add_novelty_options,
    add_potential_options,
    add_trust_options,
    novelty_levels,
)
from equibayes.cli.settings import given
from equibayes.config import parse_overrides
from equibayes.data import read
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load

if TYPE_CHECKING:
    from ase import Atoms

    from equibayes.learning.label_candidates import LabelCandidates
    from equibayes.simulate.calculator import Calculator
    from equibayes.simulate.integrators import Conditions

ON_UNCERTAIN = ("log", "write", "stop", "label", "learn")

HELP = "molecular dynamics with uncertainties"
DESCRIPTION = "Molecular dynamics with ASE's integrators, with the uncertainty of the forces at every step."
EPILOG = """\
examples:
  equibayes md ethanol.posterior bundled:ethanol@0:1 -o traj.xyz --steps 2000 --temperature 300
  equibayes md out.posterior start.xyz -o hot.xyz --steps 20000 --temperature 600 --trust-lo 3x --trust-hi 10x \\
      --on-uncertain write
  equibayes md out.posterior start.xyz -o hot.xyz --steps 40000 … --resume      continue or extend a run, bit for bit
  equibayes md out.posterior start.xyz -o fly.xyz --steps 20000 --temperature 300 --trust-lo 3x --on-uncertain learn \\
      --labeller gfn2-xtb --data train.xyz               learn on the fly: label uncertain frames and continue
  equibayes md out.posterior start.xyz -o obs.xyz --steps 20000 --temperature 300 \\
      --observe "distance 0 1" --observe "rdf O H"
  equibayes md out.posterior start.xyz -o far.xyz --steps 20000 --temperature 600 --bias 4 --trust-lo 3x \\
      --on-uncertain write                               dynamics that seeks uncertain structures

The deviation of an atom is the root mean square of its three force σ.  Between the trust levels a frame is a
candidate for labelling; above the upper level it has exploded and is never kept.  The novelty of an atom tells how far
its environment is from all that was learned; beyond 1 a frame is a candidate whatever σ is, and beyond 3, or where a σ
is not finite, the model does not know.

The folder TRAJ-md beside TRAJ.xyz contains md.log (max_devi_f, avg_devi_f, min_devi_f …), md.svg, candidates.xyz,
summary.json and the state for --resume; with a labeller also labels.xyz, asked.json and a folder for every label.
Settings of engine and sampler: label_seconds=60 labeller_settings.charge=1 resample.burn_in=0.1
sample.burn_in.steps=2000.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("posterior", metavar="OUT.posterior", help="posterior file")
    parser.add_argument(
        "start",
        metavar="START.xyz",
        help="xyz, POSCAR, CIF or another file that ASE reads, file@5:6 or bundled:NAME; its first frame is used, with "
        "its constraints, masses and velocities",
    )
    parser.add_argument(
        "settings", nargs="*", default=[], metavar="section.key=value", help="settings of labeller and sampler"
    )
    parser.add_argument("-o", "--output", required=True, metavar="TRAJ.xyz", help="trajectory to write (extended xyz)")
    parser.add_argument("--steps", type=int, required=True, metavar="N", help="total number of steps")
    heat = "of the thermostat, and of the initial velocities unless START has some"
    parser.add_argument("--temperature", type=float, required=True, metavar="K", help=heat)
    fresh = "draw initial velocities at --temperature even if START has some"
    parser.add_argument("--fresh-velocities", action="store_true", help=fresh)
    parser.add_argument(
        "--ensemble",
        choices=["nve", "langevin", "bussi", "npt", "npt-anisotropic"],
        default="bussi",
        help="default bussi: stochastic velocity rescaling; npt-anisotropic: the cell vectors scale independently",
    )
    add_number(parser, "--timestep", 0.5, "fs", "time step")
    add_number(parser, "--tau", 100.0, "fs", "time constant of the thermostat")
    add_number(parser, "--pressure", 0.0, "GPa", "for npt and npt-anisotropic")
    add_number(parser, "--pressure-tau", 1000.0, "fs", "time constant of the barostat")
    add_number(parser, "--seed", 0, "S", "random seed of velocities and thermostat")
    _add_watch_options(parser)
    add_chemiscope_option(parser)
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run, or extend a finished one")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing trajectory")
    add_potential_options(parser)
    add_reading_options(parser)


def _add_watch_options(parser: argparse.ArgumentParser) -> None:
    watch = parser.add_argument_group("uncertainty")
    add_trust_options(watch)
    add_novelty_options(watch)
    watch.add_argument(
        "--on-uncertain",
        choices=list(ON_UNCERTAIN),
        default="log",
        help="log: only log it (default); write: keep candidates, end above the upper level; stop: end at the first; "
        "label: as write, and call the labeller; learn: also learn from the label before continuing",
    )
    watch.add_argument("--labeller", metavar="NAME", help="for label and learn: an engine, gfn2-xtb, pbe/def2-svp …")
    watch.add_argument(
        "--data",
        metavar="DATA",
        help="for learn: the data that the posterior was sampled from; the options for labels and units below then "
        "refer to DATA, otherwise to START.xyz",
    )
    add_deviation_option(watch)
    bias = "lower the energy by s times its σ over the samples, so that uncertain structures are found sooner (s of 1 to 10)"
    watch.add_argument("--bias", type=float, metavar="s", help=bias)
    add_number(watch, "--every", 10, "n", "steps between frames and log lines")
    add_number(watch, "--save-every", 100, "n", "steps between saved states for --resume")
    add_number(watch, "--candidate-gap", 10, "n", "smallest number of steps between candidates")
    observe = parser.add_argument_group("observables")
    observe.add_argument(
        "--observe",
        action="append",
        default=[],
        metavar="WHAT",
        help='"distance 0 1" (atoms counted from 0), "rdf O H" or "energy", with uncertainties over the samples; '
        "can be repeated.  All but the energy need one more simulation per sample",
    )
    add_number(observe, "--discard", 0, "n", "steps at the start to leave out of observables")
    weights = "from the trajectory alone, by weights of its frames for every sample, instead of further simulations"
    observe.add_argument("--reweight", action="store_true", help=weights)


def run(arguments: argparse.Namespace) -> int:
    from equibayes.adapters.chemiscope import convert
    from equibayes.run.interrupt import Interrupted
    from equibayes.run.progress import choose_display
    from equibayes.simulate import log
    from equibayes.simulate.integrators import Conditions
    from equibayes.simulate.md import run_md
    from equibayes.simulate.observe import observe, parse_observables
    from equibayes.simulate.reporter import check_trajectory
    from equibayes.simulate.start import has_velocities, start_structure
    from equibayes.simulate.summary import summary_lines, summary_of, write_summary
    from equibayes.simulate.trust import Trust
    from equibayes.simulate.watch import Watch

    check_trajectory(arguments.output, resume=arguments.resume, overwrite=arguments.overwrite)
    check_output("chemiscope", arguments.chemiscope, ".json", ".gz")
    names = ("ensemble", "temperature", "timestep", "tau", "pressure", "pressure_tau", "seed")
    conditions = Conditions(**given(arguments, names))
    device = chosen_device(arguments)
    posterior = load(arguments.posterior)
    trust = Trust.of(arguments.trust_lo, arguments.trust_hi, posterior, novelty_levels(arguments))
    if arguments.bias and arguments.on_uncertain == "learn":
        raise InputError(
            "--bias: not with --on-uncertain learn, which changes the potential; label the candidates first"
        )
    asks = arguments.on_uncertain in ("label", "learn")
    options = given(arguments, ("deviation", "every", "save_every", "candidate_gap"))
    watch = Watch(trust, "label" if asks else arguments.on_uncertain, **options)
    reading = {} if arguments.data else reading_options(arguments)
    start = start_structure(arguments.start, posterior, **reading).to_atoms()
    if arguments.fresh_velocities:
        start.set_momenta(0 * start.get_momenta())
    observables = parse_observables(arguments.observe, start)
    calculator = _calculator(posterior, arguments, device)
    oracle = _oracle(arguments, posterior, device)
    if has_velocities(start):
        print(velocity_words(start, conditions, arguments.start), flush=True)
    display = choose_display("dynamics", log.describe_step)
    try:
        result = run_md(
            calculator,
            start,
            conditions,
            arguments.steps,
            arguments.output,
            watch=watch,
            resume=arguments.resume,
            overwrite=arguments.overwrite,
            display=display,
            oracle=oracle,
        )
        summary = summary_of(result, conditions, None if oracle is None else oracle.summary())
        if observables and result.ended is None:
            latest = getattr(oracle, "posterior", calculator.posterior)
            summary["observables"] = observe(
                observables,
                _calculator(latest, arguments, device, members=True),
                start,
                conditions,
                result.step,
                arguments.output,
                every=arguments.every,
                discard=arguments.discard,
                reweight=arguments.reweight,
                display=display,
            )
    except Interrupted as stop:
        print(f"stopped at step {stop.step}; continue with the same command and --resume", flush=True)
        return 128 + stop.signal
    finally:
        if oracle is not None:
            oracle.labeller.close()
    write_summary(arguments.output, summary)
    if arguments.chemiscope is not None:
        convert(arguments.output, arguments.chemiscope)
    print("\n".join(summary_lines(result, trust, arguments.steps, arguments.output, summary)))
    return 1 if result.exploded else 0


def velocity_words(start: "Atoms", conditions: "Conditions", name: str) -> str:
    """Which velocities start the run, and what the temperature is for."""
    target = f"--temperature {conditions.temperature:g} K is the target of the thermostat"
    if conditions.ensemble == "nve":
        target = "nve has no thermostat, so --temperature is not used"
    kelvin = start.get_temperature()
    return f"velocities of {name} start the run ({kelvin:.0f} K); {target} (--fresh-velocities draws others)"


def _calculator(
    posterior: Posterior, arguments: argparse.Namespace, device: str, members: bool = False
) -> "Calculator":
    from equibayes.simulate.bias import BiasedCalculator
    from equibayes.simulate.calculator import Calculator

    k = None if arguments.k is None or arguments.k == len(posterior) else arguments.k
    # the simulation itself judges every frame
    options: dict[str, Any] = {"device": device, "dtype": arguments.dtype, "k": k, "novelty": (None, None)}
    if arguments.bias and not members:
        return BiasedCalculator(posterior, strength=arguments.bias, **options)
    return Calculator(posterior, members=members, **options)


def _oracle(arguments: argparse.Namespace, posterior: Posterior, device: str) -> "LabelCandidates | None":
    """What is asked about candidates, if anything."""
    if arguments.on_uncertain not in ("label", "learn"):
        if arguments.labeller or arguments.data or arguments.settings:
            word = "--labeller" if arguments.labeller else "--data" if arguments.data else arguments.settings[0]
            raise InputError(f"{word}: only used with --on-uncertain label or learn; add it, or leave {word} out")
        return None
    from equibayes.labelling.labellers import Labeller
    from equibayes.learning.label_candidates import LabelCandidates
    from equibayes.learning.on_the_fly import FlySettings, LearnOnTheFly, training_frames

    if arguments.labeller is None:
        raise InputError(f"--on-uncertain {arguments.on_uncertain}: needs a labeller; name an engine with --labeller")
    learns = arguments.on_uncertain == "learn"
    if learns == (arguments.data is None):
        remedy = "name what the posterior was sampled from with --data" if learns else "leave --data out"
        raise InputError(f"--on-uncertain {arguments.on_uncertain}: {remedy}")
    for word in arguments.settings:
        if "=" not in word:
            raise InputError(f"{word}: not a setting; write it as in label_seconds=60")
    settings = FlySettings.of(posterior, parse_overrides(arguments.settings))
    data = training_frames(posterior, read(arguments.data, **reading_options(arguments))) if learns else None
    labeller = Labeller(arguments.labeller, settings.labeller_settings, time_limit_s=settings.label_seconds)
    if data is None:
        return LabelCandidates(labeller, posterior.reference, arguments.labeller)
    return LearnOnTheFly(
        labeller,
        posterior,
        data,
        settings.sample,
        settings.resample,
        name=arguments.labeller,
        device=device,
        calculator=lambda better: _calculator(better, arguments, device),
    )
