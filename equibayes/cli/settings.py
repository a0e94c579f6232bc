"""The options that say how to sample, shared by the verbs that do."""

import argparse

from equibayes.config import merge, parse_overrides, read_yaml
from equibayes.sampling.settings import NETWORKS, PRESETS, SampleConfig, sample_config


def add_settings_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "settings", nargs="*", metavar="CONFIG.yaml | section.key=value", help="settings, later ones win"
    )
    parser.add_argument("--preset", choices=list(PRESETS), help="schedule and network to start from (default quick)")
    parser.add_argument("--network", choices=list(NETWORKS), help="network to use instead of the preset's")
    parser.add_argument("--chains", type=int, metavar="K", help="independent chains, run in one pass")
    parser.add_argument("--samples", type=int, metavar="k", help="posterior samples to keep in all")
    parser.add_argument("--seed", type=int, metavar="S", help="everything random follows from it (default 0)")


def effective_config(arguments: argparse.Namespace) -> SampleConfig:
    """Preset ← YAML files and overrides, in the order given ← options."""
    layers = [parse_overrides([word]) if "=" in word else read_yaml(word) for word in arguments.settings]
    options = {name: getattr(arguments, name) for name in ("chains", "samples", "seed")}
    values = merge(*layers, {name: value for name, value in options.items() if value is not None})
    if "samples" not in values and isinstance(values.get("chains"), int):
        # every chain gives at least one sample
        base = sample_config(arguments.preset, arguments.network)
        values["samples"] = max(base.samples, values["chains"])
    return sample_config(arguments.preset, arguments.network, values)
