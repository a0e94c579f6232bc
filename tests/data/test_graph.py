"""Graphs: every edge in its slot, empty slots harmless, batches that mix sizes."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from equibayes.data import Structure
from equibayes.data.graph import EMPTY_SLOT_DISTANCE, Graph, concatenate, graph_of, pad_graph
from equibayes.data.neighbors import neighbor_list
from equibayes.data.resident import ResidentData
from equibayes.errors import InputError
from tests.models import stack_chains
from tests.samples import SPECIES_OF, ethanol, one_atom_cell, salt, silicon, slab, water

R_MAX = 4.0
ALL = [ethanol(), water(), silicon(), salt(), slab(), one_atom_cell()]
ALONE = Structure(numbers=[8], positions=[[1.0, 2.0, 3.0]], source="alone")


def of(structure: Structure) -> Graph:
    return graph_of(structure, r_max=R_MAX, species_of=SPECIES_OF)


def edges_of(graph: Graph, g: int = 0) -> list[tuple]:
    """(receiver, sender, vector) of every filled slot of group g, sorted."""
    filled = graph.vector[g].norm(dim=-1) < R_MAX
    receiver, _ = filled.nonzero(as_tuple=True)
    rows = zip(receiver.tolist(), graph.sender[g][filled].tolist(), graph.vector[g][filled].tolist())
    return sorted((i, j, *np.round(v, 8)) for i, j, v in rows)


def assert_sound(graph: Graph) -> None:
    """Opposite slots are opposite, empty slots point to themselves and lie beyond every cutoff."""
    groups, atoms, slots = graph.sender.shape
    for g in range(groups):
        reverse, sender = graph.reverse[g].flatten(), graph.sender[g].flatten()
        vector = graph.vector[g].reshape(-1, 3)
        receiver = torch.arange(atoms).repeat_interleave(slots)
        empty = vector.norm(dim=1) > R_MAX
        assert torch.equal(reverse[reverse], torch.arange(atoms * slots))
        assert torch.equal(receiver[reverse], sender)
        torch.testing.assert_close(vector[reverse][~empty], -vector[~empty])
        assert torch.equal(reverse[empty], torch.arange(atoms * slots)[empty])
        assert torch.all(vector[empty].norm(dim=1) == EMPTY_SLOT_DISTANCE)
        assert torch.equal(sender[empty], receiver[empty])


@pytest.mark.parametrize("structure", [*ALL, ALONE], ids=lambda s: s.source or "one atom")
def test_holds_every_edge_of_the_list(structure):
    graph = of(structure)
    edges = neighbor_list(structure.positions, structure.cell, structure.pbc, R_MAX)
    expected = sorted((i, j, *np.round(v, 8)) for i, j, v in zip(edges.receiver, edges.sender, edges.vector.tolist()))
    assert edges_of(graph) == expected
    assert graph.sender.shape[2] == max(np.bincount(edges.receiver, minlength=1).max(), 1), "no more slots than needed"
    assert_sound(graph)


@pytest.mark.parametrize("structure", ALL, ids=lambda s: s.source or "one atom")
def test_fields(structure):
    graph = of(structure)
    assert [SPECIES_OF[z] for z in structure.numbers.tolist()] == graph.species[0].tolist()
    assert graph.num_atoms.tolist() == [[len(structure)]]
    assert graph.structure.unique().tolist() == [0]
    if structure.pbc.all():
        assert graph.volume.item() == pytest.approx(structure.volume)
    else:
        assert graph.volume.isnan().all()
    assert graph.vector.dtype == torch.float64


def test_to_converts_floating_fields_only():
    graph = of(ethanol()).to(dtype=torch.float32)
    assert graph.vector.dtype == graph.volume.dtype == torch.float32
    assert graph.sender.dtype == graph.species.dtype == graph.num_atoms.dtype == torch.int64


def test_padding():
    graph = of(silicon())
    atoms, slots = graph.sender.shape[1:]
    wide = pad_graph(graph, atoms + 2, slots + 3)
    assert wide.sender.shape == (1, atoms + 2, slots + 3)
    assert edges_of(wide) == edges_of(graph)
    assert wide.real.tolist() == [[True] * atoms + [False] * 2]
    assert wide.num_structures == 1
    assert_sound(wide)


def test_concatenation():
    """Atoms follow each other; padding atoms of the parts still belong to nothing."""
    parts = [pad_graph(of(water()), 5, 4), of(silicon()), of(ALONE)]
    whole = concatenate(parts)
    assert whole.structure.tolist() == [[0, 0, 0, 3, 3, 1, 1, 2]]
    assert whole.num_atoms.tolist() == [[3, 2, 1]]
    expected = []
    for graph, first in zip(parts, (0, 5, 7)):
        expected += [(i + first, j + first, *v) for i, j, *v in edges_of(graph)]
    assert edges_of(whole) == sorted(expected)
    assert_sound(whole)


def test_stacking_chains():
    parts = [pad_graph(of(s), 9, 40) for s in (water(), silicon())]
    stacked = stack_chains(parts)
    assert stacked.sender.shape == (2, 9, 40)
    for g, part in enumerate(parts):
        assert edges_of(stacked, g) == edges_of(part)
    assert_sound(stacked)


def test_unknown_species():
    with pytest.raises(InputError) as caught:
        graph_of(salt(), r_max=R_MAX, species_of={1: 0, 6: 1, 11: 2})
    message = str(caught.value)
    assert message.startswith(f"{salt().source}: ")
    assert "Cl unknown" in message
    assert "knows H, C, Na" in message
    assert "remove such structures" in message
    assert "\n" not in message


@pytest.fixture(scope="module")
def frames():
    """All samples with labels; one has no energy."""
    rng = np.random.default_rng(0)
    energies = [1.0, None, 3.0, 4.0, 5.0, 6.0, 7.0]
    return [
        replace(s, energy=energy, forces=rng.normal(size=(len(s), 3))) for s, energy in zip([*ALL, ALONE], energies)
    ]


@pytest.fixture(scope="module")
def resident(frames):
    reference = [0.5] * len(frames)
    return ResidentData(frames, r_max=R_MAX, species_of=SPECIES_OF, reference=reference, dtype=torch.float64)


class TestResidentData:
    """A minibatch read by number is the graph of those frames."""

    def test_graph(self, frames, resident):
        chosen = torch.tensor([[0, 2, 6], [4, 4, 1]])
        graph, _ = resident.batch(chosen)
        assert_sound(graph)
        for g, row in enumerate(chosen.tolist()):
            expected = concatenate([pad_graph(of(frames[i]), resident.num_atoms, graph.sender.shape[2]) for i in row])
            for field in fields(Graph):
                a, b = getattr(graph, field.name)[g : g + 1], getattr(expected, field.name)
                torch.testing.assert_close(a, b, atol=0, rtol=0, equal_nan=True, msg=field.name)

    def test_labels(self, frames, resident):
        chosen = torch.tensor([[3, 1], [1, 5]])
        graph, labels = resident.batch(chosen)
        assert labels.energy[0, 0] == 3.5
        assert labels.energy[:, [1, 0]].diagonal().isnan().all()
        for g, row in enumerate(chosen.tolist()):
            for place, i in enumerate(row):
                start = place * resident.num_atoms
                forces = labels.forces[g, start : start + resident.num_atoms].numpy()
                np.testing.assert_array_equal(forces[: len(frames[i])], frames[i].forces)
                assert np.all(forces[len(frames[i]) :] == 0)
        assert graph.real.sum() == sum(len(frames[i]) for i in chosen.flatten().tolist())

    def test_length(self, frames, resident):
        assert len(resident) == len(frames)
