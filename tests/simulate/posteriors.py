"""Posteriors for tests of simulations, made in no time."""

from pathlib import Path

import torch

from equibayes.bayes.model import StochasticModel
from equibayes.data.reference import EnergyReference
from equibayes.network.config import preset
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample
from tests.models import full_config, random_weights
from tests.runs import ethanol_frames, small_config
from tests.samples import SPECIES_OF


def random_posterior(k: int = 3, **network: object) -> Posterior:
    """k random networks in float64 that know all sample species, with scales and energies that differ between them."""
    model = StochasticModel(full_config(preset("tiny", **network)))
    return Posterior(
        samples=random_weights(model, k),
        chain=torch.arange(k),
        step=torch.zeros(k, dtype=torch.int64),
        network=model.config,
        reference=EnergyReference("given", {z: -10.0 * z for z in SPECIES_OF}),
    )


def trained_posterior(path: Path) -> Posterior:
    """A tiny network that has seen some ethanol: molecules hold together for a while.  float64, 4 samples of 2 chains."""
    changes = {"burn_in": {"steps": 1500, "initial": 3e-2, "final": 1e-4}, "cycles": {"length": 60}}
    config = small_config(changes, {"network": {"model_dtype": "float64"}, "data": {"validation": 10}})
    posterior = sample(ethanol_frames(110), config, device="cpu")
    posterior.save(path)
    return posterior
