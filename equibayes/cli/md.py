"""`equibayes md OUT.posterior START.xyz -o TRAJ.xyz`: molecular dynamics that watches its own uncertainty."""

import argparse
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.parser import add_reading_options, reading_options
from equibayes.config import parse_overrides
from equibayes.data import read
from equibayes.data.graph import check_species
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load

if TYPE_CHECKING:
    from equibayes.learning.on_the_fly import KeepLabels
    from equibayes.simulate.calculator import Calculator
    from equibayes.simulate.md import MdResult, Watch

ON_UNCERTAIN = ("log", "write", "stop", "label", "learn")

_EPILOG = """\
examples:
  equibayes md ethanol.posterior bundled:ethanol@0:1 -o traj.xyz --steps 2000 --temperature 300
  equibayes md out.posterior start.xyz -o hot.xyz --steps 20000 --temperature 600 --trust-lo 3x --trust-hi 10x --on-uncertain write
  equibayes md out.posterior start.xyz -o hot.xyz --steps 40000 … --resume       continue after a kill, bit for bit, or go on longer
  equibayes md out.posterior start.xyz -o fly.xyz --steps 20000 --temperature 300 --trust-lo 3x --on-uncertain learn \\
      --labeller gfn2-xtb --data train.xyz               on the fly: label what is not known, learn it at once, go on
  equibayes md out.posterior start.xyz -o obs.xyz --steps 20000 --temperature 300 --observe "distance 0 1" --observe "rdf O H"

The deviation of an atom is the root mean square of its three force σ.  Between the trust levels a frame is a candidate for a label;
beyond the upper one it has exploded and is never kept.  A σ that is not a finite number means that the model does not know.

Beside TRAJ.xyz a folder TRAJ-md holds md.log (max_devi_f, avg_devi_f, min_devi_f …), md.svg, candidates.xyz, summary.json and the state
for --resume; with a labeller also labels.xyz, asked.json and a folder for every label.
Settings of engine and sampler are words: label_seconds=60 labeller_settings.charge=1 resample.burn_in=0.1 sample.burn_in.steps=2000.
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
    parser.add_argument(
        "settings", nargs="*", default=[], metavar="section.key=value", help="settings of labeller and sampler"
    )
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
    add_reading_options(parser)
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
        choices=list(ON_UNCERTAIN),
        default="log",
        help="log: only say so (default); write: keep candidates, end beyond the upper level; stop: end at the first; "
        "label: as write, and call the labeller; learn: also learn from the label before going on",
    )
    watch.add_argument("--labeller", metavar="NAME", help="for label and learn: gfn2-xtb, pbe/def2-svp … any engine")
    watch.add_argument(
        "--data",
        metavar="DATA",
        help="for learn: the data that the posterior was sampled from; labels and units below are then its, else those of START.xyz",
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
    observe = parser.add_argument_group("observables")
    observe.add_argument(
        "--observe",
        action="append",
        default=[],
        metavar="WHAT",
        help='"distance 0 1" (atoms counted from 0), "rdf O H" or "energy", with its uncertainty over the samples; again for more. '
        "All but the energy need one more simulation for each sample",
    )
    observe.add_argument(
        "--discard",
        type=int,
        default=0,
        metavar="n",
        help="steps at the beginning that observables leave out (default 0)",
    )


def run(arguments: argparse.Namespace) -> int:
    from equibayes.run.interrupt import Interrupted
    from equibayes.simulate.display import choose_display
    from equibayes.simulate.integrators import Conditions
    from equibayes.simulate.md import Watch, check_output, run_md
    from equibayes.simulate.observe import observe, parse
    from equibayes.simulate.summary import write_summary
    from equibayes.simulate.trust import Trust, trust_level

    check_output(arguments.output, resume=arguments.resume, overwrite=arguments.overwrite)
    names = ("ensemble", "temperature", "timestep", "tau", "pressure", "pressure_tau", "seed")
    conditions = Conditions(**{name: getattr(arguments, name) for name in names})
    device = chosen_device(arguments)
    posterior = load(arguments.posterior)
    levels = [trust_level(getattr(arguments, f"trust_{end}"), posterior, f"--trust-{end}") for end in ("lo", "hi")]
    asks = arguments.on_uncertain in ("label", "learn")
    watched = {name: getattr(arguments, name) for name in ("deviation", "every", "save_every", "candidate_gap")}
    watch = Watch(Trust(*levels), "label" if asks else arguments.on_uncertain, **watched)
    frames = read(arguments.start, require_labels=False, **({} if arguments.data else reading_options(arguments)))
    if not len(frames):
        raise InputError(f"{arguments.start}: holds no structure to start from")
    check_species(frames[0], posterior.species_of)
    start = frames[0].to_atoms()
    observables = parse(arguments.observe, start)
    calculator = _calculator(posterior, arguments, device)
    teacher = _teacher(arguments, posterior, device)
    options: dict[str, Any] = {"resume": arguments.resume, "overwrite": arguments.overwrite}
    try:
        result = run_md(
            calculator,
            start,
            conditions,
            arguments.steps,
            arguments.output,
            watch=watch,
            display=choose_display(),
            teacher=teacher,
            **options,
        )
        summary = _numbers(result, arguments, teacher)
        if observables and result.ended is None:
            last = calculator.posterior if teacher is None else getattr(teacher, "posterior", calculator.posterior)
            summary["observables"] = observe(
                observables,
                _calculator(last, arguments, device, members=True),
                start,
                conditions,
                result.step,
                arguments.output,
                every=arguments.every,
                discard=arguments.discard,
                display=choose_display,
            )
    except Interrupted as stop:
        print(f"stopped at step {stop.step}; continue with the same command and --resume", flush=True)
        return 128 + stop.signal
    finally:
        if teacher is not None:
            teacher.labeller.close()
    write_summary(arguments.output, summary)
    print("\n".join(summary_lines(result, watch, arguments, summary)))
    return 1 if result.exploded else 0


def _calculator(
    posterior: Posterior, arguments: argparse.Namespace, device: str, members: bool = False
) -> "Calculator":
    from equibayes.simulate.calculator import Calculator

    k = None if arguments.k is None or arguments.k == len(posterior) else arguments.k
    return Calculator(posterior, device=device, dtype=arguments.dtype, k=k, members=members)


def _teacher(arguments: argparse.Namespace, posterior: Posterior, device: str) -> "KeepLabels | None":
    """Who is asked about candidates, if anybody is."""
    if arguments.on_uncertain not in ("label", "learn"):
        if arguments.labeller or arguments.data or arguments.settings:
            word = "--labeller" if arguments.labeller else "--data" if arguments.data else arguments.settings[0]
            raise InputError(f"{word}: is for --on-uncertain label or learn alone; add it, or leave {word} out")
        return None
    from equibayes.labelling.labellers import Labeller
    from equibayes.learning.on_the_fly import FlySettings, KeepLabels, LearnAtOnce, training_frames

    if arguments.labeller is None:
        raise InputError(
            f"--on-uncertain {arguments.on_uncertain}: needs somebody to ask; name an engine with --labeller"
        )
    learns = arguments.on_uncertain == "learn"
    if learns == (arguments.data is None):
        remedy = "name what the posterior was sampled from with --data" if learns else "leave --data out"
        raise InputError(f"--on-uncertain {arguments.on_uncertain}: {remedy}")
    for word in arguments.settings:
        if "=" not in word:
            raise InputError(f"{word}: not a setting; those are words such as label_seconds=60")
    settings = FlySettings.of(posterior, parse_overrides(arguments.settings))
    data = training_frames(posterior, read(arguments.data, **reading_options(arguments))) if learns else None
    labeller = Labeller(arguments.labeller, settings.labeller_settings, time_limit_s=settings.label_seconds)
    if data is None:
        return KeepLabels(labeller, arguments.labeller)
    return LearnAtOnce(
        labeller,
        posterior,
        data,
        settings.sample,
        settings.resample,
        name=arguments.labeller,
        device=device,
        calculator=lambda better: _calculator(better, arguments, device),
    )


def _numbers(result: "MdResult", arguments: argparse.Namespace, teacher: "KeepLabels | None") -> dict[str, Any]:
    """The summary for programs."""
    from equibayes.simulate.trust import STATES

    statistics, atoms = result.statistics, len(result.atoms)
    found: dict[str, Any] = {
        "steps": result.step,
        "picoseconds": result.step * arguments.timestep / 1e3,
        "atoms": atoms,
        "temperature_mean": statistics.mean_temperature,
        "temperature_spread": statistics.temperature_spread,
        "drift_meV_per_atom_and_ps": statistics.drift(atoms),
        "largest_sigma_eV_per_A": statistics.largest,
        "largest_sigma_step": statistics.largest_step,
        "largest_sigma_atom": statistics.largest_atom,
        "share_of_frames": {state: statistics.fraction(state) for state in STATES},
        "candidates": result.candidates,
        "ended": result.ended,
    }
    if teacher is not None:
        found["labels"] = {
            "asked": result.asked,
            "share_of_steps": result.asked / max(1, result.step),
            "refused": teacher.refused,
            "learned": len(teacher.labels) if arguments.on_uncertain == "learn" else 0,
        }
        newest = getattr(teacher, "newest", None)
        found["labels"]["posterior"] = None if newest is None else f"{newest.parent.name}/{newest.name}"
    return found


def summary_lines(
    result: "MdResult", watch: "Watch", arguments: argparse.Namespace, summary: dict[str, Any]
) -> list[str]:
    """What happened, for people."""
    from equibayes.simulate.md import folder_of
    from equibayes.simulate.trust import STATES

    statistics, atoms = result.statistics, len(result.atoms)
    time = result.step * arguments.timestep / 1e3
    pace = result.steps_done / result.seconds if result.seconds > 0 else float("nan")
    lines = [
        f"steps        {result.step} of {arguments.steps} ({time:g} ps) with {atoms} atoms; {pace:.1f} steps a second",
        f"temperature  {statistics.mean_temperature:.1f} ± {statistics.temperature_spread:.1f} K (mean and spread over all steps)",
    ]
    if statistics.first_energy is not None and isfinite(statistics.drift(atoms)):
        lines.append(f"drift        {statistics.drift(atoms):+.3g} meV/atom/ps of the conserved energy")
    element = result.atoms.symbols[statistics.largest_atom]
    lines.append(
        f"largest σ    {1e3 * statistics.largest:.1f} meV/Å, in step {statistics.largest_step}, "
        f"atom {statistics.largest_atom} ({element}, counted from 0)"
    )
    if watch.trust != type(watch.trust)() or statistics.states["unknown"]:
        shares = ", ".join(f"{100 * statistics.fraction(state):.1f} % {state}" for state in STATES)
        lines.append(f"frames       {shares}; {result.candidates} candidates written")
    if labels := summary.get("labels"):
        share = f"{100 * labels['share_of_steps']:.2f} % of the steps called the labeller"
        lines.append(f"labels       {labels['asked']} asked: {share}; {labels['refused']} refused")
        if labels["posterior"]:
            lines.append(f"learned      from {labels['learned']} labels; the posterior now: {labels['posterior']}")
    for name, found in summary.get("observables", {}).items():
        lines.append(f"{name:12} {found['words']}")
    if result.ended:
        lines.append(f"ended early  {result.ended}")
    lines.append(
        f"trajectory in {Path(arguments.output).name}; log, plot and state in {folder_of(arguments.output).name}"
    )
    return lines
