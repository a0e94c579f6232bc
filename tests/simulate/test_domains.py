"""Atoms divided among processes: who has which, and that their shares together are the whole."""

from threading import Barrier, Thread

import numpy as np
import pytest

from equibayes.data.neighbors import neighbor_list
from equibayes.data.structures import Structure
from equibayes.engine import selftest_cases
from equibayes.engine.interface import Ghosts
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.native.model import NativeModel
from equibayes.simulate.domains import Domain, Share, joined, near, owners
from tests.engine.native.test_gradients import MIXED, TINY

CRYSTAL, MOLECULE = selftest_cases.crystal(150, 11.0, 3), selftest_cases.cluster(40, 2)
SKIN = 0.3


@pytest.mark.parametrize("structure", [CRYSTAL, MOLECULE], ids=["crystal", "molecule"])
@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_equal_numbers_of_atoms(structure: Structure, processes: int) -> None:
    counts = np.bincount(owners(structure, processes), minlength=processes)
    assert counts.sum() == len(structure)
    assert np.ptp(counts) <= 2


def test_more_processes_than_atoms() -> None:
    found = owners(selftest_cases.cluster(3, 1), 8)
    assert len(set(found.tolist())) == 3


def test_atoms_that_left_the_cell_belong_where_their_images_are() -> None:
    moved = Structure(CRYSTAL.numbers, CRYSTAL.positions + 3 * CRYSTAL.cell[0], CRYSTAL.cell, CRYSTAL.pbc)
    np.testing.assert_array_equal(owners(moved, 4), owners(CRYSTAL, 4))


@pytest.mark.parametrize("structure", [CRYSTAL, MOLECULE], ids=["crystal", "molecule"])
def test_no_neighbour_is_too_far_to_be_searched(structure: Structure) -> None:
    reach = 2.5
    edges = neighbor_list(structure.positions, structure.cell, structure.pbc, reach)
    own = owners(structure, 5) == 2
    around = near(structure, own, reach)
    assert around[edges.sender[own[edges.receiver]]].all()
    assert around.sum() < len(structure), "else nothing was tested"


class Together:
    """Processes, played by threads, that swap rows."""

    def __init__(self, count: int) -> None:
        self.barrier, self.rows = Barrier(count, timeout=60), [np.zeros((0, 0), np.float32)] * count

    def swap(self, me: int, rows: np.ndarray, came_from: list[tuple[int, int]]) -> np.ndarray:
        """came_from: for each row that is asked for, its process and the row there."""
        self.rows[me] = rows.copy()
        self.barrier.wait()
        found = [self.rows[process][row] for process, row in came_from]
        self.barrier.wait()
        return np.array(found, np.float32).reshape(len(came_from), rows.shape[1])


def divided(native: NativeModel, weights: dict, structure: Structure, processes: int, config) -> list[Share]:
    """The shares of the atoms after the atoms have moved since the list was made."""
    owner, together = owners(structure, processes), Together(processes)
    species = selftest_cases.graph_at(structure, structure.positions, config.r_max).species[0]
    domains = [Domain.of(structure, owner == p, config.r_max + SKIN, species) for p in range(processes)]
    asked = [[d.atoms[d.is_ghost][owner[d.atoms[d.is_ghost]] == p] for p in range(processes)] for d in domains]
    moved = structure.positions + 0.05 * np.cos(3 * structure.positions)
    shares: list[Share | None] = [None] * processes

    def run(me: int) -> None:
        domain, wanted = domains[me], np.concatenate(asked[me])
        sent = np.concatenate([asked[p][me] for p in range(processes)])
        came_from = []
        for p in range(processes):
            before = sum(len(asked[q][p]) for q in range(me))
            came_from += [(p, before + i) for i in range(len(asked[me][p]))]
        part = native.part(weights)
        ghosts = Ghosts(
            domain.is_ghost,
            np.searchsorted(domain.atoms, sent),
            np.searchsorted(domain.atoms, wanted),
            lambda rows: together.swap(me, rows, came_from),
        )
        part.load(domain.graph, structure.positions[domain.atoms], ghosts)
        output = part(moved[domain.atoms])
        shares[me] = Share(domain.atoms[~domain.is_ghost], domain.atoms, domain.is_ghost, output)

    threads = [Thread(target=run, args=(p,)) for p in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(shares), "a process failed"
    return [share for share in shares if share is not None]


@pytest.mark.skipif(bool(why_no_compiler()), reason=str(why_no_compiler()))
@pytest.mark.parametrize(
    ("structure", "processes"), [(CRYSTAL, 2), (CRYSTAL, 5), (MOLECULE, 3), (selftest_cases.crystal(2, 3.0, 7), 3)]
)
@pytest.mark.parametrize("config", [TINY, MIXED], ids=["tiny", "mixed"])
def test_shares_are_the_whole(config, structure: Structure, processes: int) -> None:
    model, _, forward = selftest_cases.model_with_weights(config, 2, 0, "cpu")
    native = NativeModel(model)
    wide = selftest_cases.graph_at(structure, structure.positions, config.r_max + SKIN)
    whole = native.dynamics(forward, wide)
    whole.load(wide, structure.positions)
    expected = whole(structure.positions + 0.05 * np.cos(3 * structure.positions))
    found = joined(divided(native, forward, structure, processes, config), len(structure))
    for name in ("energy", "forces", "virial", "log_sigma_energy"):
        value = getattr(expected, name)
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-12, atol=1e-12 * np.abs(value).max())
    np.testing.assert_array_equal(found.log_sigma_forces, expected.log_sigma_forces)
