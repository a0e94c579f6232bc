"""`equibayes learn POOL -o FOLDER`: label what the model does not know, learn from it, and again."""

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equibayes.cli.cluster import add_cluster_options, chosen_cluster
from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.parser import add_reading_options, reading_options
from equibayes.config import merge, parse_overrides, read_yaml
from equibayes.data import Dataset, read
from equibayes.errors import InputError
from equibayes.run.cluster.connect import connected
from equibayes.run.settings import NETWORKS, PRESETS, sample_config

if TYPE_CHECKING:
    from equibayes.labelling.pool import Labels
    from equibayes.learning.settings import LearnConfig
    from equibayes.learning.study import Inputs

_EPILOG = """\
examples:
  equibayes learn bundled:ethanol@train -o study --test bundled:ethanol@test --rounds 5 --per-round 10
  equibayes learn bundled:ethanol@train -o control --test bundled:ethanol@test --select random --rounds 5 --per-round 10
  equibayes learn pool.xyz -o study --start labelled.xyz --labeller gfn2-xtb --budget 200 --trust-lo 0.05 --trust-hi 1
  equibayes learn start.xyz -o study --propose md --labeller gfn2-xtb md.temperature=500
  equibayes learn pool.xyz -o study --labeller pbe/def2-svp --cluster auto --label-workers 16    chains and labels on a Ray cluster
  equibayes learn study.yaml                              all of it from a file; equibayes template learn prints one

Every round has a folder in FOLDER with its choice and the reasons, labels, data and posterior; learning.csv and learning.svg show error
and σ against the number of labels.  After a kill the same command goes on where it was; with more --rounds or --budget
it goes on longer.
Structures that are labelled, that have exploded or whose atoms are too close are never sent to the labeller.
"""
# options that are settings of the same name; others have a place of their own
_OPTIONS = {
    "output": "output",
    "start": "start",
    "start_labels": "start_labels",
    "test": "test",
    "propose": "propose",
    "labeller": "labeller",
    "rounds": "rounds",
    "per_round": "per_round",
    "budget": "budget",
    "target_sigma": "target_sigma",
    "select": "select.kind",
    "mode": "select.mode",
    "trust_lo": "select.trust_lo",
    "trust_hi": "select.trust_hi",
    "chains": "sample.chains",
    "samples": "sample.samples",
    "seed": "sample.seed",
}
_ALIASES = {"xtb": "gfn2-xtb"}


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "learn",
        help="active learning: label what the model does not know",
        description="Active learning: propose structures, select those worth a label, label them, sample again, until told to stop.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="POOL | CONFIG.yaml | section.key=value",
        help="files with structures to choose from (or to start dynamics from), and settings; later ones win",
    )
    parser.add_argument("-o", "--output", metavar="FOLDER", help="folder for the rounds")
    parser.add_argument("--start", metavar="DATA", help="labelled structures to begin with (default: some of POOL)")
    parser.add_argument("--start-labels", type=int, metavar="N", help="how many of POOL to begin with (default 20)")
    parser.add_argument("--test", metavar="DATA", help="labelled structures to measure errors on")
    parser.add_argument("--propose", choices=["pool", "md"], help="where structures come from (default pool)")
    parser.add_argument(
        "--labeller", metavar="NAME", help="pool (default: labels that POOL has), xtb, gfn2-xtb, pbe/def2-svp …"
    )
    _add_selection_options(parser)
    parser.add_argument("--preset", choices=list(PRESETS), help="schedule and network to start from (default quick)")
    parser.add_argument("--network", choices=list(NETWORKS), help="network to use instead of the preset's")
    parser.add_argument("--chains", type=int, metavar="K", help="independent chains, run in one pass")
    parser.add_argument("--samples", type=int, metavar="k", help="posterior samples to keep in all")
    parser.add_argument("--seed", type=int, metavar="S", help="everything random follows from it (default 0)")
    parser.add_argument("--resume", action="store_true", help="changes nothing: the same command always goes on")
    parser.add_argument(
        "--beside", action="append", default=[], metavar="FOLDER", help="draw another study beside this one"
    )
    add_device_options(parser)
    add_cluster_options(parser)
    _add_parallel_options(parser)
    add_reading_options(parser)
    parser.set_defaults(run=run)


def _add_selection_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is asked, and when to stop")
    group.add_argument(
        "--select",
        metavar="KIND",
        help="sigma: largest σ; bald: most information (default); diversity: far from all that is known; random: as control",
    )
    group.add_argument("--mode", metavar="MODE", help="batch: what several would tell counts once (default); structure")
    group.add_argument("--trust-lo", metavar="x", help="σ of an atom below which a structure is known: eV/Å, or 3x")
    group.add_argument("--trust-hi", metavar="y", help="σ above which it has exploded and is never sent, likewise")
    group.add_argument("--per-round", type=int, metavar="N", help="labels a round (default 10)")
    group.add_argument("--rounds", type=int, metavar="N", help="rounds after the first, at most (default 10)")
    group.add_argument("--budget", type=int, metavar="N", help="labels to ask for in all")
    group.add_argument(
        "--target-sigma", type=float, metavar="x", help="stop where σ (RMS) of what is left is below this, eV/Å"
    )


def _add_parallel_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("many labels at once, with --cluster")
    group.add_argument(
        "--label-workers", type=int, metavar="n", help="structures at a time (default: the cores of the cluster)"
    )
    group.add_argument(
        "--label-retries", type=int, default=1, metavar="n", help="times that a failed one is tried again (default 1)"
    )
    group.add_argument(
        "--label-patience",
        type=float,
        default=3.0,
        metavar="x",
        help="sampling does not wait for a label that takes longer than x times the median; it joins a later round (default 3)",
    )


def run(arguments: argparse.Namespace) -> int:
    from equibayes.learning.curve import LEGEND, rows_of, table, write_curve
    from equibayes.learning.learn import Learner
    from equibayes.run.interrupt import Interrupted
    from equibayes.run.progress import choose_display

    config = effective_config(arguments)
    if config.output is None:
        raise InputError("no folder for the rounds: name one with -o")
    if Path(config.output).is_file():
        raise InputError(f"{config.output}: is a file; name a folder with -o")
    device = chosen_device(arguments)
    cluster = chosen_cluster(arguments)
    inputs = read_inputs(config, reading_options(arguments))
    with nullcontext() if cluster is None else connected(cluster.address) as ray:
        labeller = make_labeller(config, inputs) if cluster is None else many_labellers(config, inputs, ray, arguments)
        try:
            learner = Learner(
                config,
                inputs,
                labeller,
                config.output,
                device=device,
                display=choose_display,
                say=_say_at_once,
                cluster=cluster,
            )
            reason = learner.run()
        except Interrupted:
            print("stopped; the same command goes on from here", flush=True)
            return 130
        finally:
            labeller.close()
    write_curve(config.output, {Path(other).name: other for other in arguments.beside}, config.select.kind)
    print(f"\n{table(rows_of(config.output), f'{config.output}: select {config.select.kind}')}\n{LEGEND}")
    print(f"ended: {reason}; table and drawing in learning.csv and learning.svg")
    return 0


def effective_config(arguments: argparse.Namespace) -> "LearnConfig":
    """Preset ← YAML files and overrides, in the order given ← files and options."""
    from equibayes.learning.settings import learn_config

    layers, pool = [], []
    for word in arguments.settings:
        if "=" in word and not Path(word).exists():
            layers.append(parse_overrides([word]))
        elif word.lower().endswith((".yaml", ".yml")):
            layers.append(read_yaml(word))
        else:
            pool.append(word)
    given = {place: getattr(arguments, name) for name, place in _OPTIONS.items()}
    for place, value in given.items():
        *parents, last = place.split(".")
        if value is not None:
            layers.append({parents[0]: {last: value}} if parents else {last: value})
    values = merge(*layers, {"pool": pool} if pool else {})
    values["labeller"] = _ALIASES.get(values.get("labeller", "pool"), values.get("labeller", "pool"))
    sampler = values.get("sample") or {}
    if isinstance(sampler, dict) and isinstance(sampler.get("chains"), int) and "samples" not in sampler:
        # every chain gives at least one sample
        usual = sample_config(arguments.preset, arguments.network).samples
        values = merge(values, {"sample": {"samples": max(usual, sampler["chains"])}})
    return learn_config(arguments.preset, arguments.network, values)


def read_inputs(config: "LearnConfig", options: dict[str, Any]) -> "Inputs":
    """The files that the settings name; a test frame that is also in the pool is never asked for."""
    from equibayes.learning.study import Inputs

    if not config.pool:
        raise InputError("no structures to choose from: name a file with them; see equibayes learn --help")
    pool = Dataset.concatenate([read(name, require_labels=False, **options) for name in config.pool])
    start = None if config.start is None else read(config.start, **options)
    test = None if config.test is None else read(config.test, require_labels=False, **options)
    print(f"{len(pool)} structures in {pool.name}", flush=True)
    return Inputs(pool, start, test)


def make_labeller(config: "LearnConfig", inputs: "Inputs") -> "Labels":
    from equibayes.labelling.labellers import Labeller
    from equibayes.labelling.pool import PoolLabeller

    if config.labeller == "pool":
        return PoolLabeller(inputs.pool)
    return Labeller(config.labeller, config.labeller_settings, time_limit_s=config.label_seconds)


def many_labellers(config: "LearnConfig", inputs: "Inputs", ray: Any, arguments: argparse.Namespace) -> "Labels":
    """The same on the cores of a cluster; labels that are there already need none."""
    from equibayes.labelling.parallel import ParallelLabels

    if config.labeller == "pool":
        return make_labeller(config, inputs)
    return ParallelLabels(
        ray,
        config.labeller,
        config.labeller_settings,
        time_limit_s=config.label_seconds,
        at_once=arguments.label_workers,
        retries=arguments.label_retries,
        patience=arguments.label_patience,
    )


def _say_at_once(message: str) -> None:
    print(message, flush=True)
