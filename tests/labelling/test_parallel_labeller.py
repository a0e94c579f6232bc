"""Many labels at once on a Ray cluster: what goes wrong with one is told, and keeps no other waiting."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from equibayes.data import Structure
from equibayes.errors import InputError
from equibayes.labelling import parallel_labeller
from equibayes.labelling.labellers import Label
from equibayes.labelling.parallel_labeller import ParallelLabeller
from equibayes.learning.learn import Learner
from equibayes.learning.propose import bare
from equibayes.learning.rounds import Round
from equibayes.learning.study import Inputs
from tests.clusters import STORE
from tests.labelling import moody
from tests.labelling.test_labellers import MOODY, mood
from tests.learning.test_learn import settings
from tests.runs import ethanol_frames

ray = pytest.importorskip("ray")
SLEEPY = "tests.labelling.sleepy:Sleepy"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=STORE,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()


def moods(*kinds: int) -> list[Structure]:
    """Structures that are all different: the second atom moves."""
    found = []
    for number, kind in enumerate(kinds):
        structure = mood(kind)
        structure.positions[1, 2] += 0.01 * number
        found.append(structure)
    return found


def test_answers_and_refusals() -> None:
    """Each bad day ends in its own refusal, after another try; the good ones are shared between two engines."""
    structures = moods(0, moody.RAISES, 0, moody.EXITS, moody.HANGS, 0, 0)
    labels = ParallelLabeller(ray, MOODY, time_limit_s=2.0, at_once=2, retries=1)
    found: dict[int, Any] = {}
    for number, answer in labels.label_many(structures, patience=float("inf")):
        found[number] = answer
    assert sorted(found) == list(range(7))
    good = [found[number] for number in (0, 2, 5, 6)]
    assert all(isinstance(answer, Label) for answer in good)
    assert found[1].reason == "RuntimeError: no convergence"
    assert found[3].reason == "the engine ended with status 3: out of luck"
    assert found[4].reason == "no answer within 2 s"
    assert not labels._jobs
    labels.close()


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    """The process that holds the engine's worker is killed; its structure is begun anew and gets its label."""
    once = tmp_path / "once"
    labels = ParallelLabeller(ray, SLEEPY, {"once": str(once), "seconds": 1000.0}, at_once=1)
    structure = bare(ethanol_frames(1)[0])
    answers = labels.label_many([structure], patience=float("inf"))
    labels._jobs[structure.geometry_digest()] = job = parallel_labeller.Job(structure)
    labels._waiting.append(structure.geometry_digest())
    labels._dispatch(0.1)
    while not once.exists():
        time.sleep(0.05)
    ray.kill(job.worker)
    ((number, answer),) = list(answers)
    assert number == 0
    assert isinstance(answer, Label)
    assert job.lost == 1
    labels.close()


def test_an_engine_that_is_not_there_is_told_at_once() -> None:
    labels = ParallelLabeller(ray, "nonesuch", at_once=1)
    with pytest.raises(InputError, match="nonesuch"):
        labels.label(mood(0))
    labels.close()


def test_a_slow_label_does_not_keep_sampling_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round is sampled while one of its labels is still on its way; a later round learns from it."""
    monkeypatch.setattr(parallel_labeller, "LEAST_PATIENCE_S", 1.0)
    monkeypatch.setattr("equibayes.learning.learn.write_curve", lambda *_, **__: None)
    frames, words = ethanol_frames(12), []
    once = {"once": str(tmp_path / "once"), "seconds": 8.0}
    labels = ParallelLabeller(ray, SLEEPY, once, at_once=2)

    def study(rounds: int) -> str:
        config = settings(start_labels=5, per_round=2, rounds=rounds, labeller=SLEEPY, labeller_settings=once)
        return Learner(config, Inputs(frames, None, None), labels, tmp_path / "study", say=words.append).run()

    try:
        study(0)
        first = Round(tmp_path / "study", 0)
        assert "round 0: 1 slow label(s) left for a later round" in words
        assert len(first.labelled()) == len(first.training_data({})) == 4
        assert len(labels._jobs) == 1
        while not ray.wait(list(labels._running), timeout=20)[0]:
            pass
        study(1)
        data = first.next().training_data({})
        assert len(first.labelled()) == 5
        assert len(data) == 5 + len(first.next().labelled()), "four, the late one and the new ones"
        digests = {structure.geometry_digest() for structure in data}
        assert {structure.geometry_digest() for structure in first.asked()} < digests
    finally:
        labels.close()
