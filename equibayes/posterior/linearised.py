"""Predictions of linearised networks f(θ) + ∂f/∂θ·δ, from three ordinary networks each.

    ∂f/∂θ·δ = [f(θ + hδ) − f(θ − hδ)] / 2h + O(h²)

for energies, forces and stress alike.  Each of the three energies has its own forces as exact gradient, so the
predicted forces are the exact gradient of the predicted energy, whatever h is.  σ is that of θ.
"""

import numpy as np
import torch

CHANGE = {torch.float32: 2e-3, torch.float64: 2e-4}
"""RMS of hδ: errors of rounding (small h) and of curvature (large h) are then both far below those of the model."""


def weight_sets(samples: torch.Tensor, tangent: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
    """θ, θ + hδ and θ − hδ of each sample one after the other, [k, P] → [3k, P], and h [k]."""
    size = tangent.double().square().mean(1).sqrt().clamp_min(1e-30)
    h = (CHANGE[samples.dtype] / size).clamp(max=1.0)
    move = (h[:, None] * tangent).to(samples.dtype)
    return torch.stack([samples, samples + move, samples - move], 1).flatten(0, 1), h.cpu().numpy()


def linearised(values: np.ndarray, h: np.ndarray) -> np.ndarray:
    """[3k, …] of those weight sets → [k, …]."""
    centre, above, below = values[0::3], values[1::3], values[2::3]
    return centre + (above - below) / (2 * h.reshape(-1, *[1] * (values.ndim - 1)))
