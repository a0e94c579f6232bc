"""Where a run keeps what it needs to resume, and what it reports: nowhere, in a folder, or with a remote driver.

The remote store is in `cluster/worker.py`.  The folder of `ethanol.posterior` is `ethanol.run/`:

| file                            | content                                            |
|---------------------------------|----------------------------------------------------|
| `config.yaml`                   | the settings in effect                             |
| `metrics.jsonl`                 | one record per line                                |
| `checkpoint-STEP.safetensors`   | the two newest checkpoints                         |
| `plan.json`, `workers/`         | of a run on a cluster: its groups and their checkpoints |
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from equibayes.errors import InputError
from equibayes.run import checkpoint
from equibayes.run.checkpoint import Checkpoint
from equibayes.run.records import MetricsLog
from equibayes.run.settings import READING, OutputSettings, SampleConfig
from equibayes.run.state import RunState

CLUSTER_PLAN = "plan.json"
"""Only a run on a cluster has one."""
VALIDATION = "the validation frames"
"""Name of their fingerprint among what identifies a run."""


class Store:
    """What the loop tells about its chains.  This one keeps nothing; the samples are in the state that the loop
    returns."""

    def load(self, say: Callable[[str], None]) -> Checkpoint | None:
        """The checkpoint to continue from; None: begin."""
        return None

    def open(self, step: int) -> None:
        """Records follow, from `step` on."""

    def record(self, record: dict[str, Any]) -> None:
        """A line of history."""

    def collect(self, number: int, samples: torch.Tensor, kept: torch.Tensor) -> None:
        """Sample `number` of all chains, [K, P], and which of them count, [K]."""

    def save(self, step: int, state: Checkpoint) -> None:
        """A state from which the run can be resumed."""

    def close(self) -> None:
        """The loop has ended, for whatever reason."""


class FolderStore(Store):
    """Checkpoints and metrics in a folder.  Samples are part of the checkpoints."""

    def __init__(self, folder: Path, *, resume: bool = False, output: OutputSettings | None = None) -> None:
        self.folder, self.resume, self.output = folder, resume, output
        self._log: MetricsLog | None = None

    def load(self, say: Callable[[str], None]) -> Checkpoint | None:
        return checkpoint.load_newest(self.folder, say, RunState.check) if self.resume else None

    def open(self, step: int) -> None:
        self._log = MetricsLog(self.folder, keep_until=step, output=self.output)

    def record(self, record: dict[str, Any]) -> None:
        if self._log is not None:
            self._log.write(record)

    def save(self, step: int, state: Checkpoint) -> None:
        checkpoint.save(self.folder, step, state)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


def run_folder(output: str | Path) -> Path:
    """Where checkpoints and metrics of a posterior are: `ethanol.posterior` -> `ethanol.run/`."""
    path = Path(output)
    return path.with_name((path.stem if path.suffix == ".posterior" else path.name) + ".run")


def begun(output: str | Path) -> Literal["here", "cluster"] | None:
    """Where the run of an output has begun, so that it can be resumed: on this machine, on a cluster, or not at all."""
    folder = run_folder(output)
    if (folder / CLUSTER_PLAN).is_file():
        return "cluster"
    return "here" if folder.is_dir() and checkpoint.newest_first(folder) else None


def clear(folder: Path) -> None:
    """Remove the checkpoints of an earlier run."""
    (folder / CLUSTER_PLAN).unlink(missing_ok=True)
    for place in (folder, *(folder / "workers").glob("[0-9]*")):
        checkpoint.remove_all(place)


def check_same_run(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """An `InputError` that names the first difference between a checkpoint's run and this one."""
    remedy = "resume with the same data and settings, or begin another run with another -o"
    changed = [key for key in sorted(set(saved) | set(now)) if key != "config" and saved.get(key) != now.get(key)]
    # they follow from data and settings, unless they are given; the first checkpoints of format 2 do not name them
    given = VALIDATION in changed and VALIDATION in saved
    for key in changed:
        if key != VALIDATION:
            raise InputError(f"--resume: {key} changed since the run began; {remedy}")
    setting = changed_setting(saved.get("config", {}), now.get("config", {}))
    if setting:
        raise InputError(f"--resume: {setting}; {remedy}")
    if given:
        raise InputError(f"--resume: {VALIDATION} changed since the run began; {remedy}")


def changed_setting(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The first setting that differs, in words; empty if there is none.

    A setting that is absent, since it came with a later version, has its default: that is what earlier versions did.
    """
    usual = _flat(SampleConfig().to_dict())
    was, now = usual | _flat(before), usual | _flat(after)
    for key in sorted(set(was) | set(now)):
        if key.removeprefix("data.") not in READING and was.get(key) != now.get(key):
            return f"{key} was {was.get(key)} when the run began and is {now.get(key)} now"
    return ""


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in values.items() if isinstance(values, dict) else ():
        name = f"{prefix}{key}"
        result |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return result
