"""Removes a constant error per atom from the energies before sampling begins.

The energy of a structure is a sum over its atoms, and early steps change it by more than the labels differ.  The σ of
the energies grows accordingly, so that energies lose their weight in the likelihood, and a network with good forces may
keep an energy offset of several eV.  While there is no noise a chain only looks for a starting point, so the offset may
be removed.
"""

import torch

from equibayes.bayes.model import StochasticModel
from equibayes.data.resident import ResidentData
from equibayes.run.validation import in_parts

TIMES = 20
"""Corrections per run, of which those without noise are made."""
FRAMES = 16
SHIFT = "shift"


@torch.no_grad()
def recentre(model: StochasticModel, position: torch.Tensor, data: ResidentData) -> None:
    """Shift the per-species energies of each chain by one number c that minimises Σ (E − Ê − n c)² over some frames.

    Only where the offset is most of the error.
    """
    numbers = torch.linspace(0, len(data) - 1, min(FRAMES, len(data))).long().to(position.device)
    labels = data.energy[numbers]
    atoms = data.frames.num_atoms[numbers, 0] * labels.isfinite()
    if not atoms.any():
        return
    error = (labels - in_parts(lambda graph: model(position, graph), len(position), data, numbers).energy).nan_to_num(
        0.0
    )
    offset = (error * atoms).sum(1) / atoms.square().sum()
    common = offset[:, None] * atoms
    offset *= common.square().sum(1) > (error - common).square().sum(1)
    place = model.layout.groups[SHIFT]
    unit = model.layout.scale.like(error)[place] * model.network.energy_scale.like(error)  # of a per-species shift, eV
    position[:, place] += (offset[:, None] / unit).to(position.dtype)
