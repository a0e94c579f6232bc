"""What is compared: the pretrained network as it is, the posterior around it, fine-tuning by maximum likelihood, and
the posterior of a small network from random weights.  None holds frames back.

A preset's number of steps is for any number of frames; the cost of crystals is that of their many neighbours.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from equibayes.baselines.train import train
from equibayes.config import merge, parse_overrides
from equibayes.data import Dataset
from equibayes.evaluation import metrics
from equibayes.evaluation.evaluated import Evaluated, collect
from equibayes.posterior.center import load_center
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import predict
from equibayes.posterior.sample import sample_prepared
from equibayes.run import Run
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.settings import SampleConfig, sample_config
from studies.presets.trial import measured

NO_VALIDATION: dict[str, Any] = {"data": {"validation": 0}, "output": {"validations": 0}}
ENSEMBLE: dict[str, Any] = {"chains": 4, "samples": 4, "tangent": "off", "burn_in": {"steps": 600}}
"""About the processor time that `tune` takes with its inference, in steps alone."""


def config_of(method: str, center: str, seed: int, changes: list[str]) -> SampleConfig:
    own = {"seed": seed} | NO_VALIDATION
    if method == "scratch":
        return sample_config("quick", None, own, parse_overrides(changes))
    rival = ENSEMBLE if method == "ensemble" else {}
    return sample_config("tune", None, merge(own, rival, {"prior": {"center": center}}), parse_overrides(changes))


def prepared(config: SampleConfig, data: Dataset, factor: float, device: str) -> Prepared:
    """factor: of the width that the rule finds."""
    found = prepare(data, config, center=load_center(config.prior.center), device=device)
    if factor == 1.0 or found.center is None:
        return found
    width = {"prior": {"width": factor * (found.config.prior.width or 0.0)}}
    changed = sample_config("tune", None, merge(config.to_dict(), width))
    return prepare(data, changed, center=load_center(config.prior.center), device=device)


def made(
    method: str, config: SampleConfig, data: Dataset, factor: float, device: str
) -> tuple[Posterior, dict[str, Any]]:
    """The posterior, and what it cost."""
    cpu, wall = time.process_time(), time.monotonic()
    run = Run(device=device)
    if method == "ensemble":
        posterior, zero = train("ensemble", data, config, run=run), {}
    else:
        ready = prepared(config, data, factor, device)
        zero = {**ready.zero_shot, "width": ready.config.prior.width}
        posterior = sample_prepared(ready, data, run)
    cost = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.monotonic() - wall}
    events = {name: posterior.verdict.get(name) for name in ("kinetic_temperature", "events")}
    return posterior, {**cost, "engine": posterior.engine, "zero_shot_on_training": zero, **events}


def judged(posterior: Posterior, test: Dataset, device: str) -> dict[str, Any]:
    predicted = list(predict(posterior, test.structures, device=device))
    result = collect(test.name, len(posterior), test.structures, predicted)
    plain = list(predict(replace(posterior, novelty=None), test.structures, device=device))
    unraised = measured(collect(test.name, len(posterior), test.structures, plain))
    without = {f"{name}_without_floor": unraised[name] for name in ("mll", "in_68", "sigma")}
    return measured(result) | {"mll_rescaled": rescaled(result)} | without


def rescaled(result: Evaluated) -> float:
    """The log likelihood after σ of the forces is multiplied by what is best on these frames: an upper bound."""
    error, sigma = result.force_error, result.force_sigma
    return metrics.mean_log_likelihood(error, sigma * np.sqrt(np.mean(np.square(error / sigma))))
