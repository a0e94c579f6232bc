"""Labels of frames with what a network predicts for them, and how that changes with its weights."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from equibayes.bayes.model import StochasticModel
from equibayes.data.resident import ResidentData
from equibayes.engine.rows import SIX
from equibayes.engine.select import make_rows
from equibayes.posterior.linear_regression import Progress
from equibayes.posterior.subspace import Subspace

FORCES, ENERGY, STRESS = 0, 1, 2
KINDS = ("forces", "energy", "stress")
ROWS_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Rows:
    """Labels of some frames under one weight set: all force components of a frame, its energy and its stress if known.

    label     [R]  eV/Å, eV without the energy reference, or eV/Å³ with √2 off the diagonal
    value     [R]  prediction
    sigma     [R]  predicted noise
    kind      [R]  FORCES, ENERGY or STRESS
    frame     [R]  number of the frame
    weight    [R]  of its log likelihood
    jacobian  [R, m] ∂value/∂u for the directions u of a subspace
    """

    label: torch.Tensor
    value: torch.Tensor
    sigma: torch.Tensor
    kind: torch.Tensor
    frame: torch.Tensor
    weight: torch.Tensor
    jacobian: torch.Tensor

    @property
    def variance(self) -> torch.Tensor:
        """[R] σ², larger where a frame weighs less."""
        return self.sigma.square() / self.weight

    @property
    def residual(self) -> torch.Tensor:
        return self.label - self.value

    @classmethod
    def joined(cls, parts: Iterable["Rows"]) -> "Rows":
        found = list(parts)
        return cls(*(torch.cat([getattr(part, name) for part in found]) for name in cls.__annotations__))


class Sight:
    """Which labels of a data set are looked at, around one network."""

    def __init__(self, data: ResidentData, share: float = 1.0, seed: int = 0) -> None:
        """share: of the force components of each frame, chosen at random; energies and stresses always."""
        self.data, self.share, self.seed = data, share, seed

    def of(self, numbers: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Label, kind and frame number of what `LabelRows` may have, and which of them are chosen."""
        data = self.data
        label, kind, frame, chosen = [], [], [], []
        for number in numbers:
            atoms = int(data.frames.num_atoms[number, 0])
            parts = [data.forces[number, :atoms].flatten(), data.energy[number, None]]
            if data.stress is not None:
                parts.append(torch.stack([data.stress[number, i, j] * (1 if i == j else 2**0.5) for i, j in SIX]))
                if not bool(data.frames.volume[number, 0].isfinite()):
                    parts[-1] = torch.full_like(parts[-1], torch.nan)
            own = torch.cat([part.double().cpu() for part in parts])
            kind += [torch.full((len(part),), place) for place, part in enumerate(parts)]
            frame.append(torch.full((len(own),), number))
            chosen += [self._forces(number, 3 * atoms), own[3 * atoms :].isfinite()]
            label.append(own)
        return torch.cat(label), torch.cat(kind), torch.cat(frame), torch.cat(chosen)

    def _forces(self, number: int, count: int) -> torch.Tensor:
        if self.share >= 1:
            return torch.ones(count, dtype=torch.bool)
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + number) % 2**63)
        chosen = torch.zeros(count, dtype=torch.bool)
        chosen[torch.randperm(count, generator=generator)[: max(1, round(self.share * count))]] = True
        return chosen


def rows_of(
    model: StochasticModel, position: torch.Tensor, sight: Sight, subspace: Subspace, progress: Progress = iter
) -> Rows:
    """The rows of all frames of a data set at one weight set, position [P]."""
    return Rows.joined(blocks_of(model, position, sight, subspace, progress))


def blocks_of(
    model: StochasticModel, position: torch.Tensor, sight: Sight, subspace: Subspace, progress: Progress = iter
) -> Iterator[Rows]:
    """The same, some frames at a time."""
    data = sight.data
    evaluate = make_rows(model, position, data, subspace.column, subspace.sign)
    weight = torch.ones(len(data), dtype=torch.float64) if data.weight is None else data.weight.cpu()
    at_once = max(1, int(ROWS_AT_ONCE / (3 * data.num_atoms * min(1.0, sight.share) + 1)))
    for start in progress(range(0, len(data), at_once)):
        numbers = list(range(start, min(start + at_once, len(data))))
        label, kind, frame, chosen = sight.of(numbers)
        found = evaluate(numbers, chosen)
        value, log_sigma, jacobian = (each.cpu() for each in (found.value, found.log_sigma, found.jacobian))
        parts = (label[chosen], value, log_sigma.exp(), kind[chosen], frame[chosen], weight[frame[chosen]])
        yield Rows(*parts, jacobian)
