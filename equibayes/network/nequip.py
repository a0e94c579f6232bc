"""NequIP, top to bottom: species and edges in, one energy and one invariant feature vector per atom out.

    embedding → interaction blocks → scalars v_i → readout → atomic energy E_i;
    E = Σ E_i,   F = −∂E/∂r,   stress = ∂E/∂ε / V

for K weight sets at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import sqrt

import torch

from equibayes.data.graph import Graph
from equibayes.network.config import NetworkConfig
from equibayes.network.constants import Constant
from equibayes.network.convolution import Neighbors, coupling_matrices
from equibayes.network.harmonics import EdgeGeometry, edge_geometry, radial_basis
from equibayes.network.interaction import block_parameters, interaction_block
from equibayes.network.irreps import SCALAR, plan_layers
from equibayes.network.weights import Layout, Parameter, Weights


@dataclass(frozen=True)
class NetworkOutput:
    """Output of the network for a graph with K weight sets.

    energy   [K, B] float64  eV, without the energy reference (see data/reference.py)
    forces   [K, N, 3]       eV/Å, in the precision of the graph's vectors
    virial   [K, B, 3, 3]    eV, likewise; ∂E/∂strain: divided by the volume it is the stress in ASE's sign
    features [K, N, C]       invariant features v_i, the input of the deviation heads
    invariants [1, N, S]     scalars after every block, one after the other, of the first weight set
    """

    energy: torch.Tensor
    forces: torch.Tensor
    virial: torch.Tensor
    features: torch.Tensor
    invariants: torch.Tensor


class NequIP:
    """The network as a function of its weights; holds no weights itself."""

    def __init__(self, config: NetworkConfig, *, prune: bool = True) -> None:
        if not config.type_names:
            raise ValueError("the network needs type_names: see fit_scales")
        self.config = config
        self.layers = plan_layers(config, prune=prune)
        self.triples = sorted({path.triple for layer in self.layers for path in layer.paths})
        self.layout = Layout(self._parameters())
        self.energy_scale = Constant(_per_type(config.per_type_energy_scales, config.type_names, 1.0))
        self.neighbor_norm = Constant(_per_type(config.avg_num_neighbors, config.type_names, 1.0).rsqrt())

    @property
    def invariants(self) -> int:
        """The scalars of an atom after all blocks, S."""
        return sum(layer.outputs[SCALAR] for layer in self.layers)

    def _parameters(self) -> Iterator[Parameter]:
        config = self.config
        yield Parameter("embedding", (len(config.type_names), config.embedding_channels), per_type=True)
        # stored as the deviation from n, so that the prior is centred on the ordinary Bessel functions
        yield Parameter("bessel", (config.num_bessels,), start=0.0)
        for number, layer in enumerate(self.layers):
            yield from block_parameters(config, layer, f"layer{number}")
        yield Parameter("readout", (config.channels[0], 1), 1 / sqrt(config.channels[0]))
        if config.per_type_energy_shifts_trainable:
            yield Parameter("shift", (len(config.type_names), 1), start=0.0, per_type=True)

    def atomic_energies(
        self,
        weights: Weights,
        graph: Graph,
        length: torch.Tensor,
        harmonics: torch.Tensor,
        feature_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Energies [K, N] in eV, features [K, N, C] and invariants [1, N, S] from edge lengths [K, N, D] and harmonics
        [K, N, D, M].

        Lengths may be more precise than the weights: radial basis and readout are then as precise, the layers are not.
        feature_mask [K, N, C] multiplies the features before readout and heads read them (dropout).
        """
        config, chains = self.config, length.shape[0]
        neighbors = Neighbors(graph.sender, graph.reverse, chains)
        species_mask = one_hot(graph.species, len(config.type_names)).to(harmonics)
        norm = self.neighbor_norm.like(harmonics)[graph.species]  # [G, N], of the atom that sends
        norm = neighbors.gather(norm[..., None].expand(chains, -1, 1))
        matrices = coupling_matrices(harmonics * norm, self.triples)
        order = torch.arange(1, config.num_bessels + 1, device=length.device)
        frequencies = weights["bessel"].to(length) + order
        cutoff = config.r_max, config.polynomial_cutoff_p, config.xplor_on
        basis = radial_basis(length, frequencies, *cutoff).to(harmonics)

        features = {SCALAR: (species_mask.expand(chains, -1, -1) @ weights["embedding"])[:, :, None, :]}
        invariants = []
        for number, layer in enumerate(self.layers):
            name = f"layer{number}"
            features = interaction_block(layer, name, weights, features, basis, matrices, neighbors, species_mask)
            invariants.append(features[SCALAR][:1, :, 0].detach())
        scalars = features[SCALAR][:, :, 0]
        if feature_mask is not None:
            scalars = scalars * feature_mask
        # the last sum over channels: with lengths in float64 it adds no rounding of its own to the energy
        energy = (scalars.to(length) @ weights["readout"].to(length))[:, :, 0]
        if config.per_type_energy_shifts_trainable:
            energy = energy + (species_mask.expand(chains, -1, -1).to(length) @ weights["shift"].to(length))[:, :, 0]
        return energy * self.energy_scale.like(energy)[graph.species], scalars, torch.cat(invariants, 2)

    def energies_of_atoms(
        self, weights: Weights, graph: Graph, *, feature_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Energies [K, N] in eV, without derivatives."""
        chains = weights["embedding"].shape[0]
        geometry = edge_geometry(graph.vector, self.config.l_max)
        harmonics = geometry.harmonics.to(weights["embedding"]).expand(chains, -1, -1, -1)
        length = geometry.length.expand(chains, -1, -1)
        return self.atomic_energies(weights, graph, length, harmonics, feature_mask)[0]

    def __call__(
        self, weights: Weights, graph: Graph, *, differentiable: bool = False, feature_mask: torch.Tensor | None = None
    ) -> NetworkOutput:
        """Energy, forces and virial; with `differentiable` they can be differentiated with respect to the weights.

        A graph in float64 under weights in float32 gives energies that are smoother in the positions: lengths,
        harmonics and the sums that make forces of their derivatives are not rounded, only what enters the layers is.
        """
        chains = weights["embedding"].shape[0]
        geometry = edge_geometry(graph.vector, self.config.l_max)
        with torch.enable_grad():
            # The energy depends on positions through lengths and harmonics alone.  Each chain gets its own copy to
            # differentiate by; how these depend on positions is known in closed form and the same for all chains.
            length = geometry.length.expand(chains, -1, -1).clone().requires_grad_()
            harmonics = geometry.harmonics.to(weights["embedding"]).expand(chains, -1, -1, -1).clone().requires_grad_()
            atomic, features, invariants = self.atomic_energies(weights, graph, length, harmonics, feature_mask)
            by_length, by_harmonics = torch.autograd.grad(
                atomic.sum(), (length, harmonics), create_graph=differentiable, materialize_grads=True
            )
            pull = edge_gradient(geometry, by_length, by_harmonics)
            neighbors = Neighbors(graph.sender, graph.reverse, chains)
            forces = (pull - neighbors.opposite(pull)).sum(2)
            virial = sum_over_structures(_outer(graph.vector, pull), graph)
            energy = sum_over_structures(atomic.double(), graph)
        output = NetworkOutput(energy, forces, virial, features, invariants)
        if differentiable:
            return output
        return NetworkOutput(*(getattr(output, each.name).detach() for each in fields(NetworkOutput)))


def one_hot(index: torch.Tensor, size: int) -> torch.Tensor:
    """[…] int -> […, size] bool, all False beyond the size; torch's own checks its input, which synchronises a GPU."""
    return index[..., None] == torch.arange(size, device=index.device)


def edge_gradient(geometry: EdgeGeometry, by_length: torch.Tensor, by_harmonics: torch.Tensor) -> torch.Tensor:
    """∂E/∂vector [K, N, D, 3] by the chain rule from ∂E/∂r [K, N, D] and ∂E/∂Y [K, N, D, M]."""
    angular = (by_harmonics[..., None, :].to(geometry.gradient) @ geometry.gradient)[..., 0, :]
    return angular + by_length[..., None] * geometry.direction


def sum_over_structures(values: torch.Tensor, graph: Graph) -> torch.Tensor:
    """Per atom [K, N, …] -> per structure [K, B, …]; padding atoms are left out."""
    chains = values.shape[0]
    member = one_hot(graph.structure, graph.num_structures)  # [G, N, B]
    member = member.to(values).transpose(1, 2).expand(chains, -1, -1)
    total = torch.bmm(member, values.reshape(chains, values.shape[1], -1))
    return total.reshape(chains, graph.num_structures, *values.shape[2:])


def _outer(vector: torch.Tensor, pull: torch.Tensor) -> torch.Tensor:
    """Σ_d vector ⊗ pull for each atom, symmetrised: [K, N, 3, 3]."""
    chains, atoms, slots, _ = pull.shape
    vector = vector.expand(chains, -1, -1, -1).reshape(-1, slots, 3)
    product = torch.bmm(vector.transpose(1, 2), pull.reshape(-1, slots, 3)).reshape(chains, atoms, 3, 3)
    return (product + product.transpose(2, 3)) / 2


def _per_type(value: float | dict[str, float] | None, type_names: list[str], default: float) -> torch.Tensor:
    """[T] float64 of a setting that is one number, one per type, or not given."""
    if isinstance(value, dict):
        return torch.tensor([value[name] for name in type_names], dtype=torch.float64)
    return torch.full((len(type_names),), default if value is None else value, dtype=torch.float64)
