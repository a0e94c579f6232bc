"""What a run was made from, kept in its folder: with it a run is continued from the folder alone."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from equibayes.config import build, read_yaml
from equibayes.data.dataset import Dataset
from equibayes.data.several import read_all
from equibayes.data.specs import parse_spec
from equibayes.errors import InputError
from equibayes.files import write_text
from equibayes.run.settings import SampleConfig
from equibayes.run.upgrade import settings_1_to_2, settings_2_to_3

FILE = "origin.json"
CONFIG = "config.yaml"


@dataclass(frozen=True)
class Origin:
    """
    data         files that the data were read from (see `Dataset.specs`); empty where they did not come from files
    fingerprint  of the data, held-back frames included
    validation   the same for frames to validate on that were given apart; None where there were none
    output       name of the posterior file, beside the folder of the run
    """

    data: tuple[str, ...]
    fingerprint: str
    validation: tuple[str, ...] | None
    output: str = ""

    @classmethod
    def of(cls, data: Dataset, validation: Dataset | None) -> "Origin":
        return cls(data.specs, data.fingerprint(), None if validation is None else validation.specs)

    def write(self, folder: Path) -> None:
        """Into the folder of a run."""
        write_text(folder / FILE, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    def moved(self, folder: Path) -> None:
        """Replace the place of the data in the folder of a run, where they are the same data as before."""
        earlier = stored(folder)
        if earlier is not None and self.data and earlier.fingerprint == self.fingerprint:
            replace(self, output=earlier.output).write(folder)

    def read_data(self, folder: Path, config: SampleConfig) -> Dataset:
        """The data again; an `InputError` where they moved or changed."""
        data = _read(self.data, folder, config)
        if data.fingerprint() != self.fingerprint:
            raise InputError(
                f"{folder}: the data in {', '.join(self.data)} changed since the run began; restore them, or begin "
                "another run with another -o"
            )
        return data

    def read_validation(self, folder: Path, config: SampleConfig) -> Dataset | None:
        """The frames to validate on again, where they were given apart."""
        return None if self.validation is None else _read(self.validation, folder, config)


def stored(folder: Path) -> Origin | None:
    """What the folder of a run says; None where it says nothing."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        validation = None if found["validation"] is None else tuple(found["validation"])
        return Origin(tuple(found["data"]), str(found["fingerprint"]), validation, str(found["output"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def stored_config(folder: Path) -> SampleConfig:
    """The settings in the folder of a run."""
    values = read_yaml(folder / CONFIG)
    settings_1_to_2(values)
    settings_2_to_3(values)
    return build(SampleConfig, values)


def _read(specs: tuple[str, ...], folder: Path, config: SampleConfig) -> Dataset:
    if not specs:
        raise InputError(f"{folder}: the data of this run did not come from a file; continue it from Python")
    for spec in specs:
        path = parse_spec(spec).path
        if not path.exists():
            raise InputError(
                f"{folder}: its data file {path} is not there any more; name it where it is now: "
                f"equibayes sample DATA --resume -o {folder.with_suffix('.posterior')}"
            )
    return read_all(specs, **config.data.reading())
