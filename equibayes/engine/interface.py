"""What an engine offers besides whole steps (`sampling.chain.Stepper`): predictions and dynamics.

Each engine is a package beside `triton`, in a language of its own, chosen in select.py and compared with the
reference in selftest.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from equibayes.bayes.model import ModelOutput
from equibayes.data.graph import Graph
from equibayes.network.weights import Weights


@dataclass(frozen=True)
class DynamicsOutput:
    """Predictions of k samples for one structure; float64 on the host."""

    energy: np.ndarray  # [k] eV
    forces: np.ndarray  # [k, n, 3] eV/Å
    virial: np.ndarray  # [k, 3, 3] eV
    log_sigma_energy: np.ndarray  # [k]
    log_sigma_forces: np.ndarray  # [k, n]
    log_sigma_virial: (
        np.ndarray
    )  # [k] ln(σ_S V / eV): of the stress, before it is divided by the volume; NaN: not learned
    invariants: np.ndarray  # [n, S] of the first sample, float32


@dataclass(frozen=True)
class Ghosts:
    """Neighbours of some atoms whose features are computed by other processes, which need features in return.

    is_ghost  [n] bool
    sent      [s] atoms whose features others need
    received  [g] the ghosts, in the order in which their features come
    swap      [s, floats] → [g, floats], both float32; all processes call it the same number of times
    """

    is_ghost: np.ndarray
    sent: np.ndarray
    received: np.ndarray
    swap: Callable[[np.ndarray], np.ndarray]


class Dynamics(Protocol):
    """One structure whose atoms move while its list of pairs stays."""

    @property
    def num_atoms(self) -> int: ...

    def load(self, graph: Graph, positions: np.ndarray) -> None:
        """A new list of all pairs within the cutoff and a skin at `positions`; float64 on the device."""

    def __call__(self, positions: np.ndarray) -> DynamicsOutput:
        """Predictions at positions [n, 3], Å."""


class PartDynamics(Protocol):
    """Some atoms of a structure, while other processes have the rest.

    Results are the share of these atoms in the energy and in its derivatives (the forces on ghosts included), and
    their deviations.
    """

    def load(self, graph: Graph, positions: np.ndarray, ghosts: Ghosts) -> None:
        """As of `Dynamics`, for the atoms and their ghosts."""

    def __call__(self, positions: np.ndarray) -> DynamicsOutput:
        """The share of the atoms, at positions [n, 3] of atoms and ghosts, Å."""


@dataclass(frozen=True)
class LabelRows:
    """How labels of some frames change with the weights θ [P]; forces of a frame, then its energy, then its stress.

    3n force components (eV/Å), the energy (eV), and where stress is learned xx, yy, zz, √2 yz, √2 xz, √2 xy of the
    stress (eV/Å³); R of these are chosen.  Weights are collected in columns: entry p of ∂f/∂θ, times sign[p], is added
    to column[p]; −1: left out.

    value      [R] float64   predictions, without the energy reference
    log_sigma  [R] float64   of the heads
    jacobian   [R, columns]
    """

    value: torch.Tensor
    log_sigma: torch.Tensor
    jacobian: torch.Tensor


class RowMaker(Protocol):
    """Rows of labels at one weight set."""

    def __call__(self, frames: list[int], chosen: torch.Tensor) -> LabelRows:
        """Of frames by number; chosen: a bool for each of their labels."""


class Predictor(Protocol):
    """Predictions of k samples for any graph."""

    @property
    def engine(self) -> str:
        """The name that records carry."""

    @property
    def fused(self) -> bool: ...

    def edges_at_once(self, device: torch.device) -> int:
        """Edges times samples of the structures that are evaluated together."""

    def samples_at_once(self, device: torch.device, edges: int) -> int:
        """Samples that are evaluated together for a graph with so many edges."""

    def forward(self, weights: Weights, graph: Graph, *, feature_mask: torch.Tensor | None = None) -> ModelOutput:
        """As `StochasticModel.forward`, not differentiable."""

    def dynamics(self, weights: Weights, graph: Graph) -> Dynamics | None:
        """For one moving structure; None where `forward` is as fast.  graph: the first list (see `Dynamics.load`)."""

    def part(self, weights: Weights) -> PartDynamics | None:
        """For some atoms of a structure; None where the engine cannot divide atoms among processes."""
