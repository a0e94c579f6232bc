"""Energies that are off by the same amount for all frames, put right before sampling begins.

The energy of a structure is a sum over its atoms, which every early step moves by more than the labels differ.  σ of energies grows to
hold that, energies hardly count any more, and a network whose forces are right may keep an offset of several eV.  As long as there is
no noise a chain only looks for a place to start from, so the offset may simply be taken away.
"""

import torch

from equibayes.bayes.model import StochasticModel
from equibayes.data.resident import ResidentData
from equibayes.run.validation import in_parts

TIMES = 20
"""In a whole run, as far as it goes without noise."""
FRAMES = 16
SHIFT = "shift"


@torch.no_grad()
def recentre(model: StochasticModel, position: torch.Tensor, data: ResidentData) -> None:
    """Moves the energies of all species of a chain by one number c, for which some frames are asked: min_c Σ (E − Ê − n c)².

    Only where that is most of the error: a chain that is on its way is left alone.
    """
    numbers = torch.linspace(0, len(data) - 1, min(FRAMES, len(data))).long().to(position.device)
    labels = data.energy[numbers]
    atoms = data.frames.num_atoms[numbers, 0] * labels.isfinite()
    if not atoms.any():
        return
    error = (labels - in_parts(model, position, data, numbers).energy).nan_to_num(0.0)
    offset = (error * atoms).sum(1) / atoms.square().sum()
    common = offset[:, None] * atoms
    offset *= common.square().sum(1) > (error - common).square().sum(1)
    place = model.layout.groups[SHIFT]
    unit = model.layout.scale.like(error)[place] * model.network.energy_scale.like(
        error
    )  # of the number of a species, eV
    position[:, place] += (offset[:, None] / unit).to(position.dtype)
