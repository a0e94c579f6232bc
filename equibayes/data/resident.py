"""A whole data set as static arrays on one device, from which minibatches are read without using the host.

Every frame is padded to the same number of atoms and slots.  A minibatch is then a gather by frame number, with
shapes that never change, and each chain can have its own frames.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch

from equibayes.data.graph import Graph, graph_of, pad_graph
from equibayes.data.rigid import DIRECTIONS, rigid_directions_of
from equibayes.data.structures import Structure


@dataclass(frozen=True)
class Labels:
    """Labels of the structures of a Graph.

    energy [G, B] float64  eV, the energy reference subtracted; NaN where there is no label
    forces [G, N, 3]       eV/Å; 0 at padding atoms
    stress [G, B, 3, 3]    eV/Å³; NaN where there is no label, None where no structure of the whole set has one
    weight [G, B] float64  of each structure's log likelihood; None: all 1
    noise  [G, B] float64  eV/Å, known deviation of the forces (see data/structures.py); None: all 0
    rigid  [G, N, 3, 6]    Å/eV; directions of net force and torque (rigid.py) over the noise of the labels along them;
                           None where no likelihood asks for them
    """

    energy: torch.Tensor
    forces: torch.Tensor
    stress: torch.Tensor | None = None
    weight: torch.Tensor | None = None
    noise: torch.Tensor | None = None
    rigid: torch.Tensor | None = None


class ResidentData:
    """Frames ready to be read by number: `batch(indices [G, B])` gives (Graph, Labels)."""

    def __init__(
        self,
        structures: Sequence[Structure],
        *,
        r_max: float,
        species_of: dict[int, int],
        reference: Sequence[float],
        stress: bool = True,
        rigid_noise: float | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """reference: the energy (eV) to subtract from each structure's label;  stress: false leaves its labels out;
        rigid_noise: of the labels along net force and torque, eV/Å, for labels with these directions"""
        graphs = [graph_of(structure, r_max=r_max, species_of=species_of) for structure in structures]
        atoms = max(graph.sender.shape[1] for graph in graphs)
        slots = max(graph.sender.shape[2] for graph in graphs)
        padded = [pad_graph(graph, atoms, slots) for graph in graphs]
        # frames take the place of the chain axis: [F, n, …]
        merged = {f.name: torch.cat([getattr(graph, f.name) for graph in padded]) for f in fields(Graph)}
        self.frames = Graph(**merged).to(device, dtype)
        energy = [np.nan if s.energy is None else s.energy - shift for s, shift in zip(structures, reference)]
        forces = np.zeros((len(structures), atoms, 3))
        for row, structure in zip(forces, structures):
            if structure.forces is not None:
                row[: len(structure)] = structure.forces
        rigid = None if rigid_noise is None else _rigid(structures, atoms) / rigid_noise
        self.rigid = None if rigid is None else rigid.to(device, dtype)
        self.energy = torch.tensor(energy, dtype=torch.float64, device=device)
        self.forces = torch.from_numpy(forces).to(device, dtype)
        self.stress = _stress(structures).to(device, dtype) if stress and has_stress(structures) else None
        self.weight = _unless([s.weight for s in structures], 1.0, device)
        self.noise = _unless([s.noise for s in structures], 0.0, device)

    def __len__(self) -> int:
        return len(self.energy)

    @property
    def num_atoms(self) -> int:
        """Atoms of a padded frame."""
        return self.forces.shape[1]

    def batch(self, indices: torch.Tensor) -> tuple[Graph, Labels]:
        """Frames [G, B] by number -> a Graph of B structures for each of G chains, and its labels."""
        groups, size = indices.shape
        frames, atoms, slots = self.frames, *self.frames.sender.shape[1:]
        place = torch.arange(size, device=indices.device)[None, :, None]  # of a frame in the minibatch
        padding = frames.structure[indices] == 1  # a frame by itself is structure 0; 1 marks its padding
        graph = Graph(
            species=frames.species[indices].flatten(1, 2),
            sender=(frames.sender[indices] + place[..., None] * atoms).flatten(1, 2),
            reverse=(frames.reverse[indices] + place[..., None] * atoms * slots).flatten(1, 2),
            vector=frames.vector[indices].flatten(1, 2),
            structure=torch.where(padding, size, place).flatten(1, 2),
            num_atoms=frames.num_atoms[indices].flatten(1, 2),
            volume=frames.volume[indices].flatten(1, 2),
        )
        stress, weight, noise = (
            None if each is None else each[indices] for each in (self.stress, self.weight, self.noise)
        )
        rigid = None if self.rigid is None else self.rigid[indices].flatten(1, 2)
        return graph, Labels(self.energy[indices], self.forces[indices].flatten(1, 2), stress, weight, noise, rigid)


def has_stress(structures: Iterable[Structure]) -> bool:
    """Whether any structure has a stress to learn from."""
    return any(structure.stress_label is not None for structure in structures)


def _unless(values: Sequence[float], usual: float, device: torch.device | str) -> torch.Tensor | None:
    """[F]; None where all are the usual one."""
    return torch.tensor(values, dtype=torch.float64, device=device) if set(values) != {usual} else None


def _rigid(structures: Sequence[Structure], atoms: int) -> torch.Tensor:
    """[F, atoms, 3, 6]; 0 at padding atoms."""
    found = np.zeros((len(structures), atoms, 3, DIRECTIONS))
    for row, structure in zip(found, structures):
        row[: len(structure)] = rigid_directions_of(structure)
    return torch.from_numpy(found)


def _stress(structures: Sequence[Structure]) -> torch.Tensor:
    """[F, 3, 3] eV/Å³, NaN where there is no label."""
    missing = np.full((3, 3), np.nan)
    labels = [missing if structure.stress_label is None else structure.stress_label for structure in structures]
    return torch.from_numpy(np.stack(labels))
