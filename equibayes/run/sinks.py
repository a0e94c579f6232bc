"""Programs that draw the progress of a run: TensorBoard and Weights & Biases.  Both get the same numbers."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from equibayes.config import read_yaml
from equibayes.errors import InputError
from equibayes.files import write_text
from equibayes.run.settings import OutputSettings

WANDB_ID = "wandb-id"
"""File with the name of the run at Weights & Biases, so that a resumed run continues there."""


class Sink(Protocol):
    """Receives the records of one run, as `records.make_record` makes them."""

    def write(self, record: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


def open_sinks(folder: Path, first_step: int, output: OutputSettings) -> list[Sink]:
    """Those that the settings ask for; an `InputError` where a package is missing."""
    sinks: list[Sink] = []
    if output.tensorboard:
        sinks.append(TensorBoard(folder, first_step))
    if output.wandb is not None:
        sinks.append(WeightsAndBiases(folder, output.wandb))
    return sinks


def scalars(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Names and values of the numbers of each chain."""
    for name, value in record.items():
        for chain, number in enumerate(value if isinstance(value, list) else []):
            if isinstance(number, (int, float)):
                yield f"{name}/chain{chain}", number


class TensorBoard:
    """Events in the folder `tensorboard` of the run."""

    def __init__(self, folder: Path, first_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError(
                "output.tensorboard: the tensorboard package is missing; pip install tensorboard"
            ) from None
        # purge_step: events that a killed run wrote after its last checkpoint are not shown twice
        self.events = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step + 1)

    def write(self, record: dict[str, Any]) -> None:
        for name, number in scalars(record):
            self.events.add_scalar(name, number, record["step"])

    def close(self) -> None:
        self.events.close()


class WeightsAndBiases:
    """A run at Weights & Biases, with the settings of this run; WANDB_MODE=offline keeps it in the folder.

    Steps that a killed run had reported already are not taken twice there.
    """

    def __init__(self, folder: Path, project: str) -> None:
        try:
            import wandb
        except ImportError:
            raise InputError("output.wandb: the wandb package is missing; pip install wandb") from None
        name, config = folder / WANDB_ID, folder / "config.yaml"
        if not name.is_file():
            write_text(name, secrets.token_hex(4) + "\n")
        self.run = wandb.init(
            project=project,
            name=folder.stem,
            id=name.read_text(encoding="utf-8").strip(),
            resume="allow",
            dir=str(folder),
            config=read_yaml(config) if config.is_file() else {},
        )

    def write(self, record: dict[str, Any]) -> None:
        self.run.log(dict(scalars(record)), step=record["step"])

    def close(self) -> None:
        self.run.finish()
