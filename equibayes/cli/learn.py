"""`equibayes learn POOL -o FOLDER`: active learning with a labeller."""

import argparse
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equibayes.cli.cluster import add_cluster_options, chosen_cluster
from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.parser import add_number, add_reading_options
from equibayes.cli.settings import SAMPLING, add_sampling_options, around, given, with_enough_samples
from equibayes.config import merge, parse_overrides, read_yaml
from equibayes.data import Dataset, read
from equibayes.errors import InputError, one_line
from equibayes.files import SAME_COMMAND, remedy
from equibayes.labelling.engines import runs_code
from equibayes.plural import counted
from equibayes.run import Run
from equibayes.run.cluster.connect import connected
from equibayes.run.settings import READING

if TYPE_CHECKING:
    from equibayes.labelling.labellers import LabelSource
    from equibayes.learning.settings import LearnConfig
    from equibayes.learning.study import Inputs

HELP = "active learning: label what the model does not know"
DESCRIPTION = "Active learning: propose structures, select the most informative, label them, sample again."
EPILOG = """\
examples:
  equibayes learn bundled:ethanol@train -o study --test bundled:ethanol@test --rounds 5 --per-round 10
  equibayes learn bundled:ethanol@train -o control --test bundled:ethanol@test --select random --rounds 5 --per-round 10
  equibayes learn pool.xyz -o study --start labelled.xyz --labeller gfn2-xtb --budget 200 --trust-lo 0.05 --trust-hi 1
  equibayes learn start.xyz -o study --propose md --labeller gfn2-xtb md.temperature=500
  equibayes learn pool.xyz -o study --labeller pbe/def2-svp --cluster auto --label-workers 16    on a Ray cluster
  equibayes learn pool.xyz -o study --labeller gfn2-xtb --from 7net-0        from a pretrained network
  equibayes learn study.yaml                 all settings from a file; equibayes template learn prints one

Each round has a folder in FOLDER with its choice and the reasons, labels, data and posterior; learning.csv and
learning.svg show error and σ against the number of labels.  The same command continues an interrupted study; with
more --rounds or --budget it extends a finished one.  With --resume it stops if FOLDER contains no study, instead of
beginning one.  Structures that are labelled, that have exploded or whose atoms are too close are never sent to the
labeller.
"""
_OPTIONS = ("output", "start", "start_labels", "test", "propose", "labeller")
_LIMITS = ("rounds", "per_round", "budget", "target_sigma")
_SELECTION = ("kind", "mode", "trust_lo", "trust_hi")
_ALIASES = {"xtb": "gfn2-xtb"}


def add_options(parser: argparse.ArgumentParser) -> None:
    words = "files with structures to select from (or to start dynamics from), and settings; the last one counts"
    parser.add_argument("settings", nargs="*", metavar="POOL | CONFIG.yaml | section.key=value", help=words)
    parser.add_argument("-o", "--output", metavar="FOLDER", help="folder for the rounds")
    parser.add_argument("--start", metavar="DATA", help="initial labelled structures (default: random ones of POOL)")
    parser.add_argument("--start-labels", type=int, metavar="N", help="initial labels from POOL (default 20)")
    parser.add_argument("--test", metavar="DATA", help="labelled structures to measure errors on")
    parser.add_argument("--propose", choices=["pool", "md"], help="source of structures (default pool)")
    parser.add_argument(
        "--labeller", metavar="NAME", help="pool (default: the labels of POOL), xtb, gfn2-xtb, pbe/def2-svp …"
    )
    allow = "accept an engine from CONFIG.yaml that runs programs: module:Class, or a calculator of ASE such as orca"
    parser.add_argument("--allow-code", action="store_true", help=allow)
    _add_selection_options(parser)
    add_sampling_options(parser)
    resume = "stop if FOLDER contains no study (without it: continue the study in FOLDER, or begin one)"
    parser.add_argument("--resume", action="store_true", help=resume)
    parser.add_argument(
        "--beside", action="append", default=[], metavar="FOLDER", help="show another study in the figure"
    )
    add_device_options(parser)
    add_cluster_options(parser)
    _add_parallel_options(parser)
    add_reading_options(parser)


def _add_selection_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("selection and limits")
    kinds = (
        "sigma: largest σ; bald: most information (default); stress: largest σ of the stress; diversity: far from all "
    )
    kinds += "labelled; novelty: furthest from what was learned; random: a control"
    group.add_argument("--select", dest="kind", metavar="KIND", help=kinds)
    group.add_argument(
        "--mode", metavar="MODE", help="batch: do not count the same information twice (default); structure"
    )
    group.add_argument("--trust-lo", metavar="x", help="σ per atom below which a structure is known: eV/Å, or 3x")
    group.add_argument("--trust-hi", metavar="y", help="σ above which it has exploded and is never sent, likewise")
    group.add_argument("--per-round", type=int, metavar="N", help="labels per round (default 10)")
    group.add_argument("--rounds", type=int, metavar="N", help="largest number of rounds after the first (default 10)")
    group.add_argument("--budget", type=int, metavar="N", help="total number of labels")
    group.add_argument(
        "--target-sigma", type=float, metavar="x", help="stop when σ (RMS) of unlabelled structures is below this, eV/Å"
    )


def _add_parallel_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("many labels at once, with --cluster")
    group.add_argument(
        "--label-workers", type=int, metavar="n", help="structures at a time (default: the cores of the cluster)"
    )
    add_number(group, "--label-retries", 1, "n", "how often a failed label is tried again")
    late = "a label that takes longer than x times the median is left for a later round"
    add_number(group, "--label-patience", 3.0, "x", late)


def run(arguments: argparse.Namespace) -> int:
    from equibayes.learning.curve import LEGEND, curve_table, rows_of, write_curve
    from equibayes.learning.learn import Learner
    from equibayes.learning.study import study_file
    from equibayes.run.interrupt import Interrupted
    from equibayes.run.progress import choose_display

    config = study_config(arguments)
    if config.output is None:
        raise InputError("no folder for the rounds: name one with -o")
    if Path(config.output).is_file():
        raise InputError(f"{config.output}: is a file; name a folder with -o")
    if arguments.resume and not study_file(config.output).exists():
        raise InputError(
            f"{config.output}: contains no study to resume; leave --resume out to begin one, or correct -o"
        )
    cluster = chosen_cluster(arguments)
    where = Run(device=chosen_device(arguments), display=choose_display(), cluster=cluster)
    say = partial(print, flush=True)
    inputs = read_inputs(config, config.sample.data.reading())
    with remedy(SAME_COMMAND), nullcontext() if cluster is None else connected(cluster.address) as ray:
        labeller = make_labeller(config, inputs.pool, arguments, ray)
        try:
            reason = Learner(config, inputs, labeller, config.output, run=where, say=say).run()
        except Interrupted:
            print("stopped; continue with the same command", flush=True)
            return 130
        finally:
            labeller.close()
    write_curve(config.output, {Path(other).name: other for other in arguments.beside}, config.select.kind)
    print(f"\n{curve_table(rows_of(config.output), f'{config.output}: select {config.select.kind}')}\n{LEGEND}")
    print(f"ended: {reason}; table and figure in learning.csv and learning.svg")
    return 0


def study_config(arguments: argparse.Namespace) -> "LearnConfig":
    """Preset ← YAML files and overrides, in the given order ← pool files and options."""
    from equibayes.learning.settings import learn_config

    layers, pool, files = [], [], []
    for word in arguments.settings:
        if "=" in word and not Path(word).exists():
            layers.append(parse_overrides([word]))
        elif word.lower().endswith((".yaml", ".yml")):
            layers.append(read_yaml(word))
            files.append((word, len(layers) - 1))
        else:
            pool.append(word)
    reading = given(arguments, READING)
    sampling = given(arguments, SAMPLING) | ({"data": reading} if reading else {})
    parts = {"select": given(arguments, _SELECTION), "sample": sampling, "pool": pool}
    centre = around(arguments)
    values = merge(
        {"sample": centre} if centre else {},
        *layers,
        given(arguments, (*_OPTIONS, *_LIMITS)),
        {name: part for name, part in parts.items() if part},
    )
    if values.get("labeller") in tuple(_ALIASES):  # a tuple: from a file it may be a list
        values["labeller"] = _ALIASES[values["labeller"]]
    if "sample" in values:
        values["sample"] = with_enough_samples(values["sample"], arguments)
    config = learn_config(arguments.preset, arguments.network, values)
    if not arguments.allow_code and config.labeller != "pool" and runs_code(config.labeller):
        own = arguments.labeller is not None
        for file, place in files:
            _refuse_code(file, layers[place], config.labeller, own or any("labeller" in n for n in layers[place + 1 :]))
    return config


def _refuse_code(file: str, values: dict[str, Any], engine: str, chosen_later: bool) -> None:
    """An `InputError` where a file names an engine that runs programs, or the settings of one.

    chosen_later: the engine itself is named by the user, or by a later file
    """
    for name in ("labeller_settings",) if chosen_later else ("labeller", "labeller_settings"):
        if name in values:
            raise InputError(
                f"{file}: {name} for the engine {one_line(engine, 60)} can make this machine run any program; if you "
                "trust the file add --allow-code, or give --labeller and its settings yourself"
            )


def read_inputs(config: "LearnConfig", options: dict[str, Any]) -> "Inputs":
    """Read the files named in the settings; test frames that are also in the pool are never labelled."""
    from equibayes.learning.study import Inputs

    if not config.pool:
        raise InputError("no structures to select from: name a file with them; see equibayes learn --help")
    pool = Dataset.concatenate([read(name, require_labels=False, **options) for name in config.pool])
    start = None if config.start is None else read(config.start, **options)
    test = None if config.test is None else read(config.test, require_labels=False, **options)
    print(f"{counted(len(pool), 'structure')} in {pool.name}", flush=True)
    return Inputs(pool, start, test)


def make_labeller(config: "LearnConfig", pool: Dataset, arguments: argparse.Namespace, ray: Any) -> "LabelSource":
    """ray: None to label one structure at a time in this process."""
    from equibayes.labelling.labellers import Labeller
    from equibayes.labelling.parallel_labeller import ParallelLabeller
    from equibayes.labelling.pool_labeller import PoolLabeller

    if config.labeller == "pool":
        return PoolLabeller(pool)
    engine, settings, seconds = config.labeller, config.labeller_settings, config.label_seconds
    if ray is None:
        return Labeller(engine, settings, time_limit_s=seconds)
    at_once, retries, patience = arguments.label_workers, arguments.label_retries, arguments.label_patience
    limits = {"time_limit_s": seconds, "at_once": at_once, "retries": retries, "patience": patience}
    return ParallelLabeller(ray, engine, settings, **limits)
