"""From predictions to the structures that shall be labelled, each with a reason.

| kind      | mode structure                             | mode batch                                                         |
|-----------|--------------------------------------------|--------------------------------------------------------------------|
| sigma     | the largest σ of an atom                   | the largest σ that remains once those before it are labelled       |
| bald      | the most information about the posterior   | the most information beyond what those before it give              |
| diversity | –                                          | σ times distance from all that is labelled or chosen, in features  |
| random    | any, as a control                          | the same                                                           |

What may be sent at all is decided before, in `screen.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from equibayes.errors import InputError
from equibayes.learning.diversity import farthest_points
from equibayes.learning.information import greedy_information, greedy_sigma, information, whitened
from equibayes.posterior.predict import Prediction
from equibayes.simulate.trust import Deviation

KINDS = ("sigma", "bald", "diversity", "random")
MODES = ("batch", "structure")


@dataclass(frozen=True)
class Choice:
    """index: of the structure among the proposals;  score: in the unit that the reason names."""

    index: int
    score: float
    reason: str


def deviations(predictions: Sequence[Prediction], deviation: str = "total") -> list[Deviation]:
    """Of each structure; `total` or `epistemic` says which σ is looked at."""
    field = {"total": "forces_std", "epistemic": "forces_epistemic"}[deviation]
    return [Deviation.of(getattr(prediction, field)) for prediction in predictions]


def choose(
    kind: str,
    candidates: Sequence[int],
    count: int,
    *,
    predictions: Sequence[Prediction] = (),
    mode: str = "batch",
    seed: int | Sequence[int] = 0,
    points: np.ndarray | None = None,
    known_points: np.ndarray | None = None,
) -> list[Choice]:
    """At most `count` of the candidates (indices of the proposals), in the order of choice.

    predictions   of all proposals, with members; not needed for random
    points        [candidates, d] where each candidate stands in feature space, for diversity
    known_points  [m, d] where the labelled structures stand
    """
    if kind not in KINDS:
        raise InputError(f"select {kind}: choose one of {', '.join(KINDS)}")
    if mode not in MODES:
        raise InputError(f"mode {mode}: choose one of {', '.join(MODES)}")
    count = min(count, len(candidates))
    if not count:
        return []
    if kind == "random":
        order = np.random.default_rng(seed).permutation(len(candidates))[:count]
        return [Choice(int(candidates[i]), float("nan"), "drawn at random") for i in order]
    own = [predictions[i] for i in candidates]
    if kind == "sigma":
        return _by_sigma(candidates, own, count, mode)
    if kind == "bald":
        return _by_information(candidates, own, count, mode)
    if points is None:
        raise InputError("select diversity: needs the features of the candidates")
    sigma = np.array([deviation.largest for deviation in deviations(own)])
    picked, values = farthest_points(points, sigma, count, known_points)
    return [
        Choice(int(candidates[i]), value, f"σ up to {_mev(sigma[i])} meV/Å, {_apart(value, sigma[i])}")
        for i, value in zip(picked, values)
    ]


def _by_sigma(candidates: Sequence[int], own: Sequence[Prediction], count: int, mode: str) -> list[Choice]:
    now = deviations(own)
    if mode == "structure":
        order = np.argsort([-each.largest for each in now], kind="stable")[:count].tolist()
        values = [now[i].largest for i in order]
    else:
        order, values = greedy_sigma([_z(p) for p in own], [p.forces_aleatoric for p in own], count)
    return [
        Choice(
            int(candidates[i]),
            value,
            f"σ of atom {now[i].atom} is {_mev(now[i].largest)} meV/Å"
            + (f", {_mev(value)} once those before it are labelled" if mode == "batch" else ""),
        )
        for i, value in zip(order, values)
    ]


def _by_information(candidates: Sequence[int], own: Sequence[Prediction], count: int, mode: str) -> list[Choice]:
    whole = [information(_z(p)) for p in own]
    if mode == "structure":
        order = np.argsort([-each for each in whole], kind="stable")[:count].tolist()
        values = [whole[i] for i in order]
    else:
        order, values = greedy_information([_z(p) for p in own], count)
    return [
        Choice(
            int(candidates[i]),
            value,
            f"its label tells {whole[i]:.3g} nats"
            + (f", {value:.3g} beyond those before it" if mode == "batch" else ""),
        )
        for i, value in zip(order, values)
    ]


def _z(prediction: Prediction) -> np.ndarray:
    if prediction.members is None:
        raise InputError("select: predictions with members are needed")
    return whitened(prediction.members["forces"], prediction.forces_aleatoric)


def _apart(value: float, sigma: float) -> str:
    if not np.isfinite(value):
        return "the largest; nothing is labelled yet"
    return f"{value / sigma:.2g} spreads away from all that is labelled or chosen" if sigma > 0 else "no σ at all"


def _mev(value: float) -> str:
    return f"{1e3 * value:.1f}"
