"""How MPI ranks share the work on a structure: they divide the samples of the posterior, or the atoms.

**Samples.**  Every rank evaluates its samples for all atoms.  The first rank combines them as if it had evaluated all.

**Atoms.**  Every rank evaluates all samples for its own atoms (`domains.py`).  Before each layer, ranks exchange the
features of the atoms that are neighbours of another rank's, so that nothing is evaluated twice.  This serves any number
of ranks and divides the memory too, but needs the compiled engine, and ranks that wait for each other at each layer.

Either way the results are those of one rank up to the order of sums.
"""

import socket
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch

from equibayes.data.structures import Structure
from equibayes.engine.interface import Ghosts, PartDynamics
from equibayes.errors import InputError
from equibayes.posterior.novelty import Gauge
from equibayes.posterior.prediction import Prediction
from equibayes.posterior.sampled import Sampled
from equibayes.simulate.domains import Domain, Share, joined, joined_novelty, owners
from equibayes.simulate.evaluator import Evaluator
from equibayes.simulate.lammps_library import Ranks
from equibayes.simulate.skin import SkinList

Stage = Callable[[Structure], None]
Divide = Literal["auto", "samples", "atoms"]
DIVIDE: tuple[Divide, ...] = ("auto", "samples", "atoms")
ATOMS_PER_RANK = 4000
"""Atoms of each rank from which `auto` divides them."""


def place_of(rank: int, device: torch.device) -> Hashable:
    """Where a rank evaluates: its GPU, which it may share with other ranks, or processor cores of its own."""
    if device.type != "cuda":
        return rank
    return socket.gethostname(), str(torch.cuda.get_device_properties(device).uuid)


def shares(places: Sequence[Hashable], samples: int) -> list[range | None]:
    """The numbers of the samples of each rank, in order; None for a rank that only waits.

    One rank evaluates at each place: two on one GPU would take turns.  Ranks that evaluate are spread evenly if there
    are fewer samples; numbers of samples differ by at most one.
    """
    able = [rank for rank, place in enumerate(places) if place not in places[:rank]]
    count = min(samples, len(able))
    found: list[range | None] = [None] * len(places)
    for i in range(count):
        found[able[i * len(able) // count]] = range(i * samples // count, (i + 1) * samples // count)
    return found


def waiting(divided: Sequence[range | None], places: Sequence[Hashable], samples: int) -> str | None:
    """A warning if ranks with a place of their own wait because there are too few samples."""
    used, able = len(divided) - divided.count(None), len(set(places))
    if used == able:
        return None
    return (
        f"{able - used} of {len(places)} MPI ranks wait while others evaluate the potential, because there are only "
        f"{samples} samples to share; use {used} ranks with more --threads each"
    )


def divides_atoms(divide: Divide, ranks: int, atoms: int, samples: int) -> bool:
    """Whether the atoms are to be divided, where the engine can do that."""
    if divide not in DIVIDE:
        raise InputError(f"divide={divide}: must be {', '.join(DIVIDE[:-1])} or {DIVIDE[-1]}")
    if divide != "auto":
        return divide == "atoms"
    return ranks > 1 and (atoms >= ATOMS_PER_RANK * ranks or ranks > samples)


class SharedSamples:
    """The samples of one rank."""

    stages: tuple[Stage, ...] = ()
    """What all ranks do one after the other before they evaluate; an error is known to all after each."""

    def __init__(self, evaluator: Evaluator | None) -> None:
        """evaluator: of the samples of this rank; None for a rank that only waits."""
        self.evaluator = evaluator

    def sampled(self, structure: Structure) -> Sampled | None:
        """What the samples of this rank predict."""
        return None if self.evaluator is None else self.evaluator.sampled(structure)

    def prediction(self, structure: Structure, found: Sequence[Any]) -> Prediction:
        """From what all ranks found; on the first rank, which always evaluates some samples."""
        assert self.evaluator is not None
        return self.evaluator.prediction(structure, [each for each in found if each is not None])


class SharedAtoms:
    """The atoms of one rank."""

    def __init__(self, evaluator: Evaluator, part: PartDynamics, ranks: Ranks) -> None:
        """evaluator: of all samples;  part: by its engine."""
        self.evaluator, self.part, self.ranks = evaluator, part, ranks
        posterior = evaluator.posterior
        self._list = SkinList(posterior.network.r_max, posterior.species_of, evaluator.skin)
        self._owners = np.zeros(0, dtype=np.int64)
        self._domain: Domain | None = None
        self._gauge: Gauge | None = None
        self._loaded = False
        self.stages: tuple[Stage, ...] = (self._divide, self._connect)

    def _divide(self, structure: Structure) -> None:
        """Divide the atoms anew when the neighbour list no longer holds, which all ranks find at the same step."""
        if not self._list.renew(structure):
            return
        self._owners, self._loaded = owners(structure, self.ranks.size), False
        known = self.evaluator.posterior.species_of
        species = torch.tensor([known[int(z)] for z in structure.numbers])
        reach = self._list.r_max + self._list.skin
        self._domain = Domain.of(structure, self._owners == self.ranks.rank, reach, species)

    def _connect(self, structure: Structure) -> None:
        """Learn from the other ranks which atoms they need."""
        if not self._loaded:
            assert self._domain is not None
            ghosts = self._ghosts(self._domain)
            positions, known = structure.positions[self._domain.atoms], self.evaluator.ready.novelty
            self.part.load(self._domain.graph, positions, ghosts)
            self._gauge = known.gauge(self._domain.graph, positions, self.evaluator.skin) if known else None
            self._loaded = True

    def sampled(self, structure: Structure) -> Share:
        """What the atoms of this rank contribute; the ranks swap features meanwhile."""
        domain = self._domain
        assert domain is not None
        positions, mine = structure.positions[domain.atoms], ~domain.is_ghost
        found = self.part(positions)
        novelty = self._gauge(found.invariants, positions)[mine] if self._gauge else None
        found = replace(found, invariants=found.invariants[:, :0])
        return Share(domain.atoms[mine], domain.atoms, domain.is_ghost, found, novelty)

    def prediction(self, structure: Structure, found: Sequence[Any]) -> Prediction:
        """From the shares of all ranks."""
        count = len(structure)
        novelty = joined_novelty(found, count)
        sampled = self.evaluator.ready.sampled_by_dynamics(structure, joined(found, count), novelty)
        return self.evaluator.prediction(structure, [sampled])

    def _ghosts(self, domain: Domain) -> Ghosts:
        """Every rank asks the others for the atoms that it needs."""
        ghosts = domain.atoms[domain.is_ghost]
        wanted = [ghosts[self._owners[ghosts] == rank] for rank in range(self.ranks.size)]
        asked = self.ranks.trade(wanted)
        sent, received = ([len(atoms) for atoms in each] for each in (asked, wanted))
        return Ghosts(
            is_ghost=domain.is_ghost,
            sent=np.searchsorted(domain.atoms, np.concatenate(asked)),
            received=np.searchsorted(domain.atoms, np.concatenate(wanted)),
            swap=lambda rows: self.ranks.swap(rows, sent, received),
        )
