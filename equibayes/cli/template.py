"""`equibayes template sample` and `learn`: every setting with its meaning, as YAML to edit, or as a JSON schema."""

import argparse
import json

from equibayes.config import template
from equibayes.run.settings import NETWORKS, PRESETS, sample_config
from equibayes.schema import schema

HELP = "print all settings of a verb as commented YAML"
DESCRIPTION = "Print all settings of a verb with their meaning; edit what you need and delete the rest."
EPILOG = """\
examples:
  equibayes template sample --preset standard > settings.yaml
  equibayes template sample --schema > settings.schema.json

Editors with a YAML language server check and complete a file that begins with
  # yaml-language-server: $schema=settings.schema.json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=["sample", "learn"], metavar="VERB", help="sample or learn")
    parser.add_argument("--preset", choices=list(PRESETS), default="quick", help="values to start from (default quick)")
    parser.add_argument("--network", choices=list(NETWORKS), help="network instead of the preset's")
    parser.add_argument("--schema", action="store_true", help="print a JSON schema instead, for editors")


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "learn":
        from equibayes.learning.settings import learn_config

        config: object = learn_config(arguments.preset, arguments.network)
    else:
        config = sample_config(arguments.preset, arguments.network)
    title = f"settings of `equibayes {arguments.verb}`"
    if arguments.schema:
        print(json.dumps(schema(config, title.replace("`", "")), indent=1, ensure_ascii=False))
    else:
        print(f"# {title}, preset {arguments.preset}; deleted settings keep their values")
        print(template(config))
    return 0
