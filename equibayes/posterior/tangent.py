"""The linearised posterior: exact Bayesian inference around each sampled network.

Around the weights θ_c of a chain the network is nearly linear in small changes δ of its weights,

    f(x; θ_c + δ) ≈ f(x; θ_c) + J(x) δ,     J = ∂f/∂θ at θ_c,

and with the noise of the heads and a Gaussian prior on δ the posterior of δ is Gaussian and exact
(``linear_regression.py``).  Labels are all forces, energies and, where they are learned, stresses of the training
frames; noise Λ = λ σ² with the σ of the heads.  Where there are many weights, δ is restricted to random directions
(``subspace.py``), and of many labels a random share is used (``tangent_plan.py``), others around each θ_c.

What stands for the posterior is a set of pairs (θ_c, δ) with δ drawn from it, and a prediction is that of the
*linearised* network (``linearised.py``).  Draws come in pairs on either side of the mean of δ, so that an even number
of them has this mean.

The heads describe the misfit of θ_c before the correction, so σ would be too wide afterwards.  λ and one factor each
for the σ of forces, energies and stress are those that maximise the likelihood of held-back frames, among the λ for
which |δ| ≤ ``FARTHEST`` |θ|.  A smaller λ may still help frames like those held back, but a network that was moved so
far is wrong by much more where frames are unlike them.  Without held-back frames λ is ``DEFAULT_NOISE``, and σ is
scaled by √λ s, as the regression itself has it.

This is an approximation: the neighbourhood of each θ_c alone, as far as the network is linear there.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log, pi
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from equibayes.bayes.heads import ENERGY_HEAD, FORCE_HEAD, HIDDEN, STRESS_HEAD
from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number
from equibayes.data.resident import ResidentData
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.posterior.fit_novelty import with_novelty
from equibayes.posterior.jacobian import FORCES, KINDS, Sight, blocks_of, rows_of
from equibayes.posterior.linear_regression import FewLabels, ManyLabels, Solution
from equibayes.posterior.marks import frame_mark
from equibayes.posterior.subspace import Subspace
from equibayes.posterior.tangent_plan import NOISES, Plan
from equibayes.posterior.tangent_store import Draws, Store
from equibayes.sampling.noise import NoiseKey, standard_normal

DEFAULT_NOISE = 0.1
FEWEST_HELD = 5
LARGE = 1.0
"""Size of δ relative to θ that is warned about where no held-back frame shows that predictions are better."""
FARTHEST = 2.0
"""Largest size of δ relative to θ (measured: results/solids)."""
STREAM_WEIGHTS, STREAM_LABELS = 6, 7
HEADS = (FORCE_HEAD, ENERGY_HEAD, STRESS_HEAD)
"""In the order of KINDS."""


class Watch(Protocol):
    """Shows the progress of a loop."""

    def __call__(self, items: Iterable[int], what: str) -> Iterable[int]: ...


@dataclass(frozen=True)
class Choice:
    """λ (its number in NOISES), a factor on the σ of each kind of label, ln p of the held-back labels."""

    noise: int
    factors: tuple[float, float, float]
    log_likelihood: float | None


def refine(
    posterior: Posterior,
    train: Dataset,
    held: Dataset | None = None,
    *,
    draws: int = 2,
    seed: int = 0,
    directions: int | None = None,
    labels: int | None = None,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    watch: Watch = lambda items, what: items,
) -> Posterior:
    """The linearised posterior around the last sample of each chain, with so many draws around each.

    train       the frames that the posterior learned from, and new ones; those whose labels have a known noise are left
                out
    held        frames that it did not learn from, for λ and the size of σ
    directions  random directions of the weights that δ consists of, at most; None: see `tangent_plan`
    labels      that are learned, at most: of more, all energies and a random share of the forces; None: likewise
    folder      keeps what is computed, network by network, so that an interrupted call goes on there
    """
    if posterior.dropout:
        raise InputError("only a posterior or ensemble of whole networks can be refined, not dropout masks of one")
    posterior = replace(posterior, tangent=None)  # of one that was refined before, the same networks are refined again
    train = train.right
    plan = Plan.of(posterior, train, directions, labels)
    plan.check()
    known = resident(posterior, train)
    left = None if held is None or len(held) < FEWEST_HELD else resident(posterior, held)
    say(f"{plan.words()}, about {plan.seconds(posterior, known):.0f} s")
    store = Store.of(folder, posterior, train, held if left else None, plan, draws, seed)
    chosen, found = centres(posterior), []
    for number, centre in enumerate(chosen):
        around = store.load(number)
        if around is None:
            inference = Inference(posterior, centre, plan, NoiseKey(seed, [number]))
            inference.learn(known, partial(watch, what=f"network {number + 1} of {len(chosen)}"))
            around = inference.draws(draws, left)
            store.save(number, around)
        found.append(around)
    spaces = [space_of(posterior, plan, NoiseKey(seed, [number])) for number in range(len(chosen))]
    choice = choose(found, relative_sizes(posterior.samples[torch.tensor(chosen)], spaces, found))
    refined = _assembled(posterior, chosen, spaces, found, choice, train, plan, draws)
    return with_novelty(refined, train, train[:0] if held is None else held)


class Inference:
    """Inference around one network: more frames can be learned at any time."""

    def __init__(self, posterior: Posterior, centre: int, plan: Plan, key: NoiseKey) -> None:
        """centre: the number of the sample;  key: of its random numbers."""
        self.model, self.position, self.key = posterior.model, posterior.samples[centre], key
        self.space = space_of(posterior, plan, key)
        self.few, self.share = plan.few, plan.share
        self.found: FewLabels | ManyLabels | None = None if plan.few else ManyLabels(self.space.size)

    def learn(self, data: ResidentData, progress: Callable[[Iterable[int]], Iterable[int]] = iter) -> None:
        """Learn the labels of some frames."""
        sight = Sight(data, self.share, seed_of(self.key))
        if isinstance(self.found, ManyLabels):
            for rows in blocks_of(self.model, self.position, sight, self.space, progress):
                self.found.add(rows.jacobian, rows.residual, rows.variance)
            return
        rows = rows_of(self.model, self.position, sight, self.space, progress)
        if self.found is None:
            self.found = FewLabels(rows.jacobian, rows.residual, rows.variance)
        else:
            self.found.add(rows.jacobian, rows.residual, rows.variance)

    def draws(self, count: int, held: ResidentData | None) -> Draws:
        """Draws of u for every candidate λ, and what they predict for held-back frames."""
        solutions = self._solve(-(-count // 2))
        moves = torch.stack([each.draws()[:count] for each in solutions]).float()
        rows = None if held is None else rows_of(self.model, self.position, Sight(held), self.space)
        members = None if rows is None else rows.value + moves.double() @ rows.jacobian.double().mT
        kept = None if rows is None else replace(rows, jacobian=rows.jacobian[:, :0])
        return Draws(torch.tensor([each.scale for each in solutions], dtype=torch.float64), moves, members, kept)

    def _solve(self, count: int) -> list[Solution]:
        """For every candidate λ."""
        assert self.found is not None
        normal = _normals(self.key, STREAM_WEIGHTS, count, self.space.size)
        of_labels = _normals(self.key, STREAM_LABELS, count, len(self.found)) if self.few else None
        return self.found.solve(NOISES, normal, of_labels)


def space_of(posterior: Posterior, plan: Plan, key: NoiseKey) -> Subspace:
    """The directions around a network."""
    return Subspace.of(posterior.model, plan.directions, seed_of(key))


def seed_of(key: NoiseKey) -> int:
    """Of choices around a network that are not Gaussian."""
    (chain,) = key.chains
    return key.seed * 1_000_003 + chain


def relative_sizes(centres: torch.Tensor, spaces: Sequence[Subspace], found: Sequence[Draws]) -> list[float]:
    """|δ| / |θ| for every candidate λ, over all networks and draws; centres: θ_c [networks, P]."""
    squares = sum(
        torch.stack([space.expand(moves).double().square().sum(1).mean() for moves in each.moves])
        for space, each in zip(spaces, found, strict=True)
    )
    return (torch.as_tensor(squares) / centres.double().square().sum()).sqrt().tolist()


def choose(found: Sequence[Draws], sizes: Sequence[float]) -> Choice:
    """λ and the factors on σ that maximise the likelihood of the held-back labels, among the λ that move the weights by
    at most FARTHEST; sizes: by how much each does, relative to the weights."""
    held = found[0].held
    if held is None:
        number = NOISES.index(DEFAULT_NOISE)
        factor = float((DEFAULT_NOISE * torch.stack([each.scale[number] for each in found]).mean()).sqrt())
        return Choice(number, (factor, factor, factor), None)
    aleatoric = torch.stack([each.held.sigma.square() for each in found if each.held is not None]).mean(0).numpy()
    choices = []
    for number in range(len(NOISES)):
        members = torch.cat([each.members[number] for each in found if each.members is not None]).numpy()
        error, epistemic = members.mean(0) - held.label.numpy(), members.var(0)
        factors, total = [], 0.0
        for kind in range(len(KINDS)):
            own = held.kind.numpy() == kind
            factor, log_p = best_factor(error[own], epistemic[own], aleatoric[own])
            factors.append(factor)
            total += log_p
        choices.append(Choice(number, (factors[0], factors[1], factors[2]), total))
    near = [choice for choice, size in zip(choices, sizes, strict=True) if size <= FARTHEST] or choices[:1]
    return max(near, key=lambda choice: choice.log_likelihood or -np.inf)


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


def centres(posterior: Posterior) -> list[int]:
    """The last sample of every chain."""
    last = {int(chain): number for number, chain in enumerate(posterior.chain)}
    return sorted(last.values())


def resident(posterior: Posterior, data: Dataset) -> ResidentData:
    network, reference = posterior.network, posterior.reference
    return ResidentData(
        data if posterior.baseline is None else posterior.baseline.taken_off(data),
        r_max=network.r_max,
        species_of={atomic_number(name): index for index, name in enumerate(network.type_names)},
        reference=[reference.total(structure.numbers) for structure in data],
        stress=posterior.model.learns_stress,
        dtype=posterior.samples.dtype,
        device="cpu",
    )


def warnings_of(about: dict[str, Any]) -> list[str]:
    """Where the linearisation does not hold; about: `tangent` of the verdict."""
    errors, size = about["held_back_force_mae"], about["relative_size"]
    found = []
    if errors and errors[1] > errors[0]:
        found.append(
            f"the linearised networks have a larger force error on held-back frames ({1e3 * errors[1]:.1f} meV/Å) than "
            f"the networks themselves ({1e3 * errors[0]:.1f}): the linearisation fails; use the unrefined posterior"
        )
    if not errors and size > LARGE:
        found.append(
            f"the labels move the weights by {100 * size:.0f} % of their size, and there are no held-back frames to see "
            "whether the linearisation holds: name some, or sample again with all labels"
        )
    return found


def held_back_errors(found: Sequence[Draws], noise: int) -> tuple[float, float] | None:
    """Mean absolute force error on held-back frames, eV/Å: of the mean of the centres, and of the linearised mean."""
    held = found[0].held
    if held is None:
        return None
    before = torch.stack([each.held.value for each in found if each.held is not None]).mean(0)
    after = torch.cat([each.members[noise] for each in found if each.members is not None]).mean(0)
    own = held.kind == FORCES
    error_before, error_after = ((each - held.label)[own].abs().mean() for each in (before, after))
    return float(error_before), float(error_after)


def _normals(key: NoiseKey, stream: int, count: int, size: int) -> torch.Tensor:
    return torch.cat([standard_normal(key, draw, size, stream=stream, dtype=torch.float64) for draw in range(count)])


def _assembled(
    posterior: Posterior,
    chosen: list[int],
    spaces: Sequence[Subspace],
    found: Sequence[Draws],
    choice: Choice,
    train: Dataset,
    plan: Plan,
    draws: int,
) -> Posterior:
    """Pairs (θ_c, δ) in turn from the chains, with the factors on σ in the last bias of the heads."""
    order = [(number, draw) for draw in range(draws) for number in range(len(chosen))]
    rows = torch.tensor([chosen[number] for number, _ in order])
    moves = [spaces[number].expand(found[number].moves[choice.noise, draw, None]) for number, draw in order]
    samples = posterior.samples[rows].clone()
    views = posterior.model.layout.views(samples)
    for head, factor in zip(HEADS, choice.factors):
        if head in posterior.model.heads:
            views[f"{head}.bias{len(HIDDEN)}"].add_(log(factor))
    about: dict[str, Any] = {
        "noise": NOISES[choice.noise],
        "force_sigma_factor": choice.factors[0],
        "energy_sigma_factor": choice.factors[1],
        **({"stress_sigma_factor": choice.factors[2]} if posterior.model.learns_stress else {}),
        "prior_scale": [float(each.scale[choice.noise]) ** 0.5 for each in found],
        "frames": len(train),
        "labels": plan.labels,
        "share_of_forces": plan.share,
        "directions": plan.directions,
        "weights": plan.weights,
        "draws": draws,
        "relative_size": float(torch.cat(moves).norm() / samples.norm()),
        "held_back_force_mae": held_back_errors(found, choice.noise),
    }
    marks = {*posterior.data.get("frame_marks", ()), *(frame_mark(structure) for structure in train)}
    return replace(
        posterior,
        samples=samples,
        chain=posterior.chain[rows],
        step=posterior.step[rows],
        tangent=torch.cat(moves).to(samples.dtype),
        data=posterior.data | {"frame_marks": sorted(marks)},
        verdict=posterior.verdict | {"tangent": about},
        calibration=None,
    )
