"""Last-layer prediction rigidity: the uncertainty of a trained network from the features that its last layer reads.

The energy is linear in the last layer, E = fᵀw, and so are forces, F = gᵀw with g = −∂f/∂r.  With the other weights
held fixed, the squared loss is a linear regression in w, and its Hessian tells how rigid each prediction is (Bigi,
Chong, Ceriotti and Grasselli 2024):

    H = Σ w_E f fᵀ + w_F Σ g gᵀ + ζ² I        over training frames and their force components, weights as in the loss
    σ_E² = α_E² fᵀ H⁻¹ f,   σ_F² = α_F² gᵀ H⁻¹ g

α and ζ maximise the likelihood of the held-back frames: ζ that of the forces, α_F and α_E each their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from equibayes.data.graph import graph_of
from equibayes.data.structures import Structure
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import batches, joined

RIDGES = 10.0 ** np.arange(-10, 1)
"""ζ² to choose from, in units of the mean eigenvalue of H without it."""
EDGES_AT_ONCE = 10_000


@dataclass(frozen=True, eq=False)
class Features:
    """Of n frames of one molecule: energy [n, C] and forces [n, 3a, C] in 1/Å; times the last layer (eV): energies,
    forces."""

    energy: np.ndarray
    forces: np.ndarray


def last_layer(posterior: Posterior) -> np.ndarray:
    """[C] in eV: what the features of the (first) network are multiplied by."""
    return posterior.model.layout.forward_weights(posterior.samples[:1].double())["readout"][0, :, 0].numpy()


def features_of(posterior: Posterior, structures: Sequence[Structure]) -> Features:
    """Features and their gradients, in float64: C copies of the network, of which each reads out one feature."""
    weights = posterior.model.layout.forward_weights(posterior.samples[:1].double())
    count = weights["readout"].shape[1]
    weights = {name: value.expand(count, *value.shape[1:]) for name, value in weights.items()}
    weights["readout"] = torch.eye(count, dtype=torch.float64)[..., None]
    network = posterior.model.network
    known = {"r_max": posterior.network.r_max, "species_of": posterior.species_of}
    energy, forces = [], []
    for batch in batches(((s, graph_of(s, **known)) for s in structures), EDGES_AT_ONCE // count):
        frames, graph = joined(batch)
        output = network(weights, graph)
        energy.append(output.energy.T.numpy())
        forces.append(output.forces.permute(1, 2, 0).reshape(len(frames), -1, count).numpy())
    return Features(np.concatenate(energy), np.concatenate(forces))


def hessian(known: Features, energy_weight: float, force_weight: float = 1.0) -> np.ndarray:
    """[C, C] of the loss ½ Σ w_E (ΔE)² + ½ w_F Σ (ΔF)² by the last layer, without ridge."""
    flat = known.forces.reshape(-1, known.forces.shape[-1])
    return energy_weight * known.energy.T @ known.energy + force_weight * flat.T @ flat


def spread(features: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """√(fᵀ H⁻¹ f) of features […, C]: σ for α = 1."""
    return np.sqrt(np.einsum("...i,ij,...j->...", features, inverse, features))


@dataclass(frozen=True, eq=False)
class Rigidity:
    """inverse: H⁻¹ [C, C];  ridge: ζ² in units of H's mean eigenvalue;  alpha_energy, alpha_forces: factors on σ."""

    inverse: np.ndarray
    ridge: float
    alpha_energy: float = 1.0
    alpha_forces: float = 1.0

    def energy_sigma(self, features: Features) -> np.ndarray:
        """[n] eV."""
        return self.alpha_energy * spread(features.energy, self.inverse)

    def forces_sigma(self, features: Features) -> np.ndarray:
        """[n, 3a] eV/Å."""
        return self.alpha_forces * spread(features.forces, self.inverse)


def rigidity(
    matrix: np.ndarray, held_back: Features, energy_error: np.ndarray, force_error: np.ndarray
) -> tuple[Rigidity, list[dict[str, float]]]:
    """The ridge and α of largest likelihood of the errors on held-back frames, [n] eV and [n, 3a] eV/Å; and all
    tried."""
    scale = np.trace(matrix) / len(matrix)
    tried, found = [], []
    for ridge in RIDGES:
        inverse = np.linalg.inv(matrix + ridge * scale * np.eye(len(matrix)))
        forces, energy = spread(held_back.forces, inverse), spread(held_back.energy, inverse)
        # the best factor, and with it the mean of ln N(error; 0, σ²), are known in closed form
        alpha = np.sqrt(np.mean(np.square(force_error / forces)))
        likelihood = -np.log(alpha * forces).mean() - 0.5 * (1 + np.log(2 * np.pi))
        alpha_energy = np.sqrt(np.mean(np.square(energy_error / energy)))
        found.append(Rigidity(inverse, float(ridge), float(alpha_energy), float(alpha)))
        tried.append({"ridge": float(ridge), "held_back_force_mll": float(likelihood), "alpha_forces": float(alpha)})
    return found[int(np.argmax([row["held_back_force_mll"] for row in tried]))], tried
