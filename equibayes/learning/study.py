"""The data and settings of a study; a folder only continues the study that it was begun with."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from equibayes.config import template
from equibayes.data.dataset import Dataset
from equibayes.data.elements import symbol
from equibayes.errors import InputError
from equibayes.files import write_text
from equibayes.learning.settings import LearnConfig
from equibayes.run.settings import SampleConfig
from equibayes.run.upgrade import settings_1_to_2


@dataclass(frozen=True, eq=False)
class Inputs:
    """pool: structures to select from, or to start dynamics from;  start, test: labelled, or None."""

    pool: Dataset
    start: Dataset | None = None
    test: Dataset | None = None

    def fingerprints(self) -> dict[str, str | None]:
        named = {"pool": self.pool, "start": self.start, "test": self.test}
        return {name: None if data is None else data.fingerprint() for name, data in named.items()}


def study_file(folder: str | Path) -> Path:
    """The file that identifies the study in a folder."""
    return Path(folder) / "study.json"


def check_same_study(folder: Path, inputs: Inputs, config: LearnConfig) -> None:
    """Check that the folder is new or belongs to this study; settings that only say when to stop may change."""
    path = study_file(folder)
    now = json.loads(json.dumps({"data": inputs.fingerprints(), "settings": config.identity()}))
    if not path.exists():
        write_text(folder / "settings.yaml", template(config) + "\n")
        write_text(path, json.dumps(now, indent=1, ensure_ascii=False) + "\n")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        settings_1_to_2(before["settings"]["sample"])  # this file has no version of its own
        _add_new_settings(before["settings"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: damaged; begin another study in another folder with -o") from None
    changed = _difference(before, now)
    if changed:
        raise InputError(
            f"{folder}: contains another study ({changed}); use the same settings, or another folder with -o"
        )


def _add_new_settings(settings: dict[str, Any]) -> None:
    """Of novelty, which posteriors of early studies do not have: as in a new study, which changes nothing for them."""
    now = json.loads(json.dumps(asdict(LearnConfig())))
    for part, names in (("select", ("novelty_lo", "novelty_hi", "apart")), ("md", ("novelty", "bias"))):
        settings[part] = {name: now[part][name] for name in names} | settings[part]


def with_species(config: LearnConfig, inputs: Inputs) -> SampleConfig:
    """The sampler's settings with all species of the data, since a network cannot learn new ones later."""
    network = config.sample.network
    if network.type_names:
        return config.sample
    parts = [data for data in (inputs.pool, inputs.start, inputs.test) if data is not None]
    names = [symbol(z) for z in sorted({z for data in parts for z in data.species})]
    return replace(config.sample, network=replace(network, type_names=names))


def _difference(before: Any, now: Any, name: str = "") -> str:
    """The first setting or file that differs, in words; empty if there is none."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            found = _difference(before.get(key), now.get(key), f"{name}.{key}" if name else str(key))
            if found:
                return found
        return ""
    if before == now:
        return ""
    short = name.removeprefix("settings.")
    return (
        f"the {short.removeprefix('data.')} data differ"
        if name.startswith("data.")
        else f"{short} was {before}, is {now}"
    )
