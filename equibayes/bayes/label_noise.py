"""Labels with a noise of their own, such as those of a cheap engine far from the other frames.

The deviation of a label has then two parts, that of the heads and the known one:

    σ_F² + τ²,      σ_E² + n (τ · 1 Å)²,      σ_S² + n (τ · 1 Å)²/V²

for a frame of n atoms with the noise τ (eV/Å).  Energies and stress are sums over atoms, hence n.
"""

from dataclasses import replace

import torch

from equibayes.bayes.model import ModelOutput
from equibayes.data.graph import Graph
from equibayes.data.resident import Labels


def widened(output: ModelOutput, graph: Graph, labels: Labels) -> ModelOutput:
    """The same means with the deviations of these labels."""
    if labels.noise is None:
        return output
    log_noise = labels.noise.log()  # −inf: none
    of_frame = log_noise + 0.5 * graph.num_atoms.double().log()
    # padding atoms belong to the structure after the last
    padded = torch.cat([log_noise, torch.full_like(log_noise[:, :1], -torch.inf)], 1)
    of_atom = padded.gather(1, graph.structure.expand(len(padded), -1))
    of_stress = of_frame - graph.volume.double().log()
    return replace(
        output,
        log_sigma_forces=_sum(output.log_sigma_forces, of_atom),
        log_sigma_energy=_sum(output.log_sigma_energy, of_frame),
        log_sigma_stress=_sum(output.log_sigma_stress, of_stress),
    )


def _sum(log_sigma: torch.Tensor, log_noise: torch.Tensor) -> torch.Tensor:
    """ln √(σ² + τ²)."""
    return 0.5 * torch.logaddexp(2 * log_sigma, 2 * log_noise.to(log_sigma))
