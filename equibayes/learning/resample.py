"""A posterior of more data from the posterior of less: chains go on from its samples instead of beginning at random.

What is sampled stays the same: the prior is that of the settings, N(0, I), and the likelihood that of all the data.  Only the beginning
differs, so the burn-in can be short.  The mass is gathered anew in its first part: the new data change the gradients it is made of.
Noise and minibatches are drawn anew too.  With those of the run before, every restart would push the chains the same way again: over
seventeen labels on the fly σ grew from 143 to 232 meV/Å.

The scales of the network (type_names, avg_num_neighbors, per_type_energy_scales) and what an energy of 0 means are those of the earlier
posterior: with other scales the same weights would be another function.
"""

import hashlib
from dataclasses import dataclass, replace

import torch

from equibayes.config import check, setting
from equibayes.data.dataset import Dataset
from equibayes.data.elements import formula
from equibayes.posterior.center import load_center
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample_prepared
from equibayes.run import Run
from equibayes.run.prepare import lay_out
from equibayes.run.settings import SampleConfig


@dataclass(frozen=True)
class ResampleSettings:
    """How a posterior follows when labels were added."""

    warm: bool = setting(True, "begin with the samples of the round before; false: from random weights, at full length")
    burn_in: float = setting(0.25, "length of the burn-in, as a fraction of sample.burn_in.steps", above=0, at_most=1)
    initial: float = setting(0.3, "initial learning rate, as a fraction of sample.burn_in.initial", above=0, at_most=1)
    freeze_mass: float = setting(0.5, "fraction of this burn-in after which the mass is constant", above=0, at_most=1)

    def __post_init__(self) -> None:
        check(self, "resample")


def warm_config(config: SampleConfig, settings: ResampleSettings) -> SampleConfig:
    """The same chains with a short burn-in that needs no noise-free start."""
    full = config.burn_in
    initial = max(settings.initial * full.initial, full.final)
    return replace(
        config,
        burn_in=replace(
            full,
            steps=max(1, round(settings.burn_in * full.steps)),
            initial=initial,
            decay="exponential",  # few steps at a large γ, which would lead away from where the chains begin
            freeze_mass=settings.freeze_mass,
            noise_free=0.0,
            early=0.0,
        ),
    )


def starts(posterior: Posterior, chains: int) -> torch.Tensor:
    """[K, P]: for every chain its own latest sample; one that gave none begins where another ended."""
    latest = {int(chain): row for row, chain in enumerate(posterior.chain.tolist())}
    order = [latest[chain] for chain in sorted(latest)]
    rows = [latest.get(chain, order[chain % len(order)]) for chain in range(chains)]
    return posterior.samples[rows]


def resample(
    before: Posterior,
    train: Dataset,
    validation: Dataset,
    config: SampleConfig,
    settings: ResampleSettings | None = None,
    *,
    seen: Dataset | None = None,
    run: Run | None = None,
) -> Posterior:
    """The posterior given `train`, by chains that begin with the samples of `before`.

    seen  what `before` was conditioned on; where `train` has formulas that were not among it, energies are referred to zero anew
    """
    same_formulas = seen is None or _formulas(train) <= _formulas(seen)
    prepared = lay_out(
        train,
        validation,
        replace(warm_config(config, settings or ResampleSettings()), seed=seed_of(config.seed, train)),
        network=before.network,
        reference=before.reference if same_formulas else None,
        center=load_center(config.prior.center),
    )
    data = Dataset.concatenate([train, validation])
    return sample_prepared(prepared, data, run or Run(), start=starts(before, config.chains))


def seed_of(seed: int, train: Dataset) -> int:
    """Another one for every set of frames, and the same for the same."""
    digest = hashlib.sha256(f"{seed} {train.fingerprint()}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _formulas(data: Dataset) -> set[str]:
    return {formula(structure.numbers) for structure in data}
