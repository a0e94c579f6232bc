"""The neighbour list in torch operations against the one of vesin; its work and its memory as structures grow."""

import weakref
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from equibayes.data import Structure
from equibayes.data.graph import EMPTY_SLOT_DISTANCE, Graph, graph_of, graph_of_edges
from equibayes.data.neighbors import NeighborList, neighbor_list
from equibayes.engine.bins import into_bins
from equibayes.engine.neighbors import (
    TorchNeighborList,
    _near_pairs,
    _neighbouring_bins,
    graph_of_torch_edges,
    neighbor_list_torch,
)
from equibayes.errors import InputError
from tests.data.test_neighbors import random_cell
from tests.samples import SPECIES_OF, ethanol, one_atom_cell, salt, silicon, slab, water

EVERYWHERE, NOWHERE = np.ones(3, dtype=bool), np.zeros(3, dtype=bool)
NO_CELL = np.zeros((3, 3))


def search(positions, cell, pbc, r_max, **options) -> TorchNeighborList:
    return neighbor_list_torch(torch.tensor(positions, dtype=torch.float64), cell, pbc, r_max, **options)


def ordered(edges: NeighborList) -> NeighborList:
    """By receiver, sender and lattice translation."""
    shift = edges.shift
    order = np.lexsort((shift[:, 2], shift[:, 1], shift[:, 0], edges.sender, edges.receiver))
    place = np.argsort(order)
    return NeighborList(
        edges.receiver[order], edges.sender[order], edges.vector[order], place[edges.reverse[order]], shift[order]
    )


def assert_equals_vesin(positions, cell, pbc, r_max, **options) -> TorchNeighborList:
    """The same edges in the same order; vectors to rounding, and exactly opposite to those of the opposite edges."""
    expected = ordered(neighbor_list(positions, cell, pbc, r_max))
    found = search(positions, cell, pbc, r_max, **options)
    for name in ("receiver", "sender", "shift", "reverse"):
        ours = getattr(found, name)
        assert ours.dtype == torch.int64
        np.testing.assert_array_equal(ours.numpy(), getattr(expected, name), err_msg=name)
    assert found.vector.dtype == torch.float64
    rounding = 1e-14 * (1 + np.abs(positions).max(initial=0))
    np.testing.assert_allclose(found.vector.numpy(), expected.vector, rtol=0, atol=10 * rounding)
    assert torch.equal(found.vector[found.reverse], -found.vector)
    return found


def box_of(atoms: int, density: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Positions at random in a cubic cell; density in atoms/Å³: 0.1 in water, 0.05 in silicon."""
    length = (atoms / density) ** (1 / 3)
    return np.random.default_rng(seed).uniform(0, length, size=(atoms, 3)), length * np.eye(3)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    atoms=st.integers(1, 20),
    skew=st.sampled_from([0.0, 0.5, 1.5]),
    scale=st.sampled_from([1.0, 2.0, 4.0]),
    pbc=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    r_max=st.floats(0.7, 5.0),
    at_once=st.sampled_from([500, 1 << 20]),
)
def test_random_cells(seed, atoms, skew, scale, pbc, r_max, at_once):
    """Skewed, mixed boundary conditions, atoms outside the cell, cells smaller and larger than the cutoff, in pieces
    or at once."""
    rng = np.random.default_rng(seed)
    cell = scale * random_cell(rng, skew)
    positions = rng.uniform(-1.5, 2.5, size=(atoms, 3)) @ cell
    assert_equals_vesin(positions, cell, np.array(pbc), r_max, at_once=at_once)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), atoms=st.integers(1, 60), r_max=st.floats(0.5, 20.0))
def test_clusters_without_a_cell(seed, atoms, r_max):
    positions = np.random.default_rng(seed).normal(scale=4, size=(atoms, 3))
    assert_equals_vesin(positions, NO_CELL, NOWHERE, r_max)


@pytest.mark.parametrize("density", [0.05, 0.1])
def test_boxes(density):
    positions, cell = box_of(800, density)
    found = assert_equals_vesin(positions, cell, EVERYWHERE, 4.5)
    assert len(found.receiver) > 800 * 4 / 3 * np.pi * 4.5**3 * density * 0.9


@pytest.mark.parametrize("structure", [ethanol(), water(), silicon(), salt(), slab(), one_atom_cell()])
def test_small_structures(structure):
    assert_equals_vesin(structure.positions, structure.cell, structure.pbc, 5.0)


def test_skewed_thin_cells():
    """One direction thinner than the cutoff, one leaning by 70 degrees, one long."""
    cell = np.array([[1.9, 0.0, 0.0], [9.0, 3.2, 0.0], [-4.0, 2.0, 30.0]])
    positions = np.random.default_rng(1).uniform(0, 1, size=(12, 3)) @ cell
    found = assert_equals_vesin(positions, cell, EVERYWHERE, 6.0)
    assert found.shift.abs().amax(0).tolist()[0] > 3
    assert_equals_vesin(positions, cell[[2, 0, 1]], EVERYWHERE, 6.0)
    assert_equals_vesin(positions, cell, np.array([True, True, False]), 6.0)


def test_cutoff_much_larger_than_the_cell():
    cell = np.array([[2.6, 0.0, 0.0], [0.9, 2.5, 0.0], [-0.4, 0.7, 2.8]])
    found = assert_equals_vesin(np.array([[0.3, 0.2, 0.1], [1.5, 1.4, 1.2]]), cell, EVERYWHERE, 13.0)
    assert len(found.receiver) > 1000


def test_cell_of_whole_cutoffs():
    """Bins exactly as wide as the cutoff, atoms on their walls."""
    grid = np.stack(np.meshgrid(*[np.arange(4) * 3.0] * 3, indexing="ij"), -1).reshape(-1, 3)
    found = assert_equals_vesin(grid, 12.0 * np.eye(3), EVERYWHERE, 3.0 * (1 + 1e-9))
    assert len(found.receiver) == 6 * len(grid)
    assert len(search(grid, 12.0 * np.eye(3), EVERYWHERE, 3.0).receiver) == 0, "the cutoff itself is outside"


def test_slab_of_any_extent():
    """Not periodic along z, where the lattice vector is short, or missing, and atoms are far outside it."""
    rng = np.random.default_rng(2)
    cell = np.array([[7.0, 0.0, 0.0], [2.0, 6.0, 0.0], [0.0, 1.0, 3.0]])
    pbc = np.array([True, True, False])
    positions = rng.uniform(-5, 12, size=(60, 3))
    positions[:30, 2] += 400.0
    with_vector = assert_equals_vesin(positions, cell, pbc, 5.0)
    cell[2] = 0.0
    without = assert_equals_vesin(positions, cell, pbc, 5.0)
    assert torch.equal(with_vector.shift, without.shift)


def test_empty_space_costs_nothing():
    """Two clusters 10^8 Å apart: no table of bins, and bins that are too many are made wider."""
    rng = np.random.default_rng(3)
    near = rng.uniform(0, 6, size=(20, 3))
    together = search(near, NO_CELL, NOWHERE, 3.0)
    apart = search(np.concatenate([near, near + 1e8]), NO_CELL, NOWHERE, 3.0)
    first = apart.receiver < 20
    assert torch.equal(apart.sender[first], together.sender)
    assert torch.equal(apart.sender[~first], together.sender + 20)


def test_unwrapped_positions():
    """Atoms that drifted by many cells keep their neighbours; the translations say by how much they drifted."""
    positions, cell = box_of(60, 0.1)
    cell[1, 0], cell[2, 1] = 2.0, -1.5
    drift = np.random.default_rng(4).integers(-2000, 2000, size=(60, 3))
    here = assert_equals_vesin(positions, cell, EVERYWHERE, 4.0)
    there = search(positions + drift @ cell, cell, EVERYWHERE, 4.0)
    drifted = torch.tensor(drift)
    assert torch.equal(there.receiver, here.receiver)
    assert torch.equal(there.sender, here.sender)
    assert torch.equal(there.shift, here.shift + drifted[here.receiver] - drifted[here.sender])
    torch.testing.assert_close(there.vector, here.vector, rtol=0, atol=1e-9)
    assert_equals_vesin(positions + drift % 3 @ cell, cell, EVERYWHERE, 4.0)


def test_one_pair_at_a_time():
    for structure in (water(), one_atom_cell()):
        assert_equals_vesin(structure.positions, structure.cell, structure.pbc, 2.8, at_once=1)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_nobody_near(count):
    found = search(50.0 * np.arange(3 * count).reshape(count, 3), NO_CELL, NOWHERE, 4.0)
    assert [tuple(part.shape) for part in found] == [(0,), (0,), (0, 3), (0,), (0, 3)]


def test_inputs_in_any_form():
    """float32 positions are taken to float64 before anything is computed; cell and pbc may be tensors."""
    positions, cell = box_of(40, 0.1)
    single = torch.tensor(positions, dtype=torch.float32)
    a = neighbor_list_torch(single, torch.tensor(cell), torch.tensor(EVERYWHERE), 4.0)
    b = search(single.double().numpy(), cell, EVERYWHERE, 4.0)
    assert all(torch.equal(x, y) for x, y in zip(a, b))


class TestErrors:
    def test_flat_cell(self):
        with pytest.raises(InputError, match="do not span a box"):
            search(np.zeros((1, 3)), NO_CELL, EVERYWHERE, 4.0)
        flat = np.array([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [3.0, 3.0, 0.0]])
        with pytest.raises(InputError, match="do not span a box"):
            search(np.zeros((1, 3)), flat, EVERYWHERE, 4.0)

    def test_infinite_cell(self):
        with pytest.raises(InputError, match="do not span a box"):
            search(np.zeros((1, 3)), np.nan * np.eye(3), EVERYWHERE, 4.0)

    def test_cell_in_the_wrong_unit(self):
        with pytest.raises(InputError, match="too thin"):
            search(np.zeros((1, 3)), 1e-9 * np.eye(3), EVERYWHERE, 4.0)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_positions(self, value):
        with pytest.raises(InputError, match="not finite"):
            search(np.array([[0.0, 0.0, 0.0], [value, 0.0, 0.0]]), 5 * np.eye(3), EVERYWHERE, 4.0)

    @pytest.mark.parametrize("r_max", [0.0, -1.0, np.nan, np.inf])
    def test_cutoff(self, r_max):
        with pytest.raises(InputError, match="r_max"):
            search(np.zeros((1, 3)), 5 * np.eye(3), EVERYWHERE, r_max)


class TestGraph:
    """As the graph of the list of vesin in the same order."""

    ALONE = Structure(numbers=[8], positions=[[1.0, 2.0, 3.0]], source="alone")
    NOTHING = Structure(numbers=np.zeros(0, dtype=np.int64), positions=np.zeros((0, 3)), source="nothing")

    def of(self, structure: Structure, r_max: float) -> Graph:
        edges = search(structure.positions, structure.cell, structure.pbc, r_max)
        species = torch.tensor([SPECIES_OF[int(z)] for z in structure.numbers], dtype=torch.int64)
        return graph_of_torch_edges(edges, species, structure.cell, structure.pbc)

    @pytest.mark.parametrize(
        "structure", [ethanol(), water(), silicon(), salt(), slab(), one_atom_cell(), ALONE, NOTHING]
    )
    def test_equal(self, structure):
        ours = self.of(structure, 4.0)
        edges = ordered(neighbor_list(structure.positions, structure.cell, structure.pbc, 4.0))
        theirs = graph_of_edges(structure, edges, species_of=SPECIES_OF)
        for field in fields(Graph):
            a, b = getattr(ours, field.name), getattr(theirs, field.name)
            torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13, equal_nan=True, msg=field.name)

    def test_same_neighbourhoods_as_graph_of(self):
        """Which has the neighbours of an atom in an order of its own."""
        ours, theirs = self.of(salt(), 4.0), graph_of(salt(), r_max=4.0, species_of=SPECIES_OF)
        assert ours.sender.shape == theirs.sender.shape
        filled = (ours.vector.norm(dim=-1) < EMPTY_SLOT_DISTANCE).sum(-1)
        assert torch.equal(filled, (theirs.vector.norm(dim=-1) < EMPTY_SLOT_DISTANCE).sum(-1))
        assert torch.equal(ours.sender.sort(-1).values, theirs.sender.sort(-1).values)


class TestGrowth:
    """At constant density: work per atom and memory do not grow with the structure."""

    SIZES = (400, 1600, 6400)
    R_MAX = 4.0

    def test_candidates_per_atom(self):
        """No more pairs are measured than the half stencil holds: (2·2 + 1)³/2 bins of (4 Å/2)³, widened to fit the
        cell."""
        for atoms in self.SIZES:
            positions, cell = box_of(atoms, 0.1)
            bins = into_bins(torch.tensor(positions), cell, EVERYWHERE, self.R_MAX)
            count = sum(
                int((bins.inside[blocks.receiver] * bins.inside[blocks.sender]).sum())
                for blocks in _neighbouring_bins(bins, 1 << 16)
            )
            bin_volume = np.linalg.det(cell) / bins.count.prod().item()
            assert count / atoms < 1.1 * 126 / 2 * 0.1 * bin_volume
            assert bin_volume < (1.25 * self.R_MAX / 2) ** 3

    def test_search_has_bounded_memory(self):
        """Whatever the number of atoms, a search that takes 2000 pairs at once never holds more than 250 bytes for
        each."""
        at_once = 2000
        peaks = []
        for atoms in self.SIZES:
            positions, cell = box_of(atoms, 0.1)
            bins = into_bins(torch.tensor(positions), cell, EVERYWHERE, self.R_MAX)
            with LiveMemory() as memory:
                for number, blocks in enumerate(_neighbouring_bins(bins, at_once)):
                    _near_pairs(bins, blocks, self.R_MAX, at_once)
                    if number == 5:
                        break
            peaks.append(memory.peak)
        assert max(peaks) < 250 * at_once
        assert min(peaks) > 100 * at_once, "the memory is seen at all"


class LiveMemory(TorchDispatchMode):
    """The most bytes that tensors made inside held at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.live, self.peak = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        inputs = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in inputs:
                size = tensor.untyped_storage().nbytes()
                self.live += size
                self.peak = max(self.peak, self.live)
                weakref.finalize(tensor.untyped_storage(), self.release, size)
        return result

    def release(self, size: int) -> None:
        self.live -= size
