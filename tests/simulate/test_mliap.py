"""The class for `pair_style mliap unified`, with a stand-in for the data object of LAMMPS: not run against such a build.

The stand-in has what LAMMPS has: own atoms, ghosts that are their images, a full list of pairs in no order, positions of ghosts that
carry a rounding of their own, and it makes forces and virial of pair forces as LAMMPS does (f_i += f_ij, f_j -= f_ij, W -= r_ij f_ij).
"""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from vesin import NeighborList

from equibayes.data.structures import Structure
from equibayes.simulate.mliap import MliapPosterior, symmetric_edges
from tests.samples import SPECIES_OF, one_atom_cell, salt, silicon, water
from tests.simulate.posteriors import random_posterior

POSTERIOR = random_posterior()
R_MAX = POSTERIOR.network.r_max


class StandIn:
    """Named as LAMMPS names it (mliap_unified_couple_kokkos.pyx)."""

    def __init__(self, structure: Structure, seed: int = 0) -> None:
        found = NeighborList(cutoff=R_MAX, full_list=True).compute(
            points=structure.positions, box=structure.cell, periodic=structure.pbc.tolist(), quantities="ijS"
        )
        mixed = np.random.default_rng(seed).permutation(len(found[0]))
        i, j, shift = (part[mixed].astype(np.int64) for part in found)
        images = sorted({(int(b), *map(int, s)) for b, s in zip(j, shift) if s.any()})
        place = {image: len(structure) + n for n, image in enumerate(images)}
        self.owner = np.array([*range(len(structure)), *(image[0] for image in images)])
        positions = [*structure.positions, *(structure.positions[b] + np.array(s) @ structure.cell for b, *s in images)]
        self.positions = np.array(positions).reshape(-1, 3)
        self.nlistatoms, self.ntotal, self.npairs = len(structure), len(self.owner), len(i)
        self.pair_i = i.astype(np.int32)
        where = [place.get((int(b), *map(int, s)), int(b)) for b, s in zip(j, shift)]
        self.pair_j = np.array(where, dtype=np.int32)
        # a ghost is a neighbour of an own atom; from the ghost's side another image stands there, with another rounding
        self.rij = self.positions[self.pair_j] - self.positions[self.pair_i]
        self.elems = np.array([SPECIES_OF[int(z)] for z in structure.numbers[self.owner]], dtype=np.int32)
        self.eatoms = np.zeros(len(structure))
        self.energy = 0.0
        self.f, self.virial = np.zeros((self.ntotal, 3)), np.zeros((3, 3))

    def forward_exchange(self, source: torch.Tensor, target: torch.Tensor, width: int) -> None:
        assert source.shape == target.shape == (self.ntotal, width)
        target.copy_(source[torch.from_numpy(self.owner)])

    def update_pair_forces(self, pair: torch.Tensor) -> None:
        assert pair.dtype == torch.float64
        assert pair.shape == (self.npairs, 3)
        assert pair.is_contiguous()
        np.add.at(self.f, self.pair_i, pair.numpy())
        np.add.at(self.f, self.pair_j, -pair.numpy())
        self.virial -= np.einsum("pi,pj->ij", self.rij, pair.numpy())

    def forces(self) -> np.ndarray:
        """After LAMMPS has sent the forces of ghosts to their owners (newton on)."""
        total = np.zeros((self.nlistatoms, 3))
        np.add.at(total, self.owner, self.f)
        return total


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("mliap") / "x.posterior"
    POSTERIOR.save(file)
    return file


@pytest.mark.parametrize("structure", [water(), silicon(), salt(), one_atom_cell()], ids=["H2O", "Si2", "NaCl", "Si1"])
def test_equal_to_predict(structure: Structure, path: Path) -> None:
    model, data = MliapPosterior(path, device="cpu", sigma_every=1), StandIn(structure)
    assert 2 * model.rcutfac == R_MAX
    model.compute_descriptors(data)
    model.compute_gradients(data)
    model.compute_forces(data)
    expected = POSTERIOR.predict(structure)
    assert data.energy == pytest.approx(expected.energy, rel=0, abs=1e-9)
    assert data.eatoms.sum() == pytest.approx(data.energy, rel=0, abs=1e-9)
    np.testing.assert_allclose(data.forces(), expected.forces, rtol=0, atol=1e-10)
    if expected.stress is not None:
        volume = abs(np.linalg.det(structure.cell))
        symmetric = (data.virial + data.virial.T) / 2
        np.testing.assert_allclose(symmetric, -volume * expected.stress, rtol=0, atol=1e-9)
    assert model.prediction is not None
    np.testing.assert_allclose(model.prediction.forces_std, expected.forces_std, rtol=1e-9)
    assert model.prediction.energy_std == pytest.approx(expected.energy_std, rel=1e-9)


def test_sigma_only_when_asked_for(path: Path) -> None:
    model = MliapPosterior(path, device="cpu")
    model.compute_forces(StandIn(water()))
    assert model.prediction is None


def test_pickle_holds_the_way_not_the_weights(path: Path) -> None:
    kept = pickle.dumps(MliapPosterior(path, device="cpu", sigma_every=3))
    assert len(kept) < 1000
    again, data = pickle.loads(kept), StandIn(water())
    again.compute_forces(data)
    assert data.energy == pytest.approx(POSTERIOR.predict(water()).energy, abs=1e-9)
    assert again.sigma_every == 3


def test_pairs_at_the_cutoff_in_one_direction_only() -> None:
    i, j = np.array([0, 1, 0, 1]), np.array([1, 0, 1, 0])
    vector = np.array([[4.0 - 1e-15, 0, 0], [-4.0, 0, 0], [0, 1.0, 0], [0, -1.0, 0]])
    kept, edges = symmetric_edges(i, j, vector, 4.0)
    assert sorted(kept) == [2, 3]
    np.testing.assert_array_equal(edges.reverse, [1, 0])


def test_half_lists_are_refused() -> None:
    with pytest.raises(RuntimeError, match="must be a full one"):
        symmetric_edges(np.array([0, 0]), np.array([1, 2]), np.array([[1.0, 0, 0], [0, 1.0, 0]]), 4.0)


def test_other_ranks_and_other_builds_are_refused(path: Path) -> None:
    model, data = MliapPosterior(path, device="cpu"), StandIn(salt())

    def from_elsewhere(source: torch.Tensor, target: torch.Tensor, width: int) -> None:
        target.copy_(source)
        target[-1, 0] = 1.5

    data.forward_exchange = from_elsewhere  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="for one rank"):
        model.compute_forces(data)

    class Plain:
        nlistatoms, ntotal = 1, 1
        rij = np.zeros((0, 3))

    with pytest.raises(RuntimeError, match="needs Kokkos"):
        model.compute_forces(Plain())
