"""The methods, each as a function from frames to predictions with σ.

| method   |                                                                                             |
|----------|---------------------------------------------------------------------------------------------|
| bayes    | the posterior of the preset                                                                 |
| refined  | the same after `equibayes refine` with its training frames                                  |
| ensemble | as many networks as the posterior has samples, trained with the steps of one of its chains  |
| dropout  | one network, as many masks                                                                  |
| zbl      | the posterior with the repulsion of nuclei as a baseline                                    |
| gfn1     | the posterior with GFN1-xTB as a baseline; its labels are those of GFN2-xTB                 |
| pseudo   | the posterior with 200 pseudo-labels of GFN1-xTB                                            |
| llpr     | σ of the last layer of one network trained on squared errors (`studies/rivals/rigidity.py`) |

Novelty and the floor of σ belong to every posterior file, whatever is in it; `plain` shows the methods without the
floor.  σ of none is recalibrated; all but llpr's come from noise heads and spread, its own is scaled on the held-back
frames.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data import Dataset
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.evaluation.evaluated import Evaluated, evaluate_each
from equibayes.files import make_folder
from equibayes.labelling.baseline import Baseline
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.seen import marks_of, split_known
from equibayes.posterior.tangent import refine
from equibayes.run.progress import PlainDisplay
from equibayes.run.settings import SampleConfig
from studies.domain_shift.cases import evenly
from studies.rivals.rigidity import Rigidity, features_of, hessian, rigidity
from studies.shared.runs import contestant

METHODS = ("bayes", "refined", "ensemble", "dropout", "llpr")
PRIORS: dict[str, dict[str, Any]] = {
    "zbl": {"baseline": "zbl"},
    "gfn1": {"baseline": "gfn1-xtb"},
    "pseudo": {"pseudo_labels": "gfn1-xtb", "pseudo_frames": 200},
}
"""Methods that differ from `bayes` in their prior, for molecules."""
RIGID = 100
"""Training frames in the Hessian of LLPR: 32 features need no more, and its scale is fitted to the held-back frames."""


@dataclass(frozen=True, eq=False)
class Method:
    """predict: frames with labels → predictions;  plain: the same without a floor of σ;  about: how it was made."""

    predict: Callable[[Dataset], Evaluated]
    plain: Callable[[Dataset], Evaluated]
    about: dict[str, Any]


def make(name: str, data: Dataset, config: SampleConfig, folder: Path) -> Method:
    """Trained, or loaded from the folder."""
    if name in PRIORS:
        config = replace(config, prior=replace(config.prior, **PRIORS[name]))
        found = contestant("bayes", data, config, make_folder(folder / name), display=PlainDisplay())
        return _answered(found.posterior, {"prior": PRIORS[name], "seconds": found.seconds})
    kind = {"refined": "bayes", "llpr": "point"}.get(name, name)
    found = contestant(kind, data, config, folder, display=PlainDisplay())
    about = {"networks": found.networks, "steps": found.steps, "seconds": found.seconds}
    known, held = split_known(marks_of(found.posterior), data)
    if name == "refined":
        posterior = _refined(found.posterior, known, held, folder / "refined.posterior")
        return _method(posterior, about | posterior.verdict["tangent"])
    if name == "llpr":
        return _llpr(found.posterior, known, held, about)
    return _method(found.posterior, about)


def _answered(posterior: Posterior, about: dict[str, Any]) -> Method:
    """Of the frames that the baseline has an answer for; about["unanswered"] counts the others."""
    whole, about = _method(posterior, about), about | {"unanswered": 0}

    def some(frames: Dataset) -> Dataset:
        kept = [number for number, structure in enumerate(frames) if _has_answer(posterior.baseline, structure)]
        about["unanswered"] += (len(frames) - len(kept)) / 2  # every set is asked about twice
        return frames.subset(kept)

    return Method(lambda frames: whole.predict(some(frames)), lambda frames: whole.plain(some(frames)), about)


def _has_answer(baseline: Baseline | None, structure: Structure) -> bool:
    try:
        return baseline is None or baseline.label(structure) is not None
    except InputError:
        return False


def _method(posterior: Posterior, about: dict[str, Any]) -> Method:
    plain = without_floor(posterior)
    return Method(lambda frames: _evaluated(posterior, frames), lambda frames: _evaluated(plain, frames), about)


def without_floor(posterior: Posterior) -> Posterior:
    """The same novelty; σ as the networks say."""
    assert posterior.novelty is not None
    plain = replace(posterior.novelty, about=posterior.novelty.about | {"force_scale": 0.0})
    return replace(posterior, novelty=plain)


def _evaluated(posterior: Posterior, frames: Dataset) -> Evaluated:
    return evaluate_each(posterior, frames, [len(posterior)])[0]


def _refined(posterior: Posterior, known: Dataset, held: Dataset, path: Path) -> Posterior:
    if not path.exists():
        refine(posterior, known, held, say=print).save(path)
    return load(path)


def _llpr(posterior: Posterior, known: Dataset, held: Dataset, about: dict[str, Any]) -> Method:
    """The mean is that of the network; frames may differ in size."""
    point, features = _evaluated(posterior, held), features_of(posterior, held)
    weight = 3 / len(known[0])  # as in the loss
    error = point.force_error.reshape(len(held), -1)
    own = features_of(posterior, evenly(known, RIGID))
    found, _ = rigidity(hessian(own, weight), features, point.energy_error, error)

    def predict(frames: Dataset) -> Evaluated:
        plain = _evaluated(posterior, frames)
        energy, force = _sigmas(posterior, found, frames)
        none = {"energy_aleatoric": 0 * energy, "force_aleatoric": 0 * force}
        sigma = {"energy_sigma": energy, "energy_epistemic": energy, "force_sigma": force, "force_epistemic": force}
        return replace(plain, **sigma, **none)

    return Method(predict, predict, about | {"ridge": found.ridge, "alpha_forces": found.alpha_forces})


def _sigmas(posterior: Posterior, found: Rigidity, frames: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Of energies [F] and force components [A, 3]."""
    energy, force = [], []
    for structure in frames:  # one by one: features are arrays of frames of one size
        own = features_of(posterior, [structure])
        energy.append(found.energy_sigma(own))
        force.append(found.forces_sigma(own).reshape(-1, 3))
    return np.concatenate(energy), np.concatenate(force)
