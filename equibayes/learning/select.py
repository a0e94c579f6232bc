"""Selection of the structures to be labelled, each with a reason.

| kind      | mode structure                           | mode batch                                                 |
|-----------|------------------------------------------|------------------------------------------------------------|
| sigma     | the largest σ of an atom                 | the largest σ that remains after labelling those before it |
| bald      | the most information about the posterior | the most information in addition to those before it        |
| stress    | the largest σ of the stress              | the largest σ that remains after labelling those before it |
| diversity | –                                        | σ times feature distance from labelled or chosen ones      |
| novelty   | the largest novelty of an atom           | the largest novelty once those before it are known         |
| random    | any, as a control                        | the same                                                   |

`screen.py` decides before which structures may be sent at all.  In a batch, a structure all of whose atoms have nearly
the environments of atoms in those before it waits until nothing else is left (`environments.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from equibayes.errors import InputError
from equibayes.learning.diversity import farthest_points
from equibayes.learning.environments import Spread
from equibayes.learning.information import (
    best_of,
    greedy_information,
    greedy_sigma,
    greedy_stress,
    information,
    whitened,
)
from equibayes.posterior.novelty import NO_NOVELTY
from equibayes.posterior.prediction import Prediction
from equibayes.simulate.trust import DEVIATIONS, Deviation
from equibayes.units import GPA

KINDS = ("sigma", "bald", "stress", "diversity", "novelty", "random")
MODES = ("batch", "structure")


@dataclass(frozen=True)
class Choice:
    """index: of the structure among the proposals;  score: in the unit given in the reason."""

    index: int
    score: float
    reason: str


def deviations(predictions: Sequence[Prediction], deviation: str = "total") -> list[Deviation]:
    """The deviation of each structure, from its `total` or `epistemic` σ."""
    return [Deviation.of(getattr(p, DEVIATIONS[deviation]), p.novelty) for p in predictions]


def select_structures(
    kind: str,
    candidates: Sequence[int],
    count: int,
    *,
    predictions: Sequence[Prediction] = (),
    mode: str = "batch",
    seed: int | Sequence[int] = 0,
    points: np.ndarray | None = None,
    known_points: np.ndarray | None = None,
    spread: Spread | None = None,
) -> list[Choice]:
    """At most `count` of the candidates (indices of proposals), in the order of choice.

    predictions   of all proposals, with members; not needed for random
    points        [candidates, d] features of the candidates, for diversity
    known_points  [m, d] features of the labelled structures
    spread        of the candidates, to keep those of a batch apart
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
    batch, spread = mode == "batch", spread if mode == "batch" else None
    if kind == "diversity":
        chosen = _by_diversity(own, count, points, known_points, spread)
    elif kind == "novelty":
        chosen = _by_novelty(own, count, spread)
    else:
        by = {"sigma": _by_sigma, "stress": _by_stress, "bald": _by_information}[kind]
        chosen = by(own, count, batch, spread)
    return [Choice(int(candidates[i]), value, reason) for i, value, reason in chosen]


_Ranked = list[tuple[int, float, str]]
"""Index among the candidates, score, reason."""


def _by_sigma(own: Sequence[Prediction], count: int, batch: bool, spread: Spread | None) -> _Ranked:
    now = deviations(own)
    if batch:
        order, values = greedy_sigma([_z(p) for p in own], [p.forces_aleatoric for p in own], count, spread)
    else:
        order, values = _largest([each.largest for each in now], count)
    reasons = [f"σ of atom {now[i].atom} is {_mev(now[i].largest)} meV/Å" for i in order]
    left = [f", {_mev(value)} after labelling those before it" if batch else "" for value in values]
    return [(i, value, reason + rest) for i, value, reason, rest in zip(order, values, reasons, left)]


def _by_stress(own: Sequence[Prediction], count: int, batch: bool, spread: Spread | None) -> _Ranked:
    now = [_sigma_of_stress(prediction) for prediction in own]
    if batch:
        forces, stress = [_z(p) for p in own], [_z_of_stress(p) for p in own]
        order, values = greedy_stress(forces, stress, _noise(own), count, spread)
    else:
        order, values = _largest(now, count)
    left = [f", {_gpa(value)} after labelling those before it" if batch else "" for value in values]
    reasons = [f"σ of the stress is {_gpa(now[i])} GPa{rest}" for i, rest in zip(order, left)]
    return list(zip(order, values, reasons))


def _sigma_of_stress(prediction: Prediction) -> float:
    """Root mean square of the six components, √2 times those off the diagonal (bayes/likelihood.py), eV/Å³."""
    if prediction.stress_std is None or not np.any(prediction.stress_aleatoric):
        raise InputError(
            "select stress: needs structures that are periodic in three directions, and a posterior that learned stress; "
            "label the first structures with stress, or select by sigma"
        )
    return float(np.sqrt(np.square(prediction.stress_std).sum() / 6))


def _noise(own: Sequence[Prediction]) -> list[float]:
    """Aleatoric σ of a component of the stress, eV/Å³."""
    return [float(np.asarray(prediction.stress_aleatoric)[0, 0]) for prediction in own]


def _z_of_stress(prediction: Prediction) -> np.ndarray:
    """[k, 9]: the squares of a row add up to those of the six components."""
    assert prediction.members is not None
    stress = prediction.members["stress"]
    return (stress - stress.mean(0)).reshape(len(stress), 9) / _noise([prediction])[0]


def _by_information(own: Sequence[Prediction], count: int, batch: bool, spread: Spread | None) -> _Ranked:
    z = [_z(p) for p in own]
    whole = [information(each) for each in z]
    order, values = greedy_information(z, count, spread) if batch else _largest(whole, count)
    added = [f", {value:.3g} in addition to those before it" if batch else "" for value in values]
    return [(i, value, f"its label gives {whole[i]:.3g} nats{more}") for i, value, more in zip(order, values, added)]


def _by_novelty(own: Sequence[Prediction], count: int, spread: Spread | None) -> _Ranked:
    each = [p.novelty for p in own if p.novelty is not None]
    if len(each) < len(own):
        raise InputError(f"select novelty: {NO_NOVELTY}")
    chosen: list[int] = []
    found = []
    while len(chosen) < count:
        worth = np.array([x.max() for x in each]) if spread is None else spread.novelty_left(each)
        best = best_of(worth, chosen, spread)
        atom = int(each[best].argmax())
        left = "" if spread is None else f", {worth[best]:.2f} once those before it are known"
        found.append((best, float(worth[best]), f"novelty of atom {atom} is {each[best][atom]:.2f}{left}"))
    return found


def _by_diversity(
    own: Sequence[Prediction],
    count: int,
    points: np.ndarray | None,
    known_points: np.ndarray | None,
    spread: Spread | None,
) -> _Ranked:
    if points is None:
        raise InputError("select diversity: needs the features of the candidates")
    sigma = np.array([deviation.largest for deviation in deviations(own)])
    chosen = zip(*farthest_points(points, sigma, count, known_points, spread))
    return [(i, value, f"σ up to {_mev(sigma[i])} meV/Å, {_distance(value, sigma[i])}") for i, value in chosen]


def _largest(values: Sequence[float], count: int) -> tuple[list[int], list[float]]:
    order = np.argsort([-value for value in values], kind="stable")[:count].tolist()
    return order, [values[i] for i in order]


def _z(prediction: Prediction) -> np.ndarray:
    if prediction.members is None:
        raise InputError("select: predictions with members are needed")
    return whitened(prediction.members["forces"], prediction.forces_aleatoric)


def _distance(value: float, sigma: float) -> str:
    if not np.isfinite(value):
        return "the largest; nothing is labelled yet"
    return f"{value / sigma:.2g} spreads away from all labelled or chosen structures" if sigma > 0 else "σ is zero"


def _mev(value: float) -> str:
    return f"{1e3 * value:.1f}"


def _gpa(value: float) -> str:
    return f"{value / GPA:.3g}"
