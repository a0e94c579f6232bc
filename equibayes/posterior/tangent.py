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

The heads describe the misfit of θ_c before the correction, so σ would be too wide afterwards: λ and factors on σ are
chosen by held-back frames (``tangent_choice.py``).

This is an approximation: the neighbourhood of each θ_c alone, as far as the network is linear there.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from typing import Any, Protocol

import torch

from equibayes.bayes.heads import ENERGY_HEAD, FORCE_HEAD, HIDDEN, STRESS_HEAD
from equibayes.bayes.prior import group_widths
from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number
from equibayes.data.resident import ResidentData
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.posterior.fit_novelty import with_novelty
from equibayes.posterior.jacobian import FORCES, Sight, blocks_of, rows_of
from equibayes.posterior.linear_regression import FewLabels, ManyLabels, Progress, Solution
from equibayes.posterior.marks import frame_mark
from equibayes.posterior.subspace import Subspace
from equibayes.posterior.tangent_choice import DEFAULT_NOISE, Choice, choose, held_back_errors
from equibayes.posterior.tangent_plan import NOISES, Plan
from equibayes.posterior.tangent_store import Draws, Store
from equibayes.sampling.noise import NoiseKey, standard_normal

FEWEST_HELD = 5
STREAM_WEIGHTS, STREAM_LABELS = 6, 7
LEAST_RMS = 1e-3
"""Of an array of weights; those that are all 0 move too."""
HEADS = (FORCE_HEAD, ENERGY_HEAD, STRESS_HEAD)
"""In the order of KINDS."""


class Watch(Protocol):
    """Shows the progress of a loop."""

    def __call__(self, items: Iterable[int], what: str) -> Iterable[int]: ...


def refine(
    posterior: Posterior,
    train: Dataset,
    held: Dataset | None = None,
    *,
    draws: int = 2,
    seed: int = 0,
    directions: int | None = None,
    labels: int | None = None,
    last_layer: bool = False,
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
    last_layer  only the weights of the last layer and the readout move: cheaper, with a part of the gain
    folder      keeps what is computed, network by network, so that an interrupted call goes on there
    """
    if posterior.dropout:
        raise InputError("only a posterior or ensemble of whole networks can be refined, not dropout masks of one")
    posterior = replace(posterior, tangent=None)  # of one that was refined before, the same networks are refined again
    train = train.right
    plan = Plan.of(posterior, train, directions, labels, last_layer=last_layer)
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
            stage = partial(_stage, watch, f"network {number + 1} of {len(chosen)}")
            inference.learn(known, stage)
            around = inference.draws(draws, left, stage)
            store.save(number, around)
        found.append(around)
    spaces = [space_of(posterior, row, plan, NoiseKey(seed, [number])) for number, row in enumerate(chosen)]
    choice = choose(found, relative_sizes(posterior.samples[torch.tensor(chosen)], spaces, found))
    refined = assembled(posterior, chosen, spaces, found, choice, train, plan, draws)
    return with_novelty(refined, train, train[:0] if held is None else held)


def _stage(watch: Watch, network: str, what: str) -> Progress:
    """Shows the progress of a stage of the work on one network."""
    return lambda items: watch(items, f"{network}: {what}")


def _silent(what: str) -> Progress:
    return iter


class Inference:
    """Inference around one network: more frames can be learned at any time."""

    def __init__(self, posterior: Posterior, centre: int, plan: Plan, key: NoiseKey) -> None:
        """centre: the number of the sample;  key: of its random numbers."""
        self.model, self.position, self.key = posterior.model, posterior.samples[centre], key
        self.space = space_of(posterior, centre, plan, key)
        self.few, self.share = plan.few, plan.share
        self.found: FewLabels | ManyLabels | None = None if plan.few else ManyLabels(self.space.size)
        self.frames, self.kinds = torch.zeros(2, 0, dtype=torch.int64).unbind()  # of the labels, where they are few

    def learn(self, data: ResidentData, stage: Callable[[str], Progress] = _silent) -> None:
        """Learn the labels of some frames."""
        sight = Sight(data, self.share, seed_of(self.key))
        if isinstance(self.found, ManyLabels):
            for rows in blocks_of(self.model, self.position, sight, self.space, stage("labels")):
                self.found.add(rows.jacobian, rows.residual, rows.variance)
            return
        rows = rows_of(self.model, self.position, sight, self.space, stage("labels"))
        known = int(self.frames.max()) + 1 if len(self.frames) else 0
        self.frames, self.kinds = torch.cat([self.frames, known + rows.frame]), torch.cat([self.kinds, rows.kind])
        if self.found is None:
            self.found = FewLabels(rows.jacobian, rows.residual, rows.variance, stage("Gram matrix"))
        else:
            self.found.add(rows.jacobian, rows.residual, rows.variance)

    def draws(self, count: int, held: ResidentData | None, stage: Callable[[str], Progress] = _silent) -> Draws:
        """Draws of u for every candidate λ, and what they predict for held-back frames."""
        solutions = self._solve(-(-count // 2), stage("noise levels"))
        moves = torch.stack([each.draws()[:count] for each in solutions]).float()
        rows = None if held is None else rows_of(self.model, self.position, Sight(held), self.space)
        members = None if rows is None else rows.value + moves.double() @ rows.jacobian.double().mT
        kept = None if rows is None else replace(rows, jacobian=rows.jacobian[:, :0])
        scale = torch.tensor([each.scale for each in solutions], dtype=torch.float64)
        return Draws(scale, moves, members, kept, self._left_out() if held is None else None)

    def _left_out(self) -> torch.Tensor | None:
        """[2, F]: see `Draws`."""
        if not isinstance(self.found, FewLabels) or self.share < 1:
            return None
        return torch.stack(self.found.left_out(DEFAULT_NOISE, self.frames))[:, self.kinds == FORCES]

    def _solve(self, count: int, progress: Progress) -> list[Solution]:
        """For every candidate λ."""
        assert self.found is not None
        normal = _normals(self.key, STREAM_WEIGHTS, count, self.space.size)
        of_labels = _normals(self.key, STREAM_LABELS, count, len(self.found)) if self.few else None
        return self.found.solve(NOISES, normal, of_labels, progress)


def space_of(posterior: Posterior, centre: int, plan: Plan, key: NoiseKey) -> Subspace:
    """The directions around a network.

    Where the prior is relative, weights move in proportion to its widths: arrays of networks that were trained
    elsewhere differ in size by a factor of 100.
    """
    prior = posterior.config.get("prior", {})
    width = relative_widths(posterior, centre, prior) if prior.get("relative") else None
    return Subspace.of(posterior.model, plan.directions, seed_of(key), plan.groups, width)


def relative_widths(posterior: Posterior, centre: int, prior: dict[str, Any]) -> torch.Tensor:
    """[P]: RMS of the array that each weight of a sample belongs to, times the width of its group over that of most."""
    layout = posterior.model.layout
    pieces = posterior.samples[centre].double().split(layout.sizes)
    rms = torch.cat([each.square().mean().sqrt().clamp(min=LEAST_RMS).expand(len(each)) for each in pieces])
    usual = prior["width"]
    return rms * group_widths(layout.groups, prior["group_widths"], layout.size, usual) / usual


def seed_of(key: NoiseKey) -> int:
    """Of choices around a network that are not Gaussian."""
    (chain,) = key.chains
    return key.seed * 1_000_003 + chain


def relative_sizes(networks: torch.Tensor, spaces: Sequence[Subspace], found: Sequence[Draws]) -> list[float]:
    """|δ| / |θ| for every candidate λ, over all networks and draws; networks: θ_c [K, P]."""
    moved = [
        torch.stack([space.expand(u).square().sum(1).mean() for u in each.moves]) for space, each in zip(spaces, found)
    ]
    return (torch.stack(moved).sum(0) / networks.square().sum()).sqrt().tolist()


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


def _normals(key: NoiseKey, stream: int, count: int, size: int) -> torch.Tensor:
    return torch.cat([standard_normal(key, draw, size, stream=stream, dtype=torch.float64) for draw in range(count)])


def narrowed(moves: torch.Tensor, factor: float) -> torch.Tensor:
    """Draws [n, m] nearer to their mean, which is that of every pair."""
    if factor == 1.0:
        return moves
    mean = moves[: max(1, len(moves) // 2 * 2)].mean(0)
    return mean + factor * (moves - mean)


def assembled(
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
    drawn = [narrowed(each.moves[choice.noise], choice.narrowed) for each in found]
    moves = [spaces[number].expand(drawn[number][draw, None]) for number, draw in order]
    samples = posterior.samples[rows].clone()
    views = posterior.model.layout.views(samples)
    for head, factor in zip(HEADS, choice.factors):
        if head in posterior.model.heads:
            views[f"{head}.bias{len(HIDDEN)}"].add_(log(factor))
    about: dict[str, Any] = {
        "noise": NOISES[choice.noise],
        "force_sigma_factor": choice.factors[0],
        "energy_sigma_factor": choice.factors[1],
        "narrowed": choice.narrowed,
        **({"stress_sigma_factor": choice.factors[2]} if posterior.model.learns_stress else {}),
        "prior_scale": [float(each.scale[choice.noise]) ** 0.5 for each in found],
        "frames": len(train),
        "labels": plan.labels,
        "share_of_forces": plan.share,
        "directions": plan.directions,
        "weights": plan.weights,
        **({"groups": list(plan.groups)} if plan.groups else {}),
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
