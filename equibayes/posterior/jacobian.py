"""How energies and forces change with the weights: rows ∂f/∂θ of single labels.

Each row is the gradient of a potential: of squared errors whose labels are the predictions but for one component.  They
are evaluated together along the chain axis, L copies of one weight set with a frame each, by whatever engine there is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import Flat
from equibayes.data.resident import ResidentData
from equibayes.engine.select import Evaluate, gradient_maker

ROWS_AT_ONCE = 32
Progress = Callable[[Iterable[int]], Iterable[int]]


@dataclass(frozen=True, eq=False)
class Rows:
    """Labels of some frames under one weight set: all force components of a frame, then its energy if it is known.

    label      [R]  eV/Å or eV, without the energy reference
    value      [R]  prediction
    sigma      [R]  predicted noise
    is_energy  [R]  bool
    frame      [R]  number of the frame
    jacobian   [R, P] float32  ∂value/∂θ; 0 in the noise heads
    """

    label: np.ndarray
    value: np.ndarray
    sigma: np.ndarray
    is_energy: np.ndarray
    frame: np.ndarray
    jacobian: torch.Tensor


def rows_of(model: StochasticModel, position: torch.Tensor, data: ResidentData, progress: Progress = iter) -> Rows:
    """The rows of all frames of a data set at one weight set, position [P]."""
    potential_of = gradient_maker(model, position)
    found = [_frame_rows(potential_of, model, position, data, number) for number in progress(range(len(data)))]
    label, value, sigma, is_energy, frame = (np.concatenate([each[i] for each in found]) for i in range(5))
    return Rows(label, value, sigma, is_energy, frame, torch.cat([each[5] for each in found]))


def _frame_rows(
    potential_of: Callable[[Potential], Evaluate],
    model: StochasticModel,
    position: torch.Tensor,
    data: ResidentData,
    number: int,
) -> tuple:
    graph, labels = data.batch(torch.tensor([[number]], device=position.device))
    atoms = graph.real[0].nonzero().flatten()
    known = bool(labels.energy[0, 0].isfinite())
    with torch.no_grad():
        output = model(position[None], graph)

    def rows(forces: torch.Tensor, energy: torch.Tensor) -> np.ndarray:
        values = forces[0, atoms].flatten().double().cpu().numpy()
        return np.append(values, energy[0].double().cpu().numpy()) if known else values

    count = 3 * len(atoms) + known
    shifted = _one_off_each(output, atoms, known)
    parts = []
    for own in torch.arange(count + 1).split(ROWS_AT_ONCE):
        frames = data.relabelled(torch.full((len(own),), number), shifted[0][own], shifted[1][own])
        evaluate = potential_of(Potential(model, frames, Flat(), objective="squares"))
        found = evaluate(position.expand(len(own), -1).contiguous(), torch.arange(len(own))[:, None])
        parts.append(found.gradient.cpu() / len(own))  # û of a minibatch is multiplied by N, here len(own)
    gradients = torch.cat(parts)
    sigma_forces = output.sigma_forces[..., None].expand_as(output.forces)
    return (
        rows(labels.forces, labels.energy),
        rows(output.forces, output.energy),
        rows(sigma_forces, output.sigma_energy),
        np.arange(count) == 3 * len(atoms),
        np.full(count, number),
        (gradients[:-1] - gradients[-1]).float(),
    )


def _one_off_each(output: ModelOutput, atoms: torch.Tensor, known: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels [L + 1] and [L + 1, n, 3] that are the predictions, but for one component each.

    Squared errors ½ Σ (F − F')² + ½ (3/n) (E − E')² have the gradient ∂F_l for F'_l = F_l − 1, and ∂E for
    E' = E − n/3.  The last labels are the predictions themselves: their gradient, which is rounding alone, is taken
    off the others.
    """
    count = 3 * len(atoms)
    forces = output.forces.repeat(count + known + 1, 1, 1)
    places = torch.arange(count)
    forces[places, atoms.repeat_interleave(3), places % 3] -= 1
    energy = torch.full((count + known + 1,), torch.nan, dtype=torch.float64)
    if known:
        energy[:] = output.energy[0, 0]
        energy[count] -= len(atoms) / 3
    return energy, forces
