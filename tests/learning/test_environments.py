"""Batches without near repetitions, and structures that are novel."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from equibayes.data import Dataset, Structure
from equibayes.errors import InputError
from equibayes.learning.environments import Environments, Spread, environments_of
from equibayes.learning.propose import MdProposer
from equibayes.learning.screen import screen
from equibayes.learning.select import select_structures
from equibayes.learning.settings import MdSettings, learn_config
from equibayes.posterior.file import load
from equibayes.posterior.prediction import Prediction
from equibayes.simulate.trust import Trust
from tests.learning.test_select import along, prediction, water
from tests.runs import ethanol_frames
from tests.simulate.posteriors import ETHANOL, ethanol_posterior


def one_atom(place: float, species: int = 0) -> Environments:
    return Environments(np.array([[place, 0.0]]), np.array([species]))


def novel(novelty: float, size: float = 1.0) -> Prediction:
    return replace(prediction(along(0, size)), novelty=np.array([novelty]))


def test_distances_are_of_atoms_of_one_species() -> None:
    a = Environments(np.array([[0.0, 0], [3.0, 0], [9.0, 0]]), np.array([0, 0, 1]))
    b = Environments(np.array([[1.0, 0], [9.0, 0]]), np.array([0, 2]))
    np.testing.assert_allclose(a.distance(b), [1 / np.sqrt(2), np.sqrt(2), np.inf])


def test_a_batch_does_not_repeat_itself() -> None:
    """Three times nearly the same with the largest σ: one of them, then others, then the rest."""
    places = [0.0, 0.05, 0.02, 1.0, 2.0]
    sizes = [1.0, 0.99, 0.98, 0.1, 0.2]
    own = [novel(0.5, size) for size in sizes]
    for kind in ("sigma", "bald"):
        options = {"predictions": own, "mode": "batch"}
        spread = Spread([one_atom(place) for place in places], 0.1)
        chosen = [c.index for c in select_structures(kind, range(5), 5, spread=spread, **options)]
        assert chosen[0] == 0
        assert set(chosen[1:3]) == {3, 4}
        assert set(chosen[3:]) == {1, 2}
        alone = [c.index for c in select_structures(kind, range(5), 5, mode="structure", predictions=own)]
        assert alone == [0, 1, 2, 4, 3]


def test_the_most_novel_once_others_are_known() -> None:
    """Two alike at the far end: the second is worth only what is between them."""
    places, novelty = [4.0, 3.9, 2.0], [4.0, 3.9, 2.0]
    own = [novel(each) for each in novelty]
    spread = Spread([one_atom(place) for place in places], 0.0)
    found = select_structures("novelty", range(3), 3, predictions=own, spread=spread)
    assert [choice.index for choice in found] == [0, 2, 1]
    assert [choice.score for choice in found] == pytest.approx([4.0, 2.0 / np.sqrt(2), 0.1 / np.sqrt(2)])
    assert found[0].reason == "novelty of atom 0 is 4.00, 4.00 once those before it are known"
    ranked = select_structures("novelty", range(3), 3, predictions=own, mode="structure")
    assert [choice.index for choice in ranked] == [0, 1, 2]
    with pytest.raises(InputError, match="select novelty: novelty is not known"):
        select_structures("novelty", [0], 1, predictions=[prediction(along(0, 1.0))])


def test_novel_structures_are_candidates_whatever_their_sigma() -> None:
    frames = [water(d) for d in (0.96, 0.97, 0.98, 0.99)]
    sigma, novelty = [0.01, 0.01, 0.01, 0.5], [0.5, 1.5, 5.0, 1.5]
    assert screen(frames, sigma, trust=Trust(0.1, 0.4, novelty_upper=None), novelty=novelty) == [
        "known",
        "candidate",
        "candidate",
        "exploded",
    ]
    assert screen(frames, sigma, trust=Trust(0.1, 0.4), novelty=novelty)[2] == "unknown"
    assert screen(frames, sigma, trust=Trust(0.1, 0.4, None, None), novelty=novelty)[:3] == ["known"] * 3


def test_environments_of_a_posterior() -> None:
    """Their distance from the mean is the novelty; the same atoms in another order or place are the same."""
    posterior, frames = ethanol_posterior(), list(ethanol_frames(3))
    found = environments_of(posterior, frames)
    assert found is not None
    for frame, each in zip(frames, found):
        expected = posterior.predict(frame).novelty
        np.testing.assert_allclose(np.linalg.norm(each.points, axis=1), expected, rtol=1e-4)
    turned = Structure(frames[0].numbers[::-1].copy(), -frames[0].positions[::-1, [1, 0, 2]] + 5)
    (again,) = environments_of(posterior, [turned]) or []
    assert again.distance(found[0]).max() < 1e-3
    assert found[1].distance(found[0]).max() > 0.05
    assert environments_of(load(ETHANOL), frames) is None


def test_biased_proposals_end_where_the_model_does_not_know(tmp_path: Path) -> None:
    posterior, starts = ethanol_posterior(), Dataset(list(ethanol_frames(2)))
    settings = MdSettings(starts=2, steps=20, every=5, bias=3.0)
    said: list[str] = []
    frames = MdProposer(starts, settings, "cpu", said.append)(posterior, Trust(), tmp_path / "a", 1)
    assert len(frames) == 10
    plain = MdProposer(starts, replace(settings, bias=0.0), "cpu")(posterior, Trust(), tmp_path / "b", 1)
    assert np.abs(frames[4].positions - plain[4].positions).max() > 1e-4
    close = replace(settings, novelty=0.01)
    assert (
        len(MdProposer(starts, close, "cpu", said.append)(posterior, Trust(novelty_lower=None), tmp_path / "c", 1)) <= 2
    )
    assert said[-1].endswith("the model does not know")


def test_settings_of_novelty() -> None:
    config = learn_config("quick", "tiny", {"select": {"novelty_lo": None, "novelty_hi": 5.0}, "md": {"novelty": None}})
    assert (config.select.novelty_lo, config.select.novelty_hi, config.md.novelty) == (None, 5.0, None)
    with pytest.raises(InputError, match=r"select\.novelty_lo"):
        learn_config("quick", "tiny", {"select": {"novelty_lo": -1.0}})
