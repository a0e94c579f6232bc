"""Which structures may be sent to a labeller, decided before any is selected.

| state     |                                                                                     |
|-----------|-------------------------------------------------------------------------------------|
| candidate | may be sent                                                                         |
| known     | σ and novelty are below their lower levels: a label would add little                |
| labelled  | has a label already, or failed to be labelled                                       |
| twin      | has the geometry of an earlier proposal                                             |
| too close | two atoms are closer than any bond                                                  |
| exploded  | σ is at or above the upper trust level                                              |
| unknown   | positions or σ are not finite, or novelty is at or above its upper level: never sent |
"""

from collections.abc import Collection, Sequence

import numpy as np
from ase.data import covalent_radii

from equibayes.data.neighbors import neighbor_list
from equibayes.data.structures import Structure
from equibayes.simulate.trust import Trust

STATES = ("candidate", "known", "labelled", "twin", "too close", "exploded", "unknown")
CLOSEST = 0.5
"""Fraction of the sum of two covalent radii below which atoms have collided: C-C 0.76 Å, O-H 0.49 Å, H-H 0.31 Å."""


def screen(
    structures: Sequence[Structure],
    sigma: Sequence[float] | np.ndarray,
    asked: Collection[bytes] = (),
    trust: Trust | None = None,
    closest: float = CLOSEST,
    novelty: Sequence[float] | np.ndarray | None = None,
) -> list[str]:
    """The state of each structure.

    sigma    [n] eV/Å, the largest deviation of each (see `trust.py`)
    novelty  [n] the largest novelty of each; None or NaN: not known
    asked    geometry digests of all structures sent to the labeller so far, with or without success
    closest  fraction of the sum of covalent radii
    """
    states: list[str] = []
    seen: set[bytes] = set()
    novel = np.full(len(structures), np.nan) if novelty is None else novelty
    for structure, deviation, strange in zip(structures, sigma, novel, strict=True):
        digest = structure.geometry_digest()
        state = _geometry_state(structure, digest, asked, seen, closest)
        states.append(state or _state(float(deviation), float(strange), trust or Trust(novelty_upper=None)))
        seen.add(digest)
    return states


def sound(structure: Structure, closest: float = CLOSEST) -> bool:
    """Whether a structure can be evaluated and labelled: finite, without colliding atoms."""
    return bool(np.isfinite(structure.positions).all()) and not too_close(structure, closest)


def too_close(structure: Structure, closest: float = CLOSEST) -> bool:
    """Whether two atoms are closer than this fraction of the sum of their covalent radii, including periodic images."""
    radii = covalent_radii[structure.numbers]
    edges = neighbor_list(
        structure.positions, structure.cell, structure.pbc, max(2 * closest * float(radii.max()), 0.1)
    )
    distance = np.linalg.norm(edges.vector, axis=1)
    return bool((distance < closest * (radii[edges.receiver] + radii[edges.sender])).any())


def _geometry_state(
    structure: Structure, digest: bytes, asked: Collection[bytes], seen: Collection[bytes], closest: float
) -> str | None:
    if not np.isfinite(structure.positions).all():
        return "unknown"
    if digest in asked:
        return "labelled"
    if digest in seen:
        return "twin"
    return "too close" if too_close(structure, closest) else None


def _state(deviation: float, novelty: float, trust: Trust) -> str:
    state = trust.state(deviation, novelty)
    if state == "trusted":
        return "candidate" if trust.lower is None else "known"
    return state
