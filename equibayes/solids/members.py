"""The potentials that properties are computed with: the samples of a posterior, or ASE calculators.

Everything in this package asks a `Members` for energies, forces and stress of jobs, (member, structure) pairs, and does
not know what answers.  The samples of a posterior answer together: each sees structures of its own, in one pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import torch
from ase import Atoms

from equibayes.data.graph import Graph, check_species, concatenate, graph_of, pad_graph
from equibayes.data.stress import full_to_voigt
from equibayes.data.structures import FloatArray, Structure
from equibayes.engine.select import EDGES_AT_ONCE
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.posterior.linearised import linearised, weight_sets

Job = tuple[int, Atoms]
"""A member, counted from 0, and the structure that it is asked about."""


@dataclass(frozen=True, eq=False)
class State:
    """What one member says about one structure."""

    energy: float  # eV
    forces: FloatArray  # [n, 3] eV/Å
    stress: FloatArray  # [6] eV/Å³, Voigt order, ASE's sign

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.energy) and np.isfinite(self.forces).all() and np.isfinite(self.stress).all())


class Members(Protocol):
    """Several potentials, and their names in messages."""

    names: list[str]

    def check(self, atoms: Atoms, source: str) -> None:
        """An `InputError` for a structure that they cannot evaluate."""

    def comparable(self, *numbers: np.ndarray, absolute: bool) -> bool:
        """Whether differences of energies between these compositions mean something.

        absolute: whether they are also compared with energies from elsewhere, such as chemical potentials
        """

    def evaluate(self, jobs: Sequence[Job]) -> list[State]:
        """The answers, in the order of the jobs."""


class AseMembers:
    """ASE calculators, one after the other."""

    def __init__(self, calculators: Sequence[Any]) -> None:
        if not calculators:
            raise InputError("no calculators to compute properties with; give at least one")
        self.calculators = list(calculators)
        self.names = [f"calculator {number}" for number in range(len(self.calculators))]

    def check(self, atoms: Atoms, source: str) -> None:
        """ASE calculators check their structures themselves."""

    def comparable(self, *numbers: np.ndarray, absolute: bool) -> bool:
        return True

    def evaluate(self, jobs: Sequence[Job]) -> list[State]:
        return [self._evaluate(self.calculators[member], atoms.copy()) for member, atoms in jobs]

    def _evaluate(self, calculator: Any, atoms: Atoms) -> State:
        atoms.set_constraint()
        atoms.calc = calculator
        return State(float(atoms.get_potential_energy()), atoms.get_forces().copy(), atoms.get_stress().copy())


class PosteriorMembers:
    """The samples of a posterior: a graph for each sample, stacked along the axis of the samples."""

    def __init__(self, posterior: Posterior, device: torch.device | str = "cpu", dtype: str = "float64") -> None:
        """dtype: of the arithmetic; elastic constants and phonons are differences of small numbers, hence float64."""
        if posterior.dropout:
            raise InputError(
                "a dropout baseline has no properties: its masks differ from atom to atom, which breaks the symmetry of "
                "a crystal; use a posterior or a deep ensemble"
            )
        self.posterior, self.device = posterior, torch.device(device)
        sets, self._steps = posterior.samples.to(self.device, getattr(torch, dtype)), None
        if posterior.tangent is not None:
            sets, self._steps = weight_sets(sets, posterior.tangent.to(self.device))
        self._sets = len(sets) // len(posterior)  # weight sets of a member: three where it is linearised
        self._weights = posterior.model.layout.forward_weights(sets)
        self._edges_at_once = EDGES_AT_ONCE[self.device.type] // self._sets
        self.names = [f"sample {number}" for number in range(len(posterior))]

    def check(self, atoms: Atoms, source: str) -> None:
        check_species(Structure.from_atoms(atoms, source), self.posterior.species_of)

    def comparable(self, *numbers: np.ndarray, absolute: bool) -> bool:
        reference = self.posterior.reference
        # shifts that are linear in the composition cancel where only one element comes and goes
        return not (absolute or reference.offsets) or all(reference.knows(each) for each in numbers)

    def evaluate(self, jobs: Sequence[Job]) -> list[State]:
        found: dict[int, State] = {}
        graphs = [self._graph(atoms) for _, atoms in jobs]
        for batch in batches([member for member, _ in jobs], [edges_of(g) for g in graphs], self._edges_at_once):
            found |= self._evaluate_batch(jobs, graphs, batch)
        return [found[number] for number in range(len(jobs))]

    def _graph(self, atoms: Atoms) -> Graph:
        structure = Structure(atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc)
        return graph_of(structure, r_max=self.posterior.network.r_max, species_of=self.posterior.species_of)

    def _evaluate_batch(
        self, jobs: Sequence[Job], graphs: Sequence[Graph], batch: dict[int, list[int]]
    ) -> dict[int, State]:
        """batch: for each member the numbers of its jobs, equally many for all."""
        own = [concatenate([graphs[number] for number in numbers]) for numbers in batch.values()]
        graph = stacked([each for each in own for _ in range(self._sets)])
        chosen = [member * self._sets + place for member in batch for place in range(self._sets)]
        weights = {name: values[chosen] for name, values in self._weights.items()}
        output = self.posterior.model.forward(weights, graph.to(self.device))
        energy, forces, stress = (t.double().cpu().numpy() for t in (output.energy, output.forces, output.stress))
        if self._steps is not None:
            steps = self._steps[list(batch)]
            energy, forces, stress = (linearised(values, steps) for values in (energy, forces, stress))
        found = {}
        for row, numbers in enumerate(batch.values()):
            end = 0
            for column, number in enumerate(numbers):
                atoms = jobs[number][1]
                first, end = end, end + len(atoms)
                total = float(energy[row, column]) + self.posterior.reference.total(atoms.numbers)
                state = State(total, forces[row, first:end].copy(), full_to_voigt(stress[row, column]))
                found[number] = self._corrected(state, atoms)
        return found

    def _corrected(self, state: State, atoms: Atoms) -> State:
        """With what the networks correct."""
        if self.posterior.baseline is None:
            return state
        own = self.posterior.baseline.label(Structure(atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc))
        stress = np.full(6, np.nan) if own.stress is None else full_to_voigt(own.stress)
        return State(state.energy + own.energy, state.forces + own.forces, state.stress + stress)


def edges_of(graph: Graph) -> int:
    """Slots for neighbours in a graph: what its evaluation costs."""
    return graph.sender.numel()


def stacked(graphs: Sequence[Graph]) -> Graph:
    """One graph in which the k-th weights see the k-th graph; all hold equally many structures."""
    atoms, slots = (max(graph.sender.shape[axis] for graph in graphs) for axis in (1, 2))
    padded = [pad_graph(graph, atoms, slots) for graph in graphs]
    return Graph(**{field.name: torch.cat([getattr(each, field.name) for each in padded]) for field in fields(Graph)})


def batches(members: Sequence[int], edges: Sequence[int], limit: int) -> Iterator[dict[int, list[int]]]:
    """Jobs to evaluate together, as {member: numbers of its jobs}, with about `limit` edges at most.

    Every member in a batch has the same number of jobs, so that the arrays of all members have the same shape.
    """
    queues: dict[int, list[int]] = {}
    for number, member in enumerate(members):
        queues.setdefault(member, []).append(number)
    while queues:
        widest = max(edges[numbers[0]] for numbers in queues.values())
        together = list(queues)[: max(1, limit // max(1, widest))]
        shortest = min(len(queues[member]) for member in together)
        most = max(edges[number] for member in together for number in queues[member][:shortest])
        count = min(shortest, max(1, limit // max(1, most * len(together))))
        yield {member: queues[member][:count] for member in together}
        for member in together:
            del queues[member][:count]
            if not queues[member]:
                del queues[member]
