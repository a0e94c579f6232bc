"""Update a posterior with more data: chains continue from its samples instead of starting at random weights.

The target is unchanged: the prior of the settings, N(0, I), and the likelihood of all data.  Only the start differs,
so that the burn-in can be short.  The mass is estimated again in its first part, since the new data change the
gradients.  Noise and minibatches also use a new seed.  With the old one, every restart would push the chains in the
same direction: over seventeen labels on the fly, σ grew from 143 to 232 meV/Å.

The scales of the network (type_names, avg_num_neighbors, per_type_energy_scales) and the energy reference are those
of the earlier posterior: with other scales the same weights would be another function.
"""

import hashlib
from dataclasses import dataclass, replace

import torch

from equibayes.config import check, setting
from equibayes.data.dataset import Dataset
from equibayes.data.elements import formula
from equibayes.errors import InputError
from equibayes.labelling.baseline import Baseline
from equibayes.posterior.center import load_center
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample_prepared
from equibayes.run import Run
from equibayes.run.prepare import lay_out
from equibayes.run.settings import SampleConfig


@dataclass(frozen=True)
class ResampleSettings:
    """How a posterior is updated when labels are added."""

    warm: bool = setting(True, "begin with the samples of the round before; false: from random weights, at full length")
    every: int = setting(
        1,
        "sample again at every so many rounds (on the fly: labels); in between, the labels are learned by exact inference "
        "around the chains, as equibayes refine does it",
        at_least=1,
        limit=10**6,
    )
    burn_in: float = setting(
        0.25, "length of the burn-in, as a fraction of sample.burn_in.steps and epochs", above=0, at_most=1
    )
    initial: float = setting(0.3, "initial learning rate, as a fraction of sample.burn_in.initial", above=0, at_most=1)
    decay: str = setting("exponential", "decay of the learning rate in this burn-in", ("exponential", "linear"))
    noise_free: float = setting(0.0, "first fraction of this burn-in without noise and prior", at_least=0, at_most=1)
    freeze_mass: float = setting(0.5, "fraction of this burn-in after which the mass is constant", above=0, at_most=1)

    def __post_init__(self) -> None:
        check(self, "resample")


def warm_config(config: SampleConfig, settings: ResampleSettings) -> SampleConfig:
    """The same settings with a short burn-in."""
    full = config.burn_in
    initial = max(settings.initial * full.initial, full.final)
    return replace(
        config,
        burn_in=replace(
            full,
            steps=max(1, round(settings.burn_in * full.steps)),
            epochs=None if full.epochs is None else max(1, round(settings.burn_in * full.epochs)),
            initial=initial,
            decay=settings.decay,
            freeze_mass=settings.freeze_mass,
            noise_free=settings.noise_free,
            early=0.0,
        ),
    )


def starts(posterior: Posterior, chains: int) -> torch.Tensor:
    """[K, P]: the latest sample of each chain; a chain without samples starts from that of another."""
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
    """The posterior given `train`, by chains that start from the samples of `before`.

    seen  the data of `before`; if `train` contains new formulas, the energy reference is fitted again
    """
    wanted = Baseline.of(config.prior.baseline, config.prior.baseline_settings)
    if wanted != before.baseline:
        raise InputError(
            f"prior.baseline={wanted}: the posterior to continue from corrects {before.baseline}; use the same"
        )
    same_formulas = seen is None or _formulas(train) <= _formulas(seen)
    config = with_width_of(config, before)
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


def with_width_of(config: SampleConfig, before: Posterior) -> SampleConfig:
    """A width of the prior that was found by the errors of its centre stays when there are more data."""
    found = before.config.get("prior", {}).get("width")
    if config.prior.width is not None or found is None:
        return config
    return replace(config, prior=replace(config.prior, width=found))


def seed_of(seed: int, train: Dataset) -> int:
    """A seed that depends on the frames: equal for equal sets, different otherwise."""
    digest = hashlib.sha256(f"{seed} {train.fingerprint()}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _formulas(data: Dataset) -> set[str]:
    return {formula(structure.numbers) for structure in data}
