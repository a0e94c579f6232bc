"""Every method of a comparison, from a folder: loaded if it is there, resumed if it was interrupted, else trained."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from equibayes.baselines.train import KINDS, baseline_config, train
from equibayes.data.dataset import Dataset
from equibayes.errors import InputError
from equibayes.files import write_text
from equibayes.posterior.center import load_center
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.sample import sample
from equibayes.run import Run
from equibayes.run.prepare import prepare
from equibayes.run.settings import SampleConfig
from equibayes.run.store import changed_setting

METHODS = ("bayes", *KINDS)
COSTS = "costs.json"


@dataclass(frozen=True, eq=False)
class Contestant:
    """`networks` were trained for `steps` steps each, in `seconds` of wall time (None where it was not measured)."""

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
    run: Run | None = None,
) -> Contestant:
    """The posterior, or a baseline trained with the steps of one of its chains; config is that of the posterior.

    validation  frames that are held back already, in place of data.validation of `data` (which must then be 0)
    run         where it is computed; the output is METHOD.posterior in the folder
    """
    if method not in METHODS:
        raise InputError(f"method '{method}' does not exist; choose from {', '.join(METHODS)}")
    path, run = folder / f"{method}.posterior", run or Run()
    size = len(data) - config.data.validation
    own = config if method == "bayes" else baseline_config(method, config, size)
    if path.exists() and not run.overwrite:
        posterior = load(path)
        check_same(path, posterior, data, own, validation)
    else:
        run = run.to(path, resume_if_begun=True)
        with _stopwatch(folder, method, run.resume):
            if method == "bayes":
                posterior = sample(data, config, validation=validation, run=run)
            else:
                posterior = train(method, data, config, validation=validation, run=run)
    stopped_early = method != "bayes" and own.burn_in.patience is not None and posterior.history
    steps = posterior.history[-1]["step"] if stopped_early else own.schedule(size).total_steps
    return Contestant(method, posterior, own.chains, steps, _costs(folder).get(method))


def check_same(
    path: Path, posterior: Posterior, data: Dataset, config: SampleConfig, validation: Dataset | None = None
) -> None:
    """An `InputError` if a file that is there was not made from these data with these settings."""
    prepared = prepare(data, config, validation, load_center(config.prior.center))
    settings = {key: value for key, value in posterior.config.items() if key != "baseline"}
    same_data = posterior.data.get("fingerprint") == prepared.train.fingerprint()
    if not same_data or changed_setting(settings, json.loads(json.dumps(prepared.config.to_dict()))):
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
