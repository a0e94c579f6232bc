"""Which structures are chosen, on predictions whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest

from equibayes.bayes.likelihood import STRESS_COMPONENTS
from equibayes.data import Structure
from equibayes.errors import InputError
from equibayes.learning.diversity import descriptors, farthest_points
from equibayes.learning.information import (
    greedy_information,
    greedy_sigma,
    greedy_stress,
    information,
    whitened,
)
from equibayes.learning.screen import screen
from equibayes.learning.select import select_structures
from equibayes.posterior.file import load
from equibayes.posterior.predict import predict
from equibayes.posterior.prediction import Prediction
from equibayes.simulate.trust import Trust
from equibayes.units import GPA
from tests.runs import ethanol_frames
from tests.simulate.posteriors import ETHANOL


def prediction(deviations: np.ndarray, aleatoric: float = 0.1) -> Prediction:
    """Of one atom; `deviations` [k, 3] are what the samples say, eV/Å."""
    forces = np.asarray(deviations, dtype=float)[:, None, :]
    epistemic = forces.std(0)
    noise = np.full((1, 3), aleatoric)
    return Prediction(
        energy=0.0,
        energy_std=1.0,
        energy_epistemic=0.0,
        energy_aleatoric=1.0,
        forces=forces.mean(0),
        forces_std=np.sqrt(epistemic**2 + noise**2),
        forces_epistemic=epistemic,
        forces_aleatoric=noise,
        stress=None,
        stress_std=None,
        members={"energy": np.zeros(len(forces)), "forces": forces},
    )


def along(axis: int, size: float, samples: tuple[int, int] = (0, 1)) -> np.ndarray:
    """Four samples, of which two disagree by ±size in one component."""
    members = np.zeros((4, 3))
    members[samples[0], axis], members[samples[1], axis] = size, -size
    return members


def test_information_of_one_component_is_the_ratio_of_variances() -> None:
    """Samples ±σ_a: total variance twice the aleatoric one, so ½ ln 2."""
    forces = np.array([[[0.1, 0, 0]], [[-0.1, 0, 0]]])
    z = whitened(forces, np.full((1, 3), 0.1))
    assert information(z) == pytest.approx(0.5 * np.log(2))
    total = np.sqrt(np.array([2.0, 1.0, 1.0])) * 0.1
    assert np.log(total / 0.1).sum() == pytest.approx(0.5 * np.log(2))


def test_components_that_say_the_same_count_once() -> None:
    """Three copies of one component are one component with a third of the noise variance; independent ones add up."""
    same = whitened(np.array([[[0.1, 0.1, 0.1]], [[-0.1, -0.1, -0.1]]]), np.full((1, 3), 0.1))
    assert information(same) == pytest.approx(0.5 * np.log(4))
    forces = np.zeros((4, 1, 3))
    forces[:, 0, 0], forces[:, 0, 1] = [0.1, 0.1, -0.1, -0.1], [0.1, -0.1, 0.1, -0.1]
    assert information(whitened(forces, np.full((1, 3), 0.1))) == pytest.approx(2 * 0.5 * np.log(2))


def test_a_batch_of_twins_is_worth_less_than_two_strangers() -> None:
    twin, stranger = along(0, 0.30), along(1, 0.20, (2, 3))
    own = [prediction(twin), prediction(twin), prediction(stranger)]
    assert [c.index for c in select_structures("bald", range(3), 2, predictions=own, mode="structure")] == [0, 1]
    batch = select_structures("bald", range(3), 2, predictions=own, mode="batch")
    assert [c.index for c in batch] == [0, 2]
    # independent: the gain of the second is all of its own information
    assert batch[1].score == pytest.approx(information(whitened(stranger[:, None], np.full((1, 3), 0.1))))
    assert [c.index for c in select_structures("sigma", range(3), 2, predictions=own, mode="structure")] == [0, 1]
    assert [c.index for c in select_structures("sigma", range(3), 2, predictions=own, mode="batch")] == [0, 2]


def test_gains_add_up_to_the_information_of_the_batch() -> None:
    rng = np.random.default_rng(0)
    each = [rng.normal(size=(5, 6)) for _ in range(4)]
    order, gains = greedy_information(each, 3)
    assert sum(gains) == pytest.approx(information(np.concatenate([each[i] for i in order], axis=1)))
    assert gains == sorted(gains, reverse=True)


def test_sigma_that_remains() -> None:
    """One component with two samples ±s: after its own label the epistemic variance e² is 1/(1/e² + 1/σ_a²)."""
    z = whitened(np.array([[[0.2, 0, 0]], [[-0.2, 0, 0]]]), np.full((1, 3), 0.1))
    _, left = greedy_sigma([z, z], [np.full((1, 3), 0.1)] * 2, 2)
    after = 1 / (1 / 0.2**2 + 1 / 0.1**2)
    assert left[0] == pytest.approx(np.sqrt((0.2**2 + 3 * 0.1**2) / 3))
    assert left[1] == pytest.approx(np.sqrt((after + 3 * 0.1**2) / 3))


def test_sigma_takes_the_largest_atom_and_says_which() -> None:
    own = [prediction(along(0, size)) for size in (0.1, 0.5, 0.3)]
    chosen = select_structures("sigma", [0, 1, 2], 2, predictions=own, mode="structure")
    assert [c.index for c in chosen] == [1, 2]
    expected = np.sqrt((0.5**2 / 2 + 3 * 0.1**2) / 3)
    assert chosen[0].score == pytest.approx(expected)
    assert chosen[0].reason == f"σ of atom 0 is {1e3 * expected:.1f} meV/Å"


def of_stress(size: float, samples: tuple[int, int] = (0, 1), noise: float = 0.01) -> Prediction:
    """Two of four samples disagree by ±size in one diagonal element of the stress, eV/Å³; forces agree."""
    members = np.zeros((4, 3, 3))
    members[samples[0], 0, 0], members[samples[1], 0, 0] = size, -size
    aleatoric = noise * np.array(STRESS_COMPONENTS)
    found = prediction(np.zeros((4, 3)))
    assert found.members is not None
    return replace(
        found,
        stress=members.mean(0),
        stress_std=np.hypot(members.std(0), aleatoric),
        stress_aleatoric=aleatoric,
        members=found.members | {"stress": members},
    )


def test_stress_takes_the_largest_sigma_of_the_six() -> None:
    own = [of_stress(size) for size in (0.01, 0.05, 0.03)]
    chosen = select_structures("stress", [0, 1, 2], 2, predictions=own, mode="structure")
    assert [c.index for c in chosen] == [1, 2]
    expected = np.sqrt((0.05**2 / 2 + 6 * 0.01**2) / 6)
    assert chosen[0].score == pytest.approx(expected)
    assert chosen[0].reason == f"σ of the stress is {expected / GPA:.3g} GPa"
    with pytest.raises(InputError, match=r"select stress: needs structures .* and a posterior that learned stress"):
        select_structures("stress", [0], 1, predictions=[prediction(np.zeros((4, 3)))])


def test_a_batch_by_stress_leaves_out_what_is_known_by_then() -> None:
    """Twins among three: after the label of the first, the second is no news; one whose forces say it neither."""
    own = [of_stress(0.05), of_stress(0.05), of_stress(0.03, (2, 3))]
    batch = select_structures("stress", range(3), 2, predictions=own)
    assert [c.index for c in batch] == [0, 2]
    assert batch[1].reason.endswith(f"{batch[1].score / GPA:.3g} after labelling those before it")
    after = 1 / (1 / (0.05**2 / 2) + 1 / 0.01**2)  # the element's variance, beside its own noise
    z = [(p.members["stress"] / 0.01).reshape(4, 9) for p in own]
    nothing = [np.zeros((4, 3))] * 2
    _, left = greedy_stress(nothing, z[:2], [0.01] * 2, 2)
    assert left[1] == pytest.approx(np.sqrt((after + 6 * 0.01**2) / 6))
    told = whitened(own[0].members["stress"][:, :1, :], np.full((1, 3), 1e-6))  # forces that give the samples away
    _, left = greedy_stress([told, told], z[:2], [0.01] * 2, 2)
    assert left[1] == pytest.approx(0.01, rel=1e-3), "only the noise remains"


def test_only_candidates_are_chosen() -> None:
    own = [prediction(along(0, size)) for size in (0.1, 0.5, 0.3)]
    for kind in ("sigma", "bald", "random"):
        assert sorted(c.index for c in select_structures(kind, [0, 2], 5, predictions=own)) == [0, 2]
    assert select_structures("bald", [], 5, predictions=own) == []


def test_random_is_seeded_and_without_repeats() -> None:
    first = [c.index for c in select_structures("random", range(50), 10, seed=[3, 1])]
    assert first == [c.index for c in select_structures("random", range(50), 10, seed=[3, 1])]
    assert first != [c.index for c in select_structures("random", range(50), 10, seed=[3, 2])]
    assert len(set(first)) == 10


def test_farthest_points_on_a_line() -> None:
    points = np.array([[0.0], [1.0], [2.0], [10.0]])
    flat = np.ones(4)
    assert farthest_points(points, flat, 3, known=np.array([[0.0]]))[0] == [3, 2, 1]
    # σ decides where distances do not: 2 at 2σ beats 10 at 0.1σ
    assert farthest_points(points, np.array([1.0, 1.0, 2.0, 0.1]), 1, known=np.array([[0.0]]))[0] == [2]
    order, values = farthest_points(points, np.array([1.0, 3.0, 2.0, 1.0]), 2)
    assert order == [1, 3], "nothing labelled: first the largest σ, then the farthest"
    assert values[0] == float("inf")


def test_unknown_words() -> None:
    with pytest.raises(InputError, match="choose one of sigma, bald, stress, diversity, novelty, random"):
        select_structures("best", [0], 1)
    with pytest.raises(InputError, match="choose one of batch, structure"):
        select_structures("bald", [0], 1, mode="both")


def water(distance: float = 0.96) -> Structure:
    return Structure(np.array([8, 1, 1]), np.array([[0.0, 0, 0], [distance, 0, 0], [0, 0.96, 0]]))


def test_what_is_never_sent() -> None:
    frames = [water(d) for d in (0.96, 0.97, 0.98, 0.96, 0.40, np.nan, 0.99, 1.0, 1.01)]
    sigma = [0.2, 0.05, 0.2, 0.2, 0.2, 0.2, 0.5, np.nan, np.inf]
    states = screen(frames, sigma, {water(0.98).geometry_digest()}, Trust(0.1, 0.4))
    assert states == [
        "candidate",
        "known",
        "labelled",
        "twin",
        "too close",
        "unknown",
        "exploded",
        "unknown",
        "unknown",
    ]


def test_without_levels_every_sound_structure_is_a_candidate() -> None:
    assert screen([water(), water(1.0)], [1e-9, 1e3]) == ["candidate", "candidate"]


def test_atoms_too_close_across_the_boundary() -> None:
    cell = 5.0 * np.eye(3)
    near = Structure(np.array([6, 6]), np.array([[0.1, 0, 0], [4.6, 0, 0]]), cell, np.ones(3, dtype=bool))
    open_ends = Structure(near.numbers, near.positions)
    assert screen([near, open_ends], [0.1, 0.1]) == ["too close", "candidate"]


def test_on_a_real_posterior() -> None:
    """Descriptors do not depend on the batch, and see a rotation as nothing."""
    posterior, frames = load(ETHANOL), list(ethanol_frames(6))
    points = descriptors(posterior, frames)
    np.testing.assert_allclose(points[4:5], descriptors(posterior, frames[4:5]), atol=1e-10)
    turned = Structure(frames[0].numbers, frames[0].positions @ np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]]))
    np.testing.assert_allclose(descriptors(posterior, [turned])[0], points[0], atol=1e-10)
    own = list(predict(posterior, frames, members=True))
    chosen = select_structures("diversity", range(6), 3, predictions=own, points=points)
    assert len({c.index for c in chosen}) == 3
    assert "meV/Å" in chosen[1].reason
