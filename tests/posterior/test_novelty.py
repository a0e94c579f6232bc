"""Novelty: what is like the training frames is below 1, what is not is above, and what cannot be is far above."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

from equibayes.data import Structure
from equibayes.data.graph import Graph, graph_of
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load, read, write
from equibayes.posterior.fit_novelty import EDGE, Features, edge_of, fit, with_novelty
from equibayes.posterior.novelty import Novelty
from equibayes.posterior.predict import ReadyPosterior
from equibayes.posterior.sample import sample
from equibayes.posterior.surroundings import UNSEEN, Surroundings
from equibayes.simulate.evaluator import Evaluator
from tests.runs import ethanol_frames, small_config
from tests.samples import salt
from tests.simulate.posteriors import ethanol_posterior, random_posterior

HYDROGEN, CARBON, OXYGEN = 0, 1, 2


def largest(posterior: Posterior, structures: list[Structure]) -> np.ndarray:
    """The novelty of each structure."""
    return np.array([prediction.novelty.max() for prediction in posterior.predict(structures)])


def scaled(structure: Structure, factor: float) -> Structure:
    return replace(structure, positions=factor * structure.positions, cell=factor * structure.cell)


# --- surroundings ---


def graph(structure: Structure, r_max: float = 4.0) -> Graph:
    return graph_of(structure, r_max=r_max, species_of={1: HYDROGEN, 6: CARBON, 8: OXYGEN})


def line(*atoms: tuple[int, float]) -> Structure:
    """Atoms on the x axis: (number, x)."""
    return Structure(np.array([z for z, _ in atoms]), np.array([[x, 0.0, 0.0] for _, x in atoms]))


@pytest.fixture
def seen() -> Surroundings:
    """O-H at 0.5, 1.0 and 1.1 Å, H-H at 1.6 Å, and a carbon atom alone."""
    found = Surroundings.none(3, 4.0)
    for structure in (line((8, 0), (1, 1.0)), line((1, -0.5), (8, 0.6), (1, 1.1)), line((6, 0))):
        found.note(graph(structure))
    return found


def test_what_was_seen(seen: Surroundings) -> None:
    assert seen.shortest[OXYGEN, HYDROGEN] == seen.shortest[HYDROGEN, OXYGEN] == pytest.approx(0.5)
    assert seen.shortest[HYDROGEN, HYDROGEN] == pytest.approx(1.6)
    assert np.isinf(seen.shortest[CARBON]).all()
    assert seen.loneliest.tolist() == pytest.approx([1.1, np.inf, 1.0])


@pytest.mark.parametrize(
    ("structure", "novelty"),
    [
        (line((8, 0), (1, 0.9)), None),
        (line((8, 0), (1, 0.475)), [1.0, 1.0]),
        (line((1, 0), (8, 1.0), (1, 1.475)), [1.5625, 1.0, 1.5625]),
        (line((8, 0), (1, 0.45), (1, 3.0)), [2.0, 2.0, (2.55 / 1.1 - 1) / 0.05]),
        (line((8, 0), (1, 1.05)), [1.0, 0.0]),
        (line((8, 0), (1, 3.9)), [58.0, (3.9 / 1.1 - 1) / 0.05]),
        (line((8, 0), (1, 1.0), (1, 6.0)), [0.0, 0.0, UNSEEN]),
        (line((6, 0)), None),
        (line((6, 0), (1, 3.9)), [UNSEEN, UNSEEN]),
        (line((8, 0), (8, 2.0), (1, 1.0)), [UNSEEN, UNSEEN, 0.0]),
    ],
    ids=[
        "usual",
        "5 % shorter",
        "two shorter",
        "10 % shorter",
        "5 % longer",
        "far",
        "alone",
        "alone as before",
        "strange",
        "equal",
    ],
)
def test_novel_by_construction(seen: Surroundings, structure: Structure, novelty: list[float] | None) -> None:
    found = seen.watch(graph(structure))()
    if novelty is None:
        assert found is None or not found.any()
    else:
        assert found is not None
        assert found.tolist() == pytest.approx(novelty)


@pytest.mark.parametrize("periodic", [False, True])
def test_watching_atoms_that_move(seen: Surroundings, periodic: bool) -> None:
    """The same as looking anew, as long as no atom moves further than half the skin."""
    rng, skin = np.random.default_rng(0), 1.0
    numbers = rng.choice([1, 8, 6], 12)
    cell = np.diag([6.0, 7.0, 9.0]) * periodic
    start = Structure(numbers, rng.uniform(0, 7, (12, 3)), cell, np.full(3, periodic))
    watched = seen.watch(graph(start, 4.0 + skin), start.positions, skin)
    some = 0
    for _ in range(30):
        step = rng.normal(size=(12, 3))
        step *= rng.uniform(0, skin / 2, (12, 1)) / np.linalg.norm(step, axis=1, keepdims=True)
        moved = replace(start, positions=start.positions + step)
        expected, found = seen.watch(graph(moved))(), watched(moved.positions)
        assert np.allclose(0.0 if expected is None else expected, 0.0 if found is None else found)
        some += expected is not None
    assert some


# --- the fit ---


def features(rng: np.random.Generator, frames: int, atoms: int, size: int = 6) -> Features:
    """Correlated Gaussian features of two species, of which the second is rare."""
    species = np.tile(np.arange(atoms) == 0, frames).astype(int)
    mixing = np.random.default_rng(1).normal(size=(2, size, size)) / size
    values = np.einsum("as,asz->az", rng.normal(size=(frames * atoms, size)), mixing[species]) + species[:, None]
    return Features(values.astype(np.float32), species, np.repeat(np.arange(frames), atoms), frames)


@pytest.mark.parametrize("frames", [60, 1000])
def test_the_edge_is_a_quantile_of_new_frames(frames: int) -> None:
    """A share of 0.5 % of frames; with few frames to learn from, within a factor of three.  Distances grow linearly."""
    rng = np.random.default_rng(0)
    mean, whitening = fit(features(rng, frames, 9), features(rng, 30, 9), 3)
    new = features(rng, 20_000, 9)
    distance = np.linalg.norm(np.einsum("as,asz->az", new.values - mean[new.species], whitening[new.species]), axis=1)
    share = (distance.reshape(-1, 9).max(1) > 1).mean()
    assert EDGE / 3 < share < 3 * EDGE
    assert not whitening[2].any(), "a species without atoms"
    far = mean[0] + 10 * (new.values[1] - mean[0])
    assert np.linalg.norm((far - mean[0]) @ whitening[0]) == pytest.approx(10 * distance[1], rel=1e-4)


def test_the_tail_is_extrapolated() -> None:
    """Exactly for distances with an exponential tail of their logarithms; about right for others."""
    shares = (np.arange(10_000) + 0.5) / 10_000
    exact = np.exp(0.3 * -np.log1p(-shares))
    assert np.log(edge_of(exact)) == pytest.approx(-0.3 * np.log(EDGE), rel=0.01)
    assert np.log(edge_of(exact[::100])) == pytest.approx(-0.3 * np.log(EDGE), rel=0.1)
    normal = np.exp(0.2 * norm.ppf(shares))
    assert edge_of(normal) == pytest.approx(np.exp(0.2 * norm.ppf(1 - EDGE)), rel=0.1)
    assert edge_of(np.ones(12)) == pytest.approx(1.0)


# --- a posterior ---


@pytest.fixture(scope="module")
def sampled() -> Posterior:
    return sample(ethanol_frames(40), small_config({"burn_in": {"steps": 160}}), device="cpu")


def test_sampling_ends_with_a_novelty(sampled: Posterior, tmp_path: Path) -> None:
    assert sampled.novelty is not None
    about = dict(sampled.novelty.about)
    assert about.pop("force_scale") == pytest.approx(sampled.network.per_type_energy_scales), "the RMS force"
    assert about == {"frames": 36, "held_back": 4, "chain": 0, "step": int(sampled.step[0])}
    sampled.save(tmp_path / "a.posterior")
    again, frames = load(tmp_path / "a.posterior"), list(ethanol_frames(3))
    assert np.array_equal(largest(again, frames), largest(sampled, frames))
    again.save(tmp_path / "b.posterior")
    assert (tmp_path / "a.posterior").read_bytes() == (tmp_path / "b.posterior").read_bytes()


def test_few_frames_have_no_edge(sampled: Posterior) -> None:
    few = with_novelty(sampled, ethanol_frames(9), ethanol_frames(9)[:0])
    assert few.novelty is None
    assert few.predict(ethanol_frames(1)[0]).novelty is None


def test_what_is_far_from_the_training_frames() -> None:
    posterior, frames = ethanol_posterior(), list(ethanol_frames(400)[300:])
    usual = largest(posterior, frames)
    assert (usual >= 1).mean() <= 0.02
    first = frames[0]
    for factor in (0.7, 0.85, 1.2, 1.5, 2.0):
        assert largest(posterior, [scaled(first, factor)])[0] > 1.5, factor
    atoms = posterior.predict(scaled(first, 4.0)).novelty
    assert (atoms == UNSEEN).all(), "single atoms"
    stretched = first.positions.copy()
    hydroxyl = int(np.argmin(np.linalg.norm(first.positions - first.positions[2], axis=1) + 9 * (first.numbers != 1)))
    stretched[hydroxyl] += 0.6 * (stretched[hydroxyl] - stretched[2])
    found = posterior.predict(replace(first, positions=stretched)).novelty
    assert found[hydroxyl] > 1.5
    peroxide = Structure(np.array([8, 8, 1, 1]), np.array([[0, 0, 0], [1.45, 0, 0], [-0.3, 0.9, 0], [1.75, -0.9, 0.0]]))
    assert (posterior.predict(peroxide).novelty[:2] == UNSEEN).all(), "two oxygen atoms were never neighbours"


def test_every_way_to_predict_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """One frame or many, all samples or the first, the reference or an engine, a list of neighbours new or old."""
    posterior = ethanol_posterior()
    posterior = replace(
        posterior, samples=posterior.samples.float(), network=replace(posterior.network, model_dtype="float32")
    )
    frames = [scaled(frame, 1 + 0.02 * number) for number, frame in enumerate(ethanol_frames(5))]
    together = [prediction.novelty for prediction in posterior.predict(frames)]
    evaluator = Evaluator(posterior, "cpu", None, 0.5)
    monkeypatch.setenv("EQUIBAYES_ENGINE", "reference")
    for frame, expected in zip(frames, together):
        assert posterior.subset(1).predict(frame).novelty == pytest.approx(expected, rel=1e-3)
        assert evaluator([frame])[0].novelty == pytest.approx(expected, rel=1e-3)
    halves = [ReadyPosterior(posterior, "cpu", own=range(2)), ReadyPosterior(posterior, "cpu", own=range(2, 4))]
    parts = [
        half.sampled(frames[:1], graph_of(frames[0], r_max=4.0, species_of=posterior.species_of)) for half in halves
    ]
    assert parts[1].novelty is None
    joined = Evaluator(posterior, "cpu", None, 0.5).prediction(frames[0], parts)
    assert joined.novelty == pytest.approx(together[0], rel=1e-3)


def test_it_belongs_to_one_network() -> None:
    posterior, frame = ethanol_posterior(), ethanol_frames(1)[0]
    assert posterior.take([0, 3]).predict(frame).novelty is not None
    assert posterior.take([1, 0]).predict(frame).novelty is None


def test_not_a_number_is_not_known() -> None:
    posterior, frame = ethanol_posterior(), ethanol_frames(1)[0]
    broken = replace(posterior, samples=torch.full_like(posterior.samples, torch.nan))
    assert (broken.predict(frame).novelty == UNSEEN).all()


def test_many_atoms_are_measured_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers as with a matrix for each atom."""
    posterior = random_posterior(2)
    types, size = len(posterior.network.type_names), posterior.model.network.invariants
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(types, size)), rng.normal(size=(types, size, size))
    seen = Surroundings(np.full((types, types), 0.1), np.full(types, np.inf), posterior.network.r_max)
    novelty = Novelty(
        *(a.astype(np.float32) for a in arrays),
        seen,
        {"chain": 0, "step": 0, "frames": 9, "held_back": 0, "force_scale": 1.0},
    )
    posterior = replace(posterior, novelty=novelty)
    apart = posterior.predict(salt()).novelty
    monkeypatch.setattr("equibayes.posterior.novelty.AT_ONCE", 0)
    assert posterior.predict(salt()).novelty == pytest.approx(apart, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"novelty.mean": torch.zeros(3, 7)}, r"novelty.mean is float32 of shape \(3, 7\)"),
        ({"novelty.whitening": torch.zeros(3, 8, 8, dtype=torch.float64)}, "novelty.whitening is float64"),
        ({"novelty.shortest": torch.zeros(3, 3, dtype=torch.float64)}, "distances that are not above 0"),
        ({"novelty.mean": torch.full((3, 8), torch.nan)}, "numbers that are not finite"),
        ({"novelty.loneliest": None}, "novelty.loneliest"),
    ],
)
def test_a_novelty_without_sense(change: dict[str, torch.Tensor | None], words: str, tmp_path: Path) -> None:
    ethanol_posterior().save(tmp_path / "a.posterior")
    header, tensors = read(tmp_path / "a.posterior")
    changed = {name: value for name, value in (tensors | change).items() if value is not None}
    write(tmp_path / "a.posterior", header, changed)
    with pytest.raises(InputError, match=words):
        load(tmp_path / "a.posterior")
