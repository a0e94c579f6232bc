"""All samples in one pass, each with structures of its own: the same numbers as one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from hypothesis import given, settings
from hypothesis import strategies as st

from equibayes.data.stress import full_to_voigt
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.solids.elastic import strained
from equibayes.solids.members import Job, PosteriorMembers, batches
from tests.samples import salt, silicon
from tests.simulate.posteriors import random_posterior


def jobs_of(counts: tuple[int, ...]) -> list[Job]:
    """Crystals of several sizes, a different number for each member, in no order."""
    jobs = [
        (member, (salt if (member + number) % 2 else silicon)(seed=10 * member + number).to_atoms())
        for member, count in enumerate(counts)
        for number in range(count)
    ]
    return [jobs[place] for place in np.random.default_rng(0).permutation(len(jobs))]


def moved(posterior: Posterior) -> Posterior:
    """Linearised around every sample, with a random draw."""
    noise = torch.randn(posterior.samples.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return replace(posterior, tangent=0.05 * noise)


@pytest.mark.parametrize("limit", [1, 700, 100_000])
@pytest.mark.parametrize("refined", [False, True])
def test_members_answer_as_the_posterior_does(limit: int, refined: bool) -> None:
    posterior = random_posterior(3)
    posterior = moved(posterior) if refined else posterior
    members, jobs = PosteriorMembers(posterior), jobs_of((3, 1, 2))
    members._edges_at_once = limit
    for (member, atoms), state in zip(jobs, members.evaluate(jobs), strict=True):
        expected = posterior.predict(atoms, members=True).members
        assert state.energy == pytest.approx(expected["energy"][member], abs=1e-7)
        np.testing.assert_allclose(state.forces, expected["forces"][member], atol=1e-7)
        np.testing.assert_allclose(state.stress, full_to_voigt(expected["stress"][member]), atol=1e-7)


def test_stress_is_the_derivative_of_the_energy() -> None:
    """For every member and every strain, by central differences."""
    members, atoms, step = PosteriorMembers(random_posterior(2)), silicon().to_atoms(), 1e-4
    at_rest = members.evaluate([(0, atoms), (1, atoms)])
    for direction in range(6):
        moved = [strained(atoms, direction, sign * step) for sign in (1, -1)]
        states = members.evaluate([(member, each) for member in (0, 1) for each in moved])
        for member in (0, 1):
            slope = (states[2 * member].energy - states[2 * member + 1].energy) / (2 * step)
            assert at_rest[member].stress[direction] == pytest.approx(slope / atoms.get_volume(), abs=1e-7)


def test_single_precision_is_close() -> None:
    posterior, atoms = random_posterior(2), salt().to_atoms()
    double, single = (PosteriorMembers(posterior, dtype=t).evaluate([(1, atoms)])[0] for t in ("float64", "float32"))
    assert single.energy != double.energy
    np.testing.assert_allclose(single.forces, double.forces, atol=1e-4)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 50)), min_size=1, max_size=12),
    st.integers(1, 200),
)
@settings(max_examples=30, deadline=None)
def test_every_job_is_in_one_batch(jobs: list[tuple[int, int]], limit: int) -> None:
    """Rectangular batches, within the limit unless a single job exceeds it."""
    seen: list[int] = []
    for batch in batches([member for member, _ in jobs], [edges for _, edges in jobs], limit):
        assert len({len(numbers) for numbers in batch.values()}) == 1
        for member, numbers in batch.items():
            assert all(jobs[number][0] == member for number in numbers)
            seen += numbers
        size = sum(len(numbers) for numbers in batch.values())
        widest = max(jobs[number][1] for numbers in batch.values() for number in numbers)
        assert size == 1 or widest * size <= limit
    assert sorted(seen) == list(range(len(jobs)))


def test_unknown_species_and_dropout_are_refused() -> None:
    members = PosteriorMembers(random_posterior(2))
    with pytest.raises(InputError, match=r"cu\.cif: species Cu unknown to this model"):
        members.check(bulk("Cu"), "cu.cif")
    with pytest.raises(InputError, match="dropout baseline has no properties"):
        PosteriorMembers(replace(random_posterior(2), dropout=0.1))


def test_energies_of_unknown_compositions_are_not_compared() -> None:
    """Shifts that are linear in the composition cancel; offsets of formulas do not."""
    posterior = random_posterior(2)
    whole, defect = Atoms("Si8").numbers, Atoms("Si7").numbers
    assert PosteriorMembers(posterior).comparable(whole, defect, absolute=False)
    assert PosteriorMembers(posterior).comparable(whole, defect, absolute=True)
    offsets = replace(posterior, reference=replace(posterior.reference, kind="per_structure", offsets={"Si8": -1.0}))
    assert not PosteriorMembers(offsets).comparable(whole, defect, absolute=False)
