"""Options for sampling, shared by several verbs."""

import argparse
import re
from collections.abc import Iterable, Mapping
from glob import glob
from typing import Any

from equibayes.config import merge, parse_overrides, read_yaml
from equibayes.data.specs import parse_spec
from equibayes.errors import InputError
from equibayes.network.pretrained import NAMES
from equibayes.run.settings import NETWORKS, PRESETS, READING, TUNE, SampleConfig, sample_config

SAMPLING = ("chains", "samples", "seed")
"""Options that are settings of the sampler."""


def add_data_and_settings(parser: argparse.ArgumentParser, what: str, *, required: bool = True) -> None:
    """DATA [DATA …], settings and --validation.  `sorted_words` tells the two kinds of words apart."""
    text = f"{what}: file, file@split, bundled:NAME (see equibayes --help) or a pattern such as 'frames/*.xyz'"
    parser.add_argument("data", nargs="+" if required else "*", metavar="DATA", help=text)
    metavar, words = "CONFIG.yaml | section.key=value", "settings; later ones take precedence"
    parser.add_argument("settings", nargs="*", default=[], metavar=metavar, help=words)
    text = (
        "frames to validate on; or a fraction (0.1) or number (30) of DATA to hold back, the default (data.validation)"
    )
    parser.add_argument("--validation", metavar="FILE|FRACTION", help=text)
    add_sampling_options(parser)


def sorted_words(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """DATA, and settings: YAML files and overrides."""
    words = [*arguments.data, *arguments.settings]
    data = [word for word in words if not _is_setting(word)]
    return data, [word for word in words if word not in data]


def data_and_settings(arguments: argparse.Namespace) -> tuple[list[str], SampleConfig]:
    """DATA, and the settings."""
    data, settings = sorted_words(arguments)
    if not data:
        raise InputError(f"no DATA: name a file to learn from; see equibayes {arguments.verb} --help")
    return data, effective_config(arguments, settings)


def _is_setting(word: str) -> bool:
    """CONFIG.yaml or section.key=value, unless it names data files that are there."""
    if word.endswith((".yaml", ".yml")):
        return True
    return re.match(r"[^/*?@]*=", word) is not None and not (parse_spec(word).path.is_file() or glob(word))


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", choices=list(PRESETS), help="schedule and network to start from (default quick)")
    parser.add_argument("--network", choices=list(NETWORKS), help="network to use instead of the preset's")
    text = f"a network trained elsewhere as prior: {', '.join(NAMES)}, a checkpoint, or a posterior (preset {TUNE})"
    parser.add_argument("--from", dest="center", metavar="NAME|FILE|POSTERIOR", help=text)
    parser.add_argument("--chains", type=int, metavar="K", help="independent chains, run in parallel")
    parser.add_argument("--samples", type=int, metavar="k", help="total number of posterior samples to keep")
    parser.add_argument("--seed", type=int, metavar="S", help="seed of all random numbers (default 0)")


def effective_config(arguments: argparse.Namespace, words: list[str]) -> SampleConfig:
    """Preset ← YAML files and overrides, in the order given ← options."""
    layers = [parse_overrides([word]) if "=" in word else read_yaml(word) for word in words]
    for word, layer in zip(words, layers):
        if arguments.network and "=" not in word:
            _check_network(arguments.network, layer.get("network"), word)
    options = {"data": given(arguments, READING), **given(arguments, SAMPLING)}
    values = with_enough_samples(merge(around(arguments), *layers, options), arguments)
    return sample_config(arguments.preset, arguments.network, values)


def around(arguments: argparse.Namespace) -> dict[str, Any]:
    """Settings of the prior for --from, which also chooses a preset where none is named."""
    if arguments.center is None:
        return {}
    if arguments.network is not None:
        raise InputError(f"--network {arguments.network}: with --from the network is that of {arguments.center}")
    arguments.preset = arguments.preset or TUNE
    return {"prior": {"center": arguments.center, **PRESETS[TUNE]["prior"]}}


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
