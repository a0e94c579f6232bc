"""The objectives of the baselines, as potentials for the same runner at temperature 0 (which is AMSGrad).

| baseline | objective | prediction |
|---|---|---|
| `ensemble` | −ln likelihood with the deviation heads, K networks from K random starts | mixture over the K networks |
| `dropout`  | the same with dropout on the features, one network (appendix A.4) | mixture over k random masks |
| `point`    | squared errors of energy and forces, one network, average over the last steps | one network, σ constant |
"""

from collections.abc import Sequence

import torch

from equibayes.bayes.likelihood import gaussian_log_density
from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.bayes.potential import Dropout, Potential
from equibayes.bayes.prior import Flat
from equibayes.data.graph import Graph
from equibayes.data.resident import Labels, ResidentData
from equibayes.network.nequip import sum_over_structures
from equibayes.posterior.dropout import RATE, STREAM_TRAIN, dropout_mask
from equibayes.sampling.noise import NoiseKey


class DropoutPotential(Potential):
    """−ln likelihood with dropout between the NequIP base and everything that reads its features."""

    kernels = "gaussian"

    def __init__(self, model: StochasticModel, data: ResidentData, seed: int, rate: float = RATE) -> None:
        super().__init__(model, data, Flat())
        self.dropout: Dropout = Dropout(rate, seed, STREAM_TRAIN)

    def mask(self, step: int, chains: Sequence[int], batch_size: int) -> torch.Tensor:
        shape = (batch_size * self.data.num_atoms, self.model.config.channels[0])
        return dropout_mask(NoiseKey(self.dropout.seed, chains), step, shape, self.dropout.rate, self.data.forces)


class PointPotential(Potential):
    """Squared errors, as NequIP is trained: a Gaussian with constant σ, one for forces and one for energies per atom.

    The ratio of the two is NequIP's default, equal weights of mean squared force error (per component, (eV/Å)²) and mean squared
    energy error per atom (eV²).
    """

    kernels = "squares"

    def __init__(self, model: StochasticModel, data: ResidentData) -> None:
        super().__init__(model, data, Flat())

    def log_likelihood(self, output: ModelOutput, graph: Graph, labels: Labels) -> torch.Tensor:
        known = ~torch.isnan(labels.energy)
        atoms = graph.num_atoms
        # Σ over 3n components of (ΔF)²/2 weighs n times 3/2 the mean; the energy term gets the weight of one mean, times 3n
        energy = (labels.energy.nan_to_num() - output.energy) / atoms
        scale = (3 * atoms).double()
        forces = gaussian_log_density(
            labels.forces - output.forces, torch.zeros_like(output.log_sigma_forces)[..., None]
        )
        per_structure = sum_over_structures(forces.sum(-1).double(), graph)
        return per_structure + torch.where(known, scale * (-0.5 * energy**2), 0.0)
