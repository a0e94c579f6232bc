"""`equibayes template sample` and `learn`: every setting with its meaning, as YAML to edit."""

import argparse

from equibayes.config import template
from equibayes.run.settings import NETWORKS, PRESETS, sample_config

HELP = "print all settings of a verb as commented YAML"
DESCRIPTION = "Print all settings of a verb with their meaning; edit what you need and delete the rest."
EPILOG = "example:\n  equibayes template sample --preset standard > settings.yaml\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=["sample", "learn"], metavar="VERB", help="sample or learn")
    parser.add_argument("--preset", choices=list(PRESETS), default="quick", help="values to start from (default quick)")
    parser.add_argument("--network", choices=list(NETWORKS), help="network instead of the preset's")


def run(arguments: argparse.Namespace) -> int:
    print(f"# settings of `equibayes {arguments.verb}`, preset {arguments.preset}; deleted settings keep their values")
    if arguments.verb == "learn":
        from equibayes.learning.settings import learn_config

        print(template(learn_config(arguments.preset, arguments.network)))
        return 0
    print(template(sample_config(arguments.preset, arguments.network)))
    return 0
