"""How energies, forces and stress change with the weights: rows ∂f/∂θ of single labels.

Each row is the gradient of a potential: of squared errors whose labels are the predictions but for one component.  They
are evaluated together along the chain axis, L copies of one weight set with a frame each, by whatever engine there is.

A stress has six labels, those of the likelihood (``bayes/likelihood.py``), as virials per atom: multiplied by V/n, so
that all labels are numbers of comparable size.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

from equibayes.bayes.label_noise import widened
from equibayes.bayes.likelihood import stress_error
from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import Flat
from equibayes.data.resident import ResidentData
from equibayes.engine.select import Evaluate, gradient_maker

ROWS_AT_ONCE = 32
FORCE, ENERGY, STRESS = 0, 1, 2
"""Kinds of labels."""
Progress = Callable[[Iterable[int]], Iterable[int]]


def _components() -> torch.Tensor:
    """[6, 3, 3] symmetric tensors of norm 1, whose products with the stress are its six components."""
    tensors = torch.zeros(6, 3, 3, dtype=torch.float64)
    for number, (i, j) in enumerate(((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))):
        tensors[number, i, j] = tensors[number, j, i] = 1.0 if i == j else 0.5**0.5
    return tensors


COMPONENTS = _components()


@dataclass(frozen=True, eq=False)
class Rows:
    """Labels of some frames under one weight set: all force components of a frame, then its energy if it is known, then
    the six components of its stress if it is known and learned.

    label      [R]  eV/Å or eV, without the energy reference; stress as virial per atom, eV
    value      [R]  prediction
    sigma      [R]  predicted noise
    kind       [R]  FORCE, ENERGY or STRESS
    frame      [R]  number of the frame
    jacobian   [R, P] float32  ∂value/∂θ; 0 in the noise heads
    """

    label: np.ndarray
    value: np.ndarray
    sigma: np.ndarray
    kind: np.ndarray
    frame: np.ndarray
    jacobian: torch.Tensor


def rows_of(model: StochasticModel, position: torch.Tensor, data: ResidentData, progress: Progress = iter) -> Rows:
    """The rows of all frames of a data set at one weight set, position [P]."""
    potential_of = gradient_maker(model, position)
    found = [_frame_rows(potential_of, model, position, data, number) for number in progress(range(len(data)))]
    label, value, sigma, kind, frame = (np.concatenate([each[i] for each in found]) for i in range(5))
    return Rows(label, value, sigma, kind, frame, torch.cat([each[5] for each in found]))


def _frame_rows(
    potential_of: Callable[[Potential], Evaluate],
    model: StochasticModel,
    position: torch.Tensor,
    data: ResidentData,
    number: int,
) -> tuple:
    graph, labels = data.batch(torch.tensor([[number]], device=position.device))
    atoms = graph.real[0].nonzero().flatten()
    with torch.no_grad():
        output = widened(model(position[None], graph), graph, labels)
    virial = float(graph.volume[0, 0] / graph.num_atoms[0, 0])  # per atom, of a unit of stress
    known = torch.isfinite(labels.energy[0]).cpu().numpy()
    learned = np.zeros(1, bool) if labels.stress is None else stress_error(output, labels.stress)[0][0].cpu().numpy()

    def rows(forces: torch.Tensor, energy: torch.Tensor, stress: torch.Tensor | None) -> np.ndarray:
        parts = [forces[0, atoms].flatten(), energy[0][known]]
        if learned[0] and stress is not None:
            parts.append(virial * (COMPONENTS.to(stress) * stress[0]).sum((1, 2)))
        return np.concatenate([part.double().cpu().numpy() for part in parts])

    numbers = (3 * len(atoms), int(known[0]), 6 * int(learned[0]))
    shifted = _one_off_each(output, atoms, numbers, graph.volume[0, 0])
    parts = []
    for own in torch.arange(sum(numbers) + 1).split(ROWS_AT_ONCE):
        stress = None if shifted[2] is None else shifted[2][own]
        frames = data.relabelled(torch.full((len(own),), number), shifted[0][own], shifted[1][own], stress)
        evaluate = potential_of(Potential(model, frames, Flat(), objective="squares"))
        found = evaluate(position.expand(len(own), -1).contiguous(), torch.arange(len(own))[:, None])
        parts.append(found.gradient.cpu() / len(own))  # û of a minibatch is multiplied by N, here len(own)
    gradients = torch.cat(parts)
    sigma_forces = output.sigma_forces[..., None].expand_as(output.forces)
    sigma = rows(sigma_forces, output.sigma_energy, None)
    return (
        rows(labels.forces, labels.energy, labels.stress[0] if labels.stress is not None else None),
        rows(output.forces, output.energy, output.stress[0]),
        np.append(sigma, np.full(numbers[2], virial * float(output.sigma_stress[0, 0]))),
        np.repeat((FORCE, ENERGY, STRESS), numbers),
        np.full(sum(numbers), number),
        (gradients[:-1] - gradients[-1]).float(),
    )


def _one_off_each(
    output: ModelOutput, atoms: torch.Tensor, numbers: tuple[int, int, int], volume: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Labels [L + 1], [L + 1, n, 3] and [L + 1, 3, 3] that are the predictions, but for one component each.

    numbers: of labels of each kind, L in all

    Squared errors ½ Σ (F − F')² + ½ (3/n) (E − E')² + ½ (V²/3n) |S − S'|² have the gradient ∂F_l for F'_l = F_l − 1,
    ∂E for E' = E − n/3, and that of the virial per atom V/n B·S for S' = S − 3/V B.  The last labels are the
    predictions themselves: their gradient, which is rounding alone, is taken off the others.
    """
    count, known, components = numbers
    total = sum(numbers) + 1
    forces = output.forces.repeat(total, 1, 1)
    places = torch.arange(count)
    forces[places, atoms.repeat_interleave(3), places % 3] -= 1
    energy = torch.full((total,), torch.nan, dtype=torch.float64)
    if known:
        energy[:] = output.energy[0, 0]
        energy[count] -= len(atoms) / 3
    if not components:
        return energy, forces, None
    stress = output.stress[0].repeat(total, 1, 1)
    stress[count + known : -1] -= 3 / volume.to(stress) * COMPONENTS.to(stress)
    return energy, forces, stress
