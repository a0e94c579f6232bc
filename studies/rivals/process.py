"""An exact Gaussian process on forces: conditioning, marginal likelihood, and predictions with their variances.

With C = K/s² + λ I over the internal force components y of the training frames (s² the variance of the signal, λ s²
that of noise),

    ln p(y) = −½ yᵀC⁻¹y/s² − ½ ln|C| − ½ n ln(2π s²),   largest at  s² = yᵀC⁻¹y / n
    (Rasmussen and Williams 2006, eq. 2.30)

Forces do not determine the constant in the energy: predicted energies are differences from the mean over the training
frames plus the mean of their labels, and their σ is that of the difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from studies.rivals.kernel import (
    Covariance,
    Kernel,
    Points,
    own_covariances,
    pair_orders,
    points_of,
    without_rigid_motion,
)

Tensor = torch.Tensor
FRAMES_AT_ONCE = 32
"""Right-hand sides of one triangular solve: enough for fast matrix products, few enough for the memory."""


@dataclass(frozen=True)
class Settings:
    """kernel with its length scale (1/Å); noise: λ, variance of the noise over that of the signal (1/Å²)."""

    kernel: Kernel
    noise: float


@dataclass(frozen=True, eq=False)
class Forecast:
    """Of B frames.  energy, energy_sigma [B] eV; forces, forces_sigma [B, a, 3] eV/Å.  σ without noise."""

    energy: Tensor
    energy_sigma: Tensor
    forces: Tensor
    forces_sigma: Tensor


class Process:
    """The posterior given forces [n, a, 3] (eV/Å) and the mean of the energies (eV) at positions [n, a, 3] (Å)."""

    def __init__(
        self, positions: Tensor, forces: Tensor, mean_energy: float, settings: Settings, group: Sequence[Sequence[int]]
    ) -> None:
        self.settings, self.orders, self.mean_energy = settings, pair_orders(group), mean_energy
        self.known, directions = without_rigid_motion(points_of(positions))
        labels = torch.einsum("nqm,nq->nm", directions, forces.flatten(1)).flatten()
        self.covariance = Covariance(self.known, settings.kernel, self.orders)
        matrix = self.covariance.matrix()
        matrix.diagonal().add_(settings.noise)
        self.factor = torch.linalg.cholesky(matrix)
        del matrix
        half = torch.linalg.solve_triangular(self.factor, labels[:, None], upper=False)
        self.solved = torch.linalg.solve_triangular(self.factor.mT, half, upper=True)[:, 0]
        self.signal = float(labels @ self.solved) / len(labels)
        log_determinant = 2 * float(self.factor.diagonal().log().sum())
        self.log_evidence = -0.5 * (len(labels) * (math.log(2 * math.pi * self.signal) + 1) + log_determinant)

    @cached_property
    def center(self) -> tuple[Tensor, Tensor]:
        """Covariances of the mean energy of the training frames: with forces [n·m], and with itself."""
        with_forces, with_itself = torch.zeros_like(self.solved), self.solved.new_zeros(())
        # a running sum avoids fragmented memory
        for x, jacobian in zip(self.known.x, self.known.jacobian):
            energies, forces, _ = self.covariance.of_frame(x, jacobian[:, :0])
            with_forces += forces / len(self.known)
            with_itself += energies.mean() / len(self.known)
        return with_forces, with_itself

    @property
    def noise_sigma(self) -> float:
        """eV/Å, of a force component."""
        return math.sqrt(self.settings.noise * self.signal)

    def predict(self, positions: Tensor, *, variances: bool = True) -> Forecast:
        """Frames [B, a, 3] in Å; without `variances` every σ is NaN and the n² factor is not used."""
        points, directions = without_rigid_motion(points_of(positions))
        parts = [
            self._batch(points[at : at + FRAMES_AT_ONCE], variances) for at in range(0, len(points), FRAMES_AT_ONCE)
        ]
        energy, energy_variance, forces, covariance = (torch.cat(column) for column in zip(*parts))
        variance = torch.einsum("nqm,nmk,nqk->nq", directions, covariance, directions).clamp(min=0.0)
        return Forecast(
            self.mean_energy + energy,
            (self.signal * energy_variance).sqrt(),
            (directions @ forces[..., None]).reshape(positions.shape),
            (self.signal * variance).sqrt().reshape(positions.shape),
        )

    def _batch(self, points: Points, variances: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of B frames, in units of the signal: energies [B] less the mean, their variances, forces [B, m], covariances
        [B, m, m]."""
        count, m = len(points), points.jacobian.shape[2]
        with_forces, with_itself = self.center
        # covariances of each frame, energy first, with all known forces
        rows = self.solved.new_empty(count, 1 + m, len(self.solved))
        with_mean = self.solved.new_empty(count)
        for row, (x, jacobian) in enumerate(zip(points.x, points.jacobian)):
            energies, rows[row, 0], rows[row, 1:] = self.covariance.of_frame(x, jacobian)
            rows[row, 0] -= with_forces
            with_mean[row] = energies.mean()
        mean = rows @ self.solved
        if not variances:
            return mean[:, 0], mean.new_full((count,), math.nan), mean[:, 1:], mean.new_full((count, m, m), math.nan)
        energy, forces = own_covariances(points, self.settings.kernel, self.orders)
        known = torch.linalg.solve_triangular(self.factor, rows.flatten(0, 1).mT, upper=False).reshape(-1, count, 1 + m)
        energy = energy - 2 * with_mean + with_itself - known[:, :, 0].square().sum(0)
        forces = forces - torch.einsum("fbm,fbk->bmk", known[:, :, 1:], known[:, :, 1:])
        energy = energy.clamp(min=0.0)  # rounding may make it negative at a training frame
        return mean[:, 0], energy, mean[:, 1:], forces


def search(
    positions: Tensor,
    forces: Tensor,
    group: Sequence[Sequence[int]],
    start: Settings,
    *,
    steps: tuple[float, float] = (0.7, 2.3),
    rounds: int = 3,
) -> tuple[Settings, list[dict[str, float]]]:
    """Length scale and noise of largest marginal likelihood, and all settings tried.

    steps: in ln of each, halved `rounds` − 1 times when none improves; a step of 0 keeps that setting
    """
    kind, tried = start.kernel.kind, dict[tuple[float, float], float]()

    def evidence(place: tuple[float, float]) -> float:
        if place not in tried:
            settings = Settings(Kernel(kind, math.exp(place[0])), math.exp(place[1]))
            try:
                tried[place] = Process(positions, forces, 0.0, settings, group).log_evidence
            except torch.linalg.LinAlgError:  # too little noise for float64
                tried[place] = -math.inf
        return tried[place]

    best = (math.log(start.kernel.length), math.log(start.noise))
    for _ in range(rounds):
        while True:
            moves = ((0, 0), (steps[0], 0), (-steps[0], 0), (0, -steps[1]), (0, steps[1]))
            found = max(((best[0] + i, best[1] + j) for i, j in moves), key=evidence)
            if found == best:
                break
            best = found
        steps = (steps[0] / 2, steps[1] / 2)
    record = [{"length": math.exp(a), "noise": math.exp(b), "log_evidence": value} for (a, b), value in tried.items()]
    return Settings(Kernel(kind, math.exp(best[0])), math.exp(best[1])), record
