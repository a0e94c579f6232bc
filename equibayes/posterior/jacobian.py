"""How energies and forces change with the weights: rows ∂f/∂θ of single labels.

Each row is one gradient.  They are evaluated together along the chain axis: L copies of one weight set, of which copy
l contributes the gradient of label l.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

from equibayes.bayes.heads import ENERGY_HEAD, FORCE_HEAD
from equibayes.bayes.model import StochasticModel
from equibayes.data.resident import ResidentData

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
    found = [_frame_rows(model, position, data, number) for number in progress(range(len(data)))]
    label, value, sigma, is_energy, frame = (np.concatenate([each[i] for each in found]) for i in range(5))
    return Rows(label, value, sigma, is_energy, frame, torch.cat([each[5] for each in found]))


def _frame_rows(model: StochasticModel, position: torch.Tensor, data: ResidentData, number: int) -> tuple:
    graph, labels = data.batch(torch.tensor([[number]], device=position.device))
    atoms = graph.real[0].nonzero().flatten()
    known = bool(labels.energy[0, 0].isfinite())
    count = 3 * len(atoms) + known
    parts = []
    for first in range(0, count, ROWS_AT_ONCE):
        wanted = torch.arange(first, min(first + ROWS_AT_ONCE, count))
        parts.append(_gradients(model, position, graph, atoms, wanted))
    with torch.no_grad():
        output = model(position[None], graph)

    def rows(forces: torch.Tensor, energy: torch.Tensor) -> np.ndarray:
        values = forces[0, atoms].flatten().double().cpu().numpy()
        return np.append(values, energy[0].double().cpu().numpy()) if known else values

    sigma_forces = output.sigma_forces[..., None].expand_as(output.forces)
    return (
        rows(labels.forces, labels.energy),
        rows(output.forces, output.energy),
        rows(sigma_forces, output.sigma_energy),
        np.arange(count) == 3 * len(atoms),
        np.full(count, number),
        torch.cat(parts),
    )


def _gradients(
    model: StochasticModel, position: torch.Tensor, graph: object, atoms: torch.Tensor, wanted: torch.Tensor
) -> torch.Tensor:
    """∂/∂θ of the wanted labels of one frame, [L, P] on the CPU."""
    copies = position.detach().expand(len(wanted), -1).clone().requires_grad_()
    output = model(copies, graph, differentiable=True)  # type: ignore[arg-type]
    values = torch.cat([output.forces[:, atoms].flatten(1).to(output.energy), output.energy], 1)
    own = values[torch.arange(len(wanted)), wanted]
    (gradient,) = torch.autograd.grad(own.sum(), copies)
    return gradient.cpu().float()


def outside_heads(model: StochasticModel) -> torch.Tensor:
    """Which weights energies and forces depend on, [P] bool: all but those of the noise heads."""
    used = torch.ones(model.layout.size, dtype=torch.bool)
    for name in (FORCE_HEAD, ENERGY_HEAD):
        used[model.layout.groups[name]] = False
    return used
