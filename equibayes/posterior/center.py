"""The network that a prior is centred on: a foundation model by name, a checkpoint, or a posterior."""

import hashlib
from pathlib import Path

import torch

from equibayes.posterior.file import Posterior, load
from equibayes.posterior.pretrained import baseline_of, file_of, is_pretrained, load_pretrained
from equibayes.run.center import Center


def load_center(name: str | None) -> Center | None:
    """What `prior.center` names; None where it names nothing.

    Weights have symmetries, so the mean over the samples of a posterior has no meaning: each chain is centred on a
    sample of its own, the latest first, and how far samples of one chain differ says how wide the prior is.
    """
    if name is None:
        return None
    if is_pretrained(name):
        found = load_pretrained(name)
        digest, baseline = _digest(file_of(name)[0]), baseline_of(found)
        return Center(name, found.config, found.weights, digest, origin=found.origin, baseline=baseline)
    path, _ = file_of(name)
    posterior = load(path)
    weights = posterior.samples[_latest_first(posterior)].double()
    return Center(
        name, posterior.network, weights, _digest(path), spread_in_chains(posterior), baseline=posterior.baseline
    )


def spread_in_chains(posterior: Posterior) -> torch.Tensor | None:
    """[P]: standard deviation over the samples of one chain, RMS over chains and over each array of weights; None where
    no chain has two samples.  Linearised samples of a chain have the same weights and differ in how far these move."""
    values = posterior.samples if posterior.tangent is None else posterior.tangent
    squares, count = torch.zeros(posterior.samples.shape[1], dtype=torch.float64), 0
    for chain in posterior.chain.unique():
        own = values[posterior.chain == chain].double()
        squares += (own - own.mean(0)).square().sum(0)
        count += len(own) - 1
    if not count:
        return None
    pieces = (squares / count).split(posterior.model.layout.sizes)
    return torch.cat([piece.mean().sqrt().expand(len(piece)) for piece in pieces])


def _latest_first(posterior: Posterior) -> list[int]:
    """Rows of the samples: the last of every chain, then the one before, …"""
    order = sorted(range(len(posterior)), key=lambda row: -int(posterior.step[row]))
    turns: dict[int, int] = {}
    ranked = []
    for row in order:
        chain = int(posterior.chain[row])
        turns[chain] = turns.get(chain, -1) + 1
        ranked.append((turns[chain], chain, row))
    return [row for _, _, row in sorted(ranked)]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
