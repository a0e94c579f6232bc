"""The remembered neighbour list: the same graph as a fresh one, made seldom."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equibayes.data.graph import Graph, graph_of
from equibayes.data.structures import Structure
from equibayes.simulate.skin import SkinList
from tests.samples import SPECIES_OF, ethanol, one_atom_cell, salt, silicon, slab

R_MAX = 4.0


def edges_of(graph: Graph) -> list[tuple]:
    """Receiver, sender and vector of every slot that holds a neighbour, in a comparable order."""
    result = []
    for receiver, (senders, vectors) in enumerate(zip(graph.sender[0].numpy(), graph.vector[0].numpy())):
        near = np.linalg.norm(vectors, axis=1) < R_MAX
        result += [(receiver, int(s), *np.round(v, 8) + 0.0) for s, v in zip(senders[near], vectors[near])]
    return sorted(result)


def assert_opposite(graph: Graph) -> None:
    """Every slot's partner has the opposite vector."""
    vector, reverse = graph.vector.reshape(-1, 3), graph.reverse.reshape(-1)
    near = vector.norm(dim=1) < R_MAX
    assert bool((vector[reverse][near] == -vector[near]).all()), "to the last bit"


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 1000),
    make=st.sampled_from([ethanol, salt, silicon, slab]),
    skin=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_same_graph_as_a_fresh_list_along_a_walk(seed, make, skin) -> None:
    structure, rng = make(seed), np.random.default_rng(seed)
    known = SkinList(R_MAX, SPECIES_OF, skin)
    for _ in range(8):
        graph = known.graph(structure)
        assert edges_of(graph) == edges_of(graph_of(structure, r_max=R_MAX, species_of=SPECIES_OF))
        assert_opposite(graph)
        structure = replace(structure, positions=structure.positions + rng.normal(0, 0.05, structure.positions.shape))


@pytest.mark.parametrize("make", [ethanol, salt, lambda: one_atom_cell()])
def test_graph_does_not_depend_on_where_the_list_was_made(make) -> None:
    """Bit for bit: what a continued simulation rests on."""
    here = make()
    nearby = replace(here, positions=here.positions + 0.1 * np.sin(7 * here.positions))
    moved, fresh = SkinList(R_MAX, SPECIES_OF, 2.0), SkinList(R_MAX, SPECIES_OF, 2.0)
    moved.graph(nearby)
    one, other = moved.graph(here), fresh.graph(here)
    assert moved.searches == 1
    for field in fields(Graph):
        np.testing.assert_array_equal(getattr(one, field.name).numpy(), getattr(other, field.name).numpy())


def test_searches_only_when_needed() -> None:
    known, start = SkinList(R_MAX, SPECIES_OF, 1.0), salt()

    def look(**changes: object) -> int:
        known.graph(replace(start, **changes))
        return known.searches

    def shifted(by: float) -> np.ndarray:
        positions = start.positions.copy()
        positions[3, 1] += by
        return positions

    assert look() == 1
    assert look(positions=shifted(0.49)) == 1, "within half the skin"
    assert look(positions=shifted(0.51)) == 2, "beyond half the skin"
    assert look() == 3, "the list was made elsewhere"
    assert look(cell=start.cell * 1.0001) == 4
    assert look(cell=start.cell * 1.0001, pbc=[True, True, False]) == 5
    assert look(cell=start.cell * 1.0001, pbc=[True, True, False], numbers=start.numbers[::-1].copy()) == 6


def test_another_number_of_atoms() -> None:
    known = SkinList(R_MAX, SPECIES_OF, 1.0)
    known.graph(salt())
    known.graph(ethanol())
    smaller = Structure([14], [[0.0, 0.0, 0.0]])
    assert known.graph(smaller).species.shape == (1, 1)
    assert known.searches == 3


def test_a_new_search_leaves_no_old_pairs() -> None:
    """Pairs are those of the last search, also where a caller that keeps its own pairs asked for it."""
    known, start = SkinList(R_MAX, SPECIES_OF, 1.0), ethanol()
    far = replace(start, positions=start.positions * 1.3)
    known.graph(start)
    assert known.renew(far)
    assert edges_of(known.graph(far)) == edges_of(graph_of(far, r_max=R_MAX, species_of=SPECIES_OF))
    assert known.searches == 2
