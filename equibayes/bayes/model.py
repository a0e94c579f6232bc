"""The stochastic model: NequIP for the means, heads for the deviations, one flat weight vector for all of it."""

from dataclasses import dataclass
from itertools import chain

import torch

from equibayes.bayes.covariance import COVARIANCE_HEAD, couplings, covariance_parameters
from equibayes.bayes.heads import (
    ENERGY_HEAD,
    FORCE_HEAD,
    STRESS_HEAD,
    head_parameters,
    log_sigma_energy,
    log_sigma_forces,
    log_sigma_stress,
)
from equibayes.data.graph import Graph
from equibayes.network.config import NetworkConfig
from equibayes.network.nequip import NequIP
from equibayes.network.weights import Layout, Weights


@dataclass(frozen=True)
class ModelOutput:
    """The predicted density for a graph under K weight sets.

    energy           [K, B] float64  eV, without the energy reference
    forces           [K, N, 3]       eV/Å
    stress           [K, B, 3, 3]    eV/Å³, ASE's sign; NaN where there is no volume
    log_sigma_energy [K, B]          ln(σ_E / eV)
    log_sigma_forces [K, N]          ln(σ_F / (eV/Å)), the same for the three components
    log_sigma_stress [K, B]          ln(σ_S / (eV/Å³)), see `likelihood.STRESS_COMPONENTS`; NaN where there is no
                                     volume, or where the model does not learn stress
    features         [K, N, C]
    invariants       [1, N, S]       scalars after every block of the first weight set (see posterior/novelty.py)
    couplings        [K, N, D, 1 or 3] what makes the noise of forces anisotropic (see covariance.py); None where it is
                                     isotropic
    """

    energy: torch.Tensor
    forces: torch.Tensor
    stress: torch.Tensor
    log_sigma_energy: torch.Tensor
    log_sigma_forces: torch.Tensor
    log_sigma_stress: torch.Tensor
    features: torch.Tensor
    invariants: torch.Tensor
    couplings: torch.Tensor | None = None

    @property
    def sigma_energy(self) -> torch.Tensor:
        """[K, B] eV."""
        return self.log_sigma_energy.exp()

    @property
    def sigma_forces(self) -> torch.Tensor:
        """[K, N] eV/Å."""
        return self.log_sigma_forces.exp()

    @property
    def sigma_stress(self) -> torch.Tensor:
        """[K, B] eV/Å³."""
        return self.log_sigma_stress.exp()


class StochasticModel:
    """Graph × weights [K, P] -> predicted density.  A function of its weights; holds none."""

    def __init__(
        self,
        config: NetworkConfig,
        start_sigma: float = 1.0,
        start_sigma_energy: float | None = None,
        start_sigma_virial: float | None = None,
    ) -> None:
        """start_sigma: initial deviations, eV/Å and (unless given separately) eV, of the virial per atom; the RMS force
        of the data is a good value.  It enters the initial weights alone, not the function."""
        self.config = config
        self.network = NequIP(config)
        start = {ENERGY_HEAD: start_sigma_energy, STRESS_HEAD: start_sigma_virial}
        heads = (head_parameters(name, config.channels[0], start.get(name) or start_sigma) for name in self.heads)
        of_edges = covariance_parameters(config.covariance, config.channels[0])
        self.layout = Layout([*self.network.layout.parameters, *chain.from_iterable(heads), *of_edges])

    @property
    def learns_stress(self) -> bool:
        return bool(self.config.stress_head)

    @property
    def isotropic(self) -> bool:
        """Whether the noise of a force is the same in all directions and independent of that of other atoms."""
        return self.config.covariance == "isotropic"

    def couplings(self, weights: Weights, features: torch.Tensor, graph: Graph) -> torch.Tensor | None:
        """As in the output, from features [K, N, C]."""
        return None if self.isotropic else couplings(weights, features, graph, self.config.r_max)

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the noise heads; that of the stress is the last, so that other models keep their parameters."""
        return (FORCE_HEAD, ENERGY_HEAD, *((STRESS_HEAD,) if self.learns_stress else ()))

    @property
    def noise_networks(self) -> tuple[str, ...]:
        """Groups of parameters that predict noise: the heads, and the network of edges of a covariance."""
        return self.heads if self.isotropic else (*self.heads, COVARIANCE_HEAD)

    def __call__(
        self,
        flat: torch.Tensor,
        graph: Graph,
        *,
        differentiable: bool = False,
        feature_mask: torch.Tensor | None = None,
    ) -> ModelOutput:
        """Evaluate for stored weights [K, P]; with `differentiable` every output can be differentiated by them.

        feature_mask [K, N, C] multiplies the features that readout and heads see (the dropout baseline).
        """
        with torch.set_grad_enabled(differentiable):
            weights = self.layout.forward_weights(flat)
            return self.forward(weights, graph, differentiable=differentiable, feature_mask=feature_mask)

    def forward(
        self, weights: Weights, graph: Graph, *, differentiable: bool = False, feature_mask: torch.Tensor | None = None
    ) -> ModelOutput:
        """The same for weights already scaled for the forward pass: callers with many evaluations prepare them once."""
        with torch.set_grad_enabled(differentiable):
            base = self.network(weights, graph, differentiable=differentiable, feature_mask=feature_mask)
            volume, energy = graph.volume[..., None, None], log_sigma_energy(weights, base.features, graph)
            unknown = torch.full_like(energy, torch.nan)
            return ModelOutput(
                energy=base.energy,
                forces=base.forces,
                # not simply virial / volume: where there is no volume, gradients of the other outputs must stay finite
                stress=torch.where(volume.isnan(), volume, base.virial / volume.nan_to_num(1.0)),
                log_sigma_energy=energy,
                log_sigma_forces=log_sigma_forces(weights, base.features),
                log_sigma_stress=log_sigma_stress(weights, base.features, graph) if self.learns_stress else unknown,
                features=base.features,
                invariants=base.invariants,
                couplings=self.couplings(weights, base.features, graph),
            )
