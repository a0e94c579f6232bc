"""The least σ that novelty asks for: outside the data σ grows whatever the samples agree on.

    own_i   = F/2 · (ν_i − 1/2)²      from a novelty ν_i of 1/2 on; of ν_i > 30 as of 30
    floor_i² = own_i² + max_j (own_j (1 − r_ij²/r_max²))²      over the neighbours j of atom i
    energy:    Σ_i (own_i · 1 Å)²;   stress: the same over the volume

F is the root mean square of the force components in the training frames.  The force on an atom is a derivative of the
energies of its neighbours, so it is as doubtful as they are.  floor² is added to the epistemic σ² of every component,
after the calibration.

Shape and factor are not derived: they were chosen on molecules far from their training frames and hold for others
(`studies/doubt`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from equibayes.data.neighbors import neighbor_list
from equibayes.data.structures import FloatArray, Structure

MOST_NOVEL = 30.0
LENGTH = 1.0
"""Å, between forces and energies."""
MOST_PAIRS = 2_000_000
"""Of novel atoms and others, whose distances are computed without a neighbour list."""


@dataclass(frozen=True)
class Shape:
    """own = factor · F · (ν − begin)^power."""

    begin: float = 0.5
    factor: float = 0.5
    power: float = 2.0

    def __call__(self, novelty: FloatArray, scale: float) -> FloatArray:
        """own [n], eV/Å, from novelties [n] and F."""
        beyond = (np.minimum(novelty, MOST_NOVEL) - self.begin).clip(min=0.0)
        return np.asarray(self.factor * scale * beyond**self.power)


USUAL = Shape()


def floors(
    structures: Sequence[Structure], novelty: FloatArray, scale: float, r_max: float, shape: Shape = USUAL
) -> tuple[FloatArray, FloatArray] | None:
    """Of the energies [B], eV, and of the forces [N], eV/Å, of all atoms; None where nothing is novel.

    novelty [N] of the atoms of all structures;  scale: F;  r_max: the cutoff, Å
    """
    if not scale or novelty.max(initial=0.0) <= shape.begin:
        return None
    own = shape(novelty, scale)
    energy, forces, end = np.zeros(len(structures)), own.copy(), 0
    for number, structure in enumerate(structures):
        atoms = slice(end, end + len(structure))
        end = atoms.stop
        if own[atoms].any():
            energy[number] = LENGTH * np.linalg.norm(own[atoms])
            forces[atoms] = np.hypot(own[atoms], _from_neighbours(structure, own[atoms], r_max))
    return energy, forces


def _from_neighbours(structure: Structure, own: FloatArray, r_max: float) -> FloatArray:
    """[n] max_j own_j (1 − r_ij²/r_max²)."""
    found, novel = np.zeros(len(own)), np.flatnonzero(own)
    if len(novel) * len(own) > MOST_PAIRS or not _holds_once(structure, r_max):
        pairs = neighbor_list(structure.positions, structure.cell, structure.pbc, r_max)
        near = 1 - np.square(pairs.vector).sum(1) / r_max**2
        np.maximum.at(found, pairs.receiver, own[pairs.sender] * near)
        return found
    vector = structure.positions[:, None] - structure.positions[novel]
    if structure.pbc.any():
        turns = vector @ np.linalg.pinv(structure.cell)
        vector -= (np.round(turns) * structure.pbc) @ structure.cell
    near = (1 - np.einsum("ijk,ijk->ij", vector, vector) / r_max**2).clip(min=0.0)
    near[novel, np.arange(len(novel))] = 0.0
    return np.asarray((near * own[novel]).max(1))


def _holds_once(structure: Structure, r_max: float) -> bool:
    """Whether no atom has two images of another within the cutoff, so that the nearest image is enough."""
    if not structure.pbc.any():
        return True
    heights = 1 / np.linalg.norm(np.linalg.pinv(structure.cell), axis=0)
    return bool((heights[structure.pbc] >= 2 * r_max).all())
