"""The linearised posterior: exact Bayesian inference around each sampled network.

Around the weights θ_c of a chain the network is nearly linear in small changes δ of its weights,

    f(x; θ_c + δ) ≈ f(x; θ_c) + J(x) δ,     J = ∂f/∂θ at θ_c,

and with the noise of the heads and a Gaussian prior on δ the posterior of δ is Gaussian and exact
(``linear_regression.py``).  The labels are all energies, forces and learned stresses of the training frames; noise
Λ = λ σ² with the σ of the heads.  What stands for the posterior is a set of pairs (θ_c, δ) with δ drawn from it, and a
prediction is that of the *linearised* network (``linearised.py``).

The heads describe the misfit of θ_c before the correction, so σ would be too wide afterwards.  λ and one factor each
for the σ of forces, energies and stress are those that maximise the likelihood of held-back frames.  Without held-back
frames λ is ``DEFAULT_NOISE``, and σ is scaled by √λ s, as the regression itself has it.

This is an approximation: the neighbourhood of each θ_c alone, as far as the network is linear there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log, pi
from typing import Any

import numpy as np
import torch

from equibayes.bayes.heads import ENERGY_HEAD, FORCE_HEAD, HIDDEN, STRESS_HEAD
from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number
from equibayes.data.resident import ResidentData
from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.posterior.file import Posterior
from equibayes.posterior.fit_novelty import with_novelty
from equibayes.posterior.jacobian import ENERGY, FORCE, STRESS, Progress, Rows, rows_of
from equibayes.posterior.linear_regression import Regression, gram
from equibayes.posterior.sample import frame_mark
from equibayes.sampling.noise import NoiseKey, standard_normal

NOISES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
"""Candidates for λ."""
DEFAULT_NOISE = 0.3
FEWEST_HELD = 5
STREAM_WEIGHTS, STREAM_LABELS = 6, 7
MOST_LABELS = 6000
"""The Gram matrix of so many labels takes 0.3 GB and its factors some seconds; more frames are left out."""

Steps = Callable[[Sequence[int]], Progress]


@dataclass(frozen=True, eq=False)
class Draws:
    """What one centre gives for every candidate λ.

    scale    [Λ]        s²
    delta    [Λ, n, P]  draws of δ, float32
    members  [Λ, n, H]  predictions of the held-back labels
    held     the held-back labels, None without any
    """

    scale: np.ndarray
    delta: torch.Tensor
    members: np.ndarray
    held: Rows | None


@dataclass(frozen=True)
class Choice:
    """λ (its number in NOISES), factors on the σ of forces, energies and stress, ln p of the held-back labels."""

    noise: int
    forces: float
    energy: float
    stress: float
    log_likelihood: float | None


def refine(
    posterior: Posterior,
    train: Dataset,
    held: Dataset | None = None,
    *,
    draws: int = 2,
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
    progress: Callable[[str, int], Progress] = lambda what, total: iter,
) -> Posterior:
    """The linearised posterior around the last sample of each chain, with so many draws around each.

    train     the frames that the posterior learned from, and new ones
    held      frames that it did not learn from, for λ and the size of σ
    progress  (what, how many) → a wrapper of an iterable that shows progress
    """
    if posterior.dropout or posterior.tangent is not None:
        raise InputError("only a posterior or ensemble of whole networks can be refined, and only once")
    learned = train
    train = _as_many_as_fit(learned, say)
    centres = _centres(posterior)
    known = _resident(posterior, train)
    left = None if held is None or len(held) < FEWEST_HELD else _resident(posterior, held)
    found = []
    for number, centre in enumerate(centres):
        what = f"network {number + 1} of {len(centres)}"
        key = NoiseKey(seed, [number])
        found.append(draws_around(posterior, posterior.samples[centre], known, left, draws, key, progress, what))
    choice = choose(found)
    refined = _assembled(posterior, centres, found, choice, train, draws)
    return with_novelty(refined, learned, learned[:0] if held is None else held)


def draws_around(
    posterior: Posterior,
    position: torch.Tensor,
    train: ResidentData,
    held: ResidentData | None,
    count: int,
    key: NoiseKey,
    progress: Callable[[str, int], Progress],
    what: str,
) -> Draws:
    """Draws of δ at one centre, for every candidate λ."""
    model = posterior.model
    rows = rows_of(model, position, train, progress(what, len(train)))
    gram_matrix, size = gram(rows.jacobian), len(position)
    residual = torch.from_numpy(rows.label - rows.value)
    variance = torch.from_numpy(rows.sigma).square()
    ε = _normals(key, STREAM_WEIGHTS, count, size).float() * outside(rows)
    ν = _normals(key, STREAM_LABELS, count, len(residual))
    projected = (rows.jacobian @ ε.mT).double()
    scales, deltas = [], []
    for noise in NOISES:
        regression = Regression.of(gram_matrix, residual, noise * variance)
        correction = regression.draw(projected, ν.mT)
        deltas.append(regression.scale**0.5 * ε + (rows.jacobian.mT @ correction.float()).mT)
        scales.append(regression.scale)
    delta = torch.stack(deltas)
    unseen = None if held is None else rows_of(model, position, held)
    members = np.zeros((len(NOISES), count, 0))
    if unseen is not None:
        members = unseen.value + (delta @ unseen.jacobian.mT).double().numpy()
    return Draws(np.array(scales), delta, members, unseen)


def outside(rows: Rows) -> torch.Tensor:
    """[P] 1 for weights that some label depends on: not those of the noise heads, or of species that are not there."""
    return (rows.jacobian != 0).any(0).float()


def choose(found: Sequence[Draws]) -> Choice:
    """λ and the factors on σ of each kind that maximise the likelihood of the held-back labels."""
    if found[0].held is None:
        number = NOISES.index(DEFAULT_NOISE)
        factor = float(np.sqrt(DEFAULT_NOISE * np.mean([each.scale[number] for each in found])))
        return Choice(number, factor, factor, factor, None)
    held = found[0].held
    aleatoric = np.mean([np.square(each.held.sigma) for each in found if each.held is not None], 0)
    choices = []
    for number in range(len(NOISES)):
        members = np.concatenate([each.members[number] for each in found])
        error, epistemic = members.mean(0) - held.label, members.var(0)
        factors, total = [], 0.0
        for kind in (FORCE, ENERGY, STRESS):
            own = held.kind == kind
            factor, log_p = best_factor(error[own], epistemic[own], aleatoric[own])
            factors.append(factor)
            total += log_p
        choices.append(Choice(number, factors[FORCE], factors[ENERGY], factors[STRESS], total))
    return max(choices, key=lambda choice: choice.log_likelihood or -np.inf)


def best_factor(error: np.ndarray, epistemic: np.ndarray, aleatoric: np.ndarray) -> tuple[float, float]:
    """The factor c on the aleatoric σ that maximises Σ ln N(error; 0, epistemic + c² aleatoric), and that maximum.

    epistemic, aleatoric: variances.  Within a factor of 100 either way, to 1 %.
    """
    if not len(error):
        return 1.0, 0.0
    factors = np.exp(np.linspace(-log(100), log(100), 921))
    variance = epistemic + np.square(factors)[:, None] * aleatoric
    log_p = -0.5 * (np.square(error) / variance + np.log(2 * pi * variance)).sum(1)
    best = int(log_p.argmax())
    return float(factors[best]), float(log_p[best])


def _centres(posterior: Posterior) -> list[int]:
    """The last sample of every chain."""
    last = {int(chain): number for number, chain in enumerate(posterior.chain)}
    return sorted(last.values())


def _as_many_as_fit(train: Dataset, say: Callable[[str], None]) -> Dataset:
    """Frames, evenly spread, with at most MOST_LABELS labels."""
    labels = np.cumsum([3 * len(s) + 1 + 6 * (s.stress_label is not None) for s in train])
    if labels[-1] <= MOST_LABELS:
        return train
    count = max(1, int(len(train) * MOST_LABELS / labels[-1]))
    say(
        f"{labels[-1]} labels in {counted(len(train), 'frame')}; {count} of them are used (at most {MOST_LABELS} labels)"
    )
    return train.subset(np.unique(np.linspace(0, len(train) - 1, count).astype(int)))


def _resident(posterior: Posterior, data: Dataset) -> ResidentData:
    network, reference = posterior.network, posterior.reference
    return ResidentData(
        data if posterior.baseline is None else posterior.baseline.taken_off(data),
        r_max=network.r_max,
        species_of={atomic_number(name): index for index, name in enumerate(network.type_names)},
        reference=[reference.total(structure.numbers) for structure in data],
        dtype=posterior.samples.dtype,
        device="cpu",
    )


def _normals(key: NoiseKey, stream: int, count: int, size: int) -> torch.Tensor:
    return torch.cat([standard_normal(key, draw, size, stream=stream, dtype=torch.float64) for draw in range(count)])


def _assembled(
    posterior: Posterior, centres: list[int], found: Sequence[Draws], choice: Choice, train: Dataset, draws: int
) -> Posterior:
    """Pairs (θ_c, δ) in turn from the chains, with the factors on σ in the last bias of the heads."""
    order = [(number, draw) for draw in range(draws) for number in range(len(centres))]
    rows = torch.tensor([centres[number] for number, _ in order])
    delta = torch.stack([found[number].delta[choice.noise, draw] for number, draw in order])
    samples = posterior.samples[rows].clone()
    views = posterior.model.layout.views(samples)
    factors = {FORCE_HEAD: choice.forces, ENERGY_HEAD: choice.energy, STRESS_HEAD: choice.stress}
    for head in posterior.model.heads:
        views[f"{head}.bias{len(HIDDEN)}"].add_(log(factors[head]))
    about: dict[str, Any] = {
        "noise": NOISES[choice.noise],
        "force_sigma_factor": choice.forces,
        "energy_sigma_factor": choice.energy,
        **({"stress_sigma_factor": choice.stress} if posterior.model.learns_stress else {}),
        "prior_scale": [float(each.scale[choice.noise]) ** 0.5 for each in found],
        "frames": len(train),
        "draws": draws,
    }
    marks = {*posterior.data.get("frame_marks", ()), *(frame_mark(structure) for structure in train)}
    return replace(
        posterior,
        samples=samples,
        chain=posterior.chain[rows],
        step=posterior.step[rows],
        tangent=delta.to(samples.dtype),
        data=posterior.data | {"frame_marks": sorted(marks)},
        verdict=posterior.verdict | {"tangent": about},
        calibration=None,
    )
