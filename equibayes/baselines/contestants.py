"""Every method of a comparison, from a folder: what is there is loaded, what was interrupted goes on, what is missing is trained."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from equibayes.baselines.train import KINDS, baseline_config, train
from equibayes.data.dataset import Dataset
from equibayes.errors import InputError
from equibayes.files import write_text
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.sample import run_folder, sample
from equibayes.run import checkpoint
from equibayes.run.prepare import prepare
from equibayes.run.progress import Display
from equibayes.run.settings import SampleConfig

METHODS = ("bayes", *KINDS)
COSTS = "costs.json"


@dataclass(frozen=True, eq=False)
class Contestant:
    """networks were trained for `steps` steps each, which took `seconds` of wall time (None if nobody took it)."""

    method: str
    posterior: Posterior
    networks: int
    steps: int
    seconds: float | None


def obtain(
    method: str,
    data: Dataset,
    config: SampleConfig,
    folder: Path,
    *,
    validation: Dataset | None = None,
    overwrite: bool = False,
    device: torch.device | str | None = None,
    display: Display | None = None,
) -> Contestant:
    """The posterior, or a baseline trained with the steps of one of its chains; config is that of the posterior.

    validation  frames held back already, in place of data.validation of `data` (which must then be 0)
    """
    if method not in METHODS:
        raise InputError(f"method '{method}' does not exist; choose from {', '.join(METHODS)}")
    path = folder / f"{method}.posterior"
    size = len(data) - config.data.validation
    own = config if method == "bayes" else baseline_config(method, config, size)
    if path.exists() and not overwrite:
        posterior = load(path)
        check_same(path, posterior, data, own, validation)
    else:
        resume = not overwrite and bool(checkpoint.newest_first(run_folder(path)))
        options: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "device": device, "display": display}
        options["validation"] = validation
        with _stopwatch(folder, method, resume):
            if method == "bayes":
                posterior = sample(data, config, output=path, **options)
            else:
                posterior = train(method, data, config, output=path, **options)
    steps = own.schedule(size).total_steps
    return Contestant(method, posterior, own.chains, steps, _costs(folder).get(method))


def check_same(
    path: Path, posterior: Posterior, data: Dataset, config: SampleConfig, validation: Dataset | None = None
) -> None:
    """An `InputError` if a file that is there was not made from these data with these settings."""
    prepared = prepare(data, config, validation)
    settings = {key: value for key, value in posterior.config.items() if key != "baseline"}
    same_data = posterior.data.get("fingerprint") == prepared.train.fingerprint()
    if not same_data or settings != json.loads(json.dumps(prepared.config.to_dict())):
        what = "settings" if same_data else "data"
        raise InputError(f"{path}: was made with other {what}; name another folder with -o, or add --overwrite")


@contextmanager
def _stopwatch(folder: Path, method: str, resumed: bool) -> Iterator[None]:
    """Adds the seconds that the block took to the costs of the folder, also when it is interrupted."""
    started, before = time.monotonic(), _costs(folder).get(method, 0.0) if resumed else 0.0
    try:
        yield
    finally:
        costs = _costs(folder) | {method: before + time.monotonic() - started}
        write_text(folder / COSTS, json.dumps(costs, indent=1) + "\n")


def _costs(folder: Path) -> dict[str, float]:
    try:
        found = json.loads((folder / COSTS).read_text(encoding="utf-8"))
        return {str(name): float(value) for name, value in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}  # only a column of a table is lost
