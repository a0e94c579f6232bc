"""`equibayes compare TRAIN --test TEST … -o FOLDER`: the posterior compared with other methods."""

import argparse
import json
from functools import partial
from pathlib import Path

from equibayes.baselines.contestants import METHODS, Contestant, obtain
from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.parser import add_reading_options
from equibayes.cli.sample import announce
from equibayes.cli.settings import add_data_and_settings, data_and_settings
from equibayes.data import Dataset, read
from equibayes.data.elements import atomic_number
from equibayes.data.graph import check_species
from equibayes.errors import InputError
from equibayes.evaluation.comparison import LEGEND, Row, comparison_table
from equibayes.evaluation.evaluated import check_labelled, evaluate_each, to_evaluate
from equibayes.evaluation.print_tables import print_table
from equibayes.evaluation.tables import measure
from equibayes.files import SAME_COMMAND, make_folder, remedy, write_text
from equibayes.posterior.marks import frame_mark
from equibayes.run import Run
from equibayes.run.frames import frames_of
from equibayes.run.interrupt import Interrupted
from equibayes.run.prepare import hold_back
from equibayes.run.progress import choose_display, watched

HELP = "train baselines and compare them with the posterior"
DESCRIPTION = "Posterior, deep ensemble, dropout and point estimate on the same data, in one table."
EPILOG = """\
methods:
  bayes     samples of the posterior, as `equibayes sample` draws them
  ensemble  as many networks with deviation heads, trained by maximum likelihood from different starts
  dropout   one such network, with as many random masks on its features (appendix A.4 of the paper)
  point     one NequIP network, AMSGrad with a moving average; its σ is the error on the held-back frames

All use the same network, training frames, held-back frames and steps per network.  FOLDER keeps METHOD.posterior of
each; a finished method is not trained again, an interrupted one continues.

example:
  equibayes compare bundled:ethanol@train --test bundled:ethanol@test -o comparison
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_data_and_settings(parser, "frames to learn from")
    parser.add_argument(
        "--test", action="append", required=True, metavar="TEST", help="frames to compare on; may be given again"
    )
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="folder for the trained models")
    parser.add_argument("--methods", default=",".join(METHODS), metavar="LIST", help=f"default {','.join(METHODS)}")
    parser.add_argument("--json", metavar="COMPARISON.json", help="write every metric of every method")
    parser.add_argument("--overwrite", action="store_true", help="train again the methods that FOLDER holds already")
    add_device_options(parser)
    add_reading_options(parser)


def run(arguments: argparse.Namespace) -> int:
    methods = [word.strip() for word in arguments.methods.split(",") if word.strip()]
    unknown = [method for method in methods if method not in METHODS]
    if unknown or not methods:
        raise InputError(f"--methods {arguments.methods}: choose from {', '.join(METHODS)}")
    names, config = data_and_settings(arguments)
    device, options = chosen_device(arguments), config.data.reading()
    train, validation, config = frames_of(names, arguments.validation, config, **options)
    tests = [read(name, require_labels=False, **options) for name in arguments.test]
    known = dict.fromkeys((*train.species, *map(atomic_number, config.network.type_names)), 0)
    learned = {frame_mark(structure) for structure in hold_back(train, config.data.validation, config.seed)[0]}
    chosen = [to_evaluate(learned, test) for test in tests]  # before the training starts
    for test, note in chosen:
        if note:
            print(f"note: {test.name}: {note}", flush=True)
        check_labelled(test)
        for structure in test:
            check_species(structure, known)
    announce(train, validation, config)
    folder = make_folder(arguments.output)
    where, contestants = Run(overwrite=arguments.overwrite, device=device, display=choose_display()), []
    for method in methods:
        print(f"{method} …", flush=True)
        try:
            with remedy(SAME_COMMAND):
                contestants.append(obtain(method, train, config, folder, validation=validation, run=where))
        except Interrupted:
            print("stopped; the same command continues from here", flush=True)
            return 130
    results = {test.name: [evaluated(each, test, device) for each in contestants] for test, _ in chosen}
    for name, rows in results.items():
        print()
        print_table(comparison_table(name, rows))
    print(LEGEND)
    if arguments.json:
        content = {name: {row.method: vars(row) for row in rows} for name, rows in results.items()}
        write_text(Path(arguments.json), json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        print(f"every metric written to {arguments.json}")
    return 0


def evaluated(contestant: Contestant, test: Dataset, device: str) -> Row:
    posterior = contestant.posterior
    progress = partial(watched, what=f"{contestant.method} on {test.name}", total=len(test))
    (result,) = evaluate_each(posterior, test, [len(posterior)], device=device, progress=progress)
    return Row(contestant.method, measure(result), contestant.networks, contestant.steps, contestant.seconds)
