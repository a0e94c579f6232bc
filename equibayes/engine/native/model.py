"""Predictions by the C++ functions: what `StochasticModel.forward` computes, with the same geometry in float64."""

import ctypes
import weakref
from collections.abc import Callable

import numpy as np
import torch

from equibayes.bayes.model import ModelOutput, StochasticModel
from equibayes.data.graph import Graph
from equibayes.engine.interface import DynamicsOutput, Ghosts
from equibayes.engine.native.module import Library, load
from equibayes.engine.native.target import engine_name
from equibayes.network.weights import Weights

EDGES_AT_ONCE = 500
"""Edges of small structures that are evaluated together: their features stay in the cache of a core."""
LEAN = 2**21
"""Radial weights of a weight set (8 MiB) from which they are computed when they are needed, as they would not stay in
the cache."""


class Results(ctypes.Structure):
    """`Results` in source/prediction.cpp."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            "energy",
            "forces",
            "virial",
            "log_sigma_energy",
            "log_sigma_virial",
            "log_sigma_forces",
            "features",
            "invariants",
        )
    )


SWAP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
"""`Swap` in include/ghosts.h."""


class NativeModel:
    """Predictions of a `StochasticModel` for K weight sets on graphs that all of them share."""

    fused = True

    def __init__(
        self, model: StochasticModel, samples: int = 1, say: Callable[[str], None] = lambda message: None
    ) -> None:
        """samples: their number, K."""
        self.samples, self.engine = samples, engine_name()
        self.model, self.module = model, load(model, say=say)
        self._placed: PlacedWeights | None = None

    def edges_at_once(self, device: torch.device) -> int:
        return EDGES_AT_ONCE * self.samples

    def samples_at_once(self, device: torch.device, edges: int) -> int:
        """All: each thread has the features of one sample at a time."""
        return self.samples

    def forward(self, weights: Weights, graph: Graph, *, feature_mask: torch.Tensor | None = None) -> ModelOutput:
        """As `StochasticModel.forward`, not differentiable."""
        if graph.species.shape[0] != 1:
            return self.model.forward(weights, graph, feature_mask=feature_mask)
        system = System(self.module.library, graph, self.model.network.invariants)
        found = system.predict(self._place(weights), mask=feature_mask, channels=self.model.config.channels[0])
        return ModelOutput(
            energy=found["energy"],
            forces=found["forces"].to(graph.vector.dtype),
            stress=(found["virial"] / graph.volume[..., None, None].double()).to(graph.vector.dtype),
            log_sigma_energy=found["log_sigma_energy"].float(),
            log_sigma_forces=found["log_sigma_forces"],
            log_sigma_stress=(found["log_sigma_virial"] - graph.volume.double().log()).float(),
            features=found["features"],
            invariants=found["invariants"][None],
            couplings=self.model.couplings(weights, found["features"], graph),
        )

    def dynamics(self, weights: Weights, graph: Graph) -> "NativeDynamics":
        return NativeDynamics(
            self.module.library, self._place(weights), self.model.network.invariants, graph.sender.shape[1]
        )

    def part(self, weights: Weights) -> "NativeDynamics":
        return NativeDynamics(self.module.library, self._place(weights), self.model.network.invariants)

    def _place(self, weights: Weights) -> "PlacedWeights":
        """The last weights are kept."""
        if self._placed is None or self._placed.source is not weights:
            self._placed = PlacedWeights(self.model, self.module, weights)
        return self._placed


class PlacedWeights:
    """Forward weights where the C++ functions read them: [K, size], and their matrices transposed."""

    def __init__(self, model: StochasticModel, module: Library, weights: Weights) -> None:
        self.source = weights
        flat = model.layout.flatten(weights).float()
        self.chains = len(flat)
        self.forward = flat.new_zeros(self.chains, module.size)
        self.forward[:, module.places.long()] = flat
        library = module.library
        library.back_size.restype = ctypes.c_int64
        self.back = flat.new_zeros(self.chains, library.back_size())
        library.prepare_weights(ctypes.c_int64(self.chains), _address(self.forward), _address(self.back))


class Swapping:
    """Lets C++ exchange the features of ghosts."""

    def __init__(self, library: ctypes.CDLL, system: ctypes.c_void_p, ghosts: Ghosts) -> None:
        self.ghosts = ghosts
        self._failure: BaseException | None = None
        self._function = SWAP(self._swap)  # kept as long as C++ may call it
        sent, received = (torch.from_numpy(np.ascontiguousarray(each)) for each in (ghosts.sent, ghosts.received))
        sizes = ctypes.c_int64(len(sent)), ctypes.c_int64(len(received))
        library.system_swap(system, self._function, sizes[0], _address(sent), sizes[1], _address(received))

    def _swap(self, sent: int, received: int, floats: int) -> None:
        """Called by C++, through which no exception can pass."""
        try:
            found = self.ghosts.swap(_rows(sent, len(self.ghosts.sent), floats))
            _rows(received, len(self.ghosts.received), floats)[:] = found
        except BaseException as problem:
            self._failure = problem

    def check(self) -> None:
        """Raises what was raised in between."""
        if self._failure is not None:
            raise self._failure


class System:
    """The atoms of one graph in the memory of the C++ functions."""

    def __init__(
        self,
        library: ctypes.CDLL,
        graph: Graph,
        invariants: int,
        positions: np.ndarray | None = None,
        ghosts: Ghosts | None = None,
    ) -> None:
        """invariants: their number S;  positions [N, 3]: if the graph is a list of pairs that is used again when the
        atoms have moved."""
        self.library, self.invariants = library, invariants
        self.atoms, slots = graph.sender.shape[1:]
        self.structures = graph.num_structures
        at = None if positions is None else torch.from_numpy(np.array(positions, dtype=np.float64, order="C"))
        tensors = [graph.species, graph.sender, graph.reverse, graph.vector.double(), graph.structure]
        tensors = [tensor.contiguous() for tensor in tensors]
        is_ghost = None if ghosts is None else torch.from_numpy(ghosts.is_ghost.astype(np.uint8))
        library.system_new.restype = ctypes.c_void_p
        sizes = (ctypes.c_int64(size) for size in (self.atoms, slots, self.structures))
        made = library.system_new(*sizes, *map(_address, [*tensors, at, is_ghost]))
        self._system = ctypes.c_void_p(made)
        weakref.finalize(self, library.system_free, self._system)
        self._swapping = None if ghosts is None else Swapping(library, self._system, ghosts)

    def predict(
        self,
        weights: PlacedWeights,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        channels: int = 0,
    ) -> dict[str, torch.Tensor]:
        """By the names of `Results`; features where their number of channels is given."""
        count = weights.chains
        found = {
            "energy": torch.empty(count, self.structures, dtype=torch.float64),
            "forces": torch.empty(count, self.atoms, 3, dtype=torch.float64),
            "virial": torch.empty(count, self.structures, 3, 3, dtype=torch.float64),
            "log_sigma_energy": torch.empty(count, self.structures, dtype=torch.float64),
            # stays NaN where stress is not learned
            "log_sigma_virial": torch.full((count, self.structures), torch.nan, dtype=torch.float64),
            "log_sigma_forces": torch.zeros(count, self.atoms, dtype=torch.float32),
            "invariants": torch.zeros(self.atoms, self.invariants, dtype=torch.float32),
        }
        if channels:
            found["features"] = torch.empty(count, self.atoms, channels, dtype=torch.float32)
        results = Results(**{name: tensor.data_ptr() for name, tensor in found.items()})
        mask = None if mask is None else mask.float().contiguous()
        self.library.system_predict(
            self._system, _address(positions), ctypes.c_int64(count), _address(weights.forward), _address(weights.back),
            _address(mask), ctypes.byref(results), ctypes.c_int64(LEAN), ctypes.c_int64(torch.get_num_threads()),
        )  # fmt: skip
        if self._swapping is not None:
            self._swapping.check()
        return found


class NativeDynamics:
    """One structure whose atoms move while its list of pairs stays; at each call those within the cutoff are taken."""

    def __init__(self, library: ctypes.CDLL, weights: PlacedWeights, invariants: int, num_atoms: int = 0) -> None:
        self.library, self.weights, self.invariants, self.num_atoms = library, weights, invariants, num_atoms
        self._system: System | None = None

    def load(self, graph: Graph, positions: np.ndarray, ghosts: Ghosts | None = None) -> None:
        """See `Dynamics` and `PartDynamics`."""
        self._system = System(self.library, graph, self.invariants, positions, ghosts)
        self.num_atoms = self._system.atoms

    def __call__(self, positions: np.ndarray) -> DynamicsOutput:
        assert self._system is not None
        at = torch.from_numpy(np.array(positions, dtype=np.float64, order="C"))
        found = {name: tensor.numpy() for name, tensor in self._system.predict(self.weights, at).items()}
        return DynamicsOutput(
            energy=found["energy"][:, 0],
            forces=found["forces"],
            virial=found["virial"][:, 0],
            log_sigma_energy=found["log_sigma_energy"][:, 0],
            log_sigma_forces=found["log_sigma_forces"].astype(np.float64),
            log_sigma_virial=found["log_sigma_virial"][:, 0],
            invariants=found["invariants"],
        )


def _rows(address: int, rows: int, floats: int) -> np.ndarray:
    """[rows, floats] float32 at an address."""
    if not rows * floats:
        return np.zeros((rows, floats), np.float32)
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (rows, floats))


def _address(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
