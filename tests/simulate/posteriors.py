"""Posteriors for tests of simulations.

ethanol.posterior is a tiny network that has learned ethanol to 118 meV/Å, enough for the molecule to hold together;
made by

    equibayes sample bundled:ethanol@0:300 -o ethanol.posterior --network tiny --chains 2 --samples 4 --threads 1 \\
        data.validation=20 burn_in.steps=8000 burn_in.batch_size=4 cycles.length=200 cycles.batch_size=4
        output.records=5 \\ network.model_dtype=float64 output.half_precision=true
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from ase import Atoms

from equibayes.bayes.model import StochasticModel
from equibayes.data.reference import EnergyReference
from equibayes.network.config import preset
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.fit_novelty import with_novelty
from tests.models import full_config, random_weights
from tests.runs import ethanol_frames
from tests.samples import SPECIES_OF

ETHANOL = Path(__file__).parent / "ethanol.posterior"


def ethanol_start() -> Atoms:
    """A frame of the bundled set."""
    return ethanol_frames(1)[0].to_atoms()


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


def linearised(posterior: Posterior) -> Posterior:
    """The same networks, each linearised and moved by a random δ."""
    generator = torch.Generator().manual_seed(0)
    tangent = 0.05 * torch.randn(posterior.samples.shape, generator=generator, dtype=torch.float64)
    return replace(posterior, tangent=tangent)


@cache
def ethanol_posterior() -> Posterior:
    """The same with the novelty that is fitted when sampling ends; the file is older."""
    return with_novelty(load(ETHANOL), ethanol_frames(300)[:280], ethanol_frames(300)[280:], device="cpu")
