"""Options for sampling, shared by several verbs."""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from equibayes.config import merge, parse_overrides, read_yaml
from equibayes.errors import InputError
from equibayes.run.settings import NETWORKS, PRESETS, READING, SampleConfig, sample_config

SAMPLING = ("chains", "samples", "seed")
"""Options that are settings of the sampler."""


def add_settings_options(parser: argparse.ArgumentParser) -> None:
    metavar, words = "CONFIG.yaml | section.key=value", "settings; later ones take precedence"
    parser.add_argument("settings", nargs="*", default=[], metavar=metavar, help=words)
    add_sampling_options(parser)


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", choices=list(PRESETS), help="schedule and network to start from (default quick)")
    parser.add_argument("--network", choices=list(NETWORKS), help="network to use instead of the preset's")
    parser.add_argument("--chains", type=int, metavar="K", help="independent chains, run in parallel")
    parser.add_argument("--samples", type=int, metavar="k", help="total number of posterior samples to keep")
    parser.add_argument("--seed", type=int, metavar="S", help="seed of all random numbers (default 0)")


def effective_config(arguments: argparse.Namespace) -> SampleConfig:
    """Preset ← YAML files and overrides, in the order given ← options."""
    layers = [parse_overrides([word]) if "=" in word else read_yaml(word) for word in arguments.settings]
    for word, layer in zip(arguments.settings, layers):
        if arguments.network and "=" not in word:
            _check_network(arguments.network, layer.get("network"), word)
    options = {"data": given(arguments, READING), **given(arguments, SAMPLING)}
    values = with_enough_samples(merge(*layers, options), arguments)
    return sample_config(arguments.preset, arguments.network, values)


def given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The options of these names that were given."""
    return {name: value for name in names if (value := getattr(arguments, name, None)) is not None}


def with_enough_samples(values: Any, arguments: argparse.Namespace) -> Any:
    """Settings of the sampler with one sample per chain at least, where only the number of chains is given."""
    if isinstance(values, dict) and isinstance(values.get("chains"), int) and "samples" not in values:
        usual = sample_config(arguments.preset, arguments.network).samples
        return {**values, "samples": max(usual, values["chains"])}
    return values


def _check_network(name: str, values: Any, file: str) -> None:
    """Refuse a file that describes another network, which would silently override --network."""
    known = {each: network.to_dict() for each, network in NETWORKS.items()}
    for key, value in known[name].items():
        told = isinstance(values, Mapping) and key in values
        if told and values[key] != value and any(other[key] != value for other in known.values()):
            raise InputError(
                f"--network {name}: {file} says network.{key}={values[key]}, which is not that of {name} ({value}); "
                "leave --network out, or the section network in the file"
            )
