"""The loop in small: what is asked, what is kept, and when it ends."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from equibayes.config import merge
from equibayes.data import Dataset, Structure
from equibayes.data.extxyz import read_exact, write_exact
from equibayes.errors import InputError
from equibayes.labelling.labellers import Label, Refusal
from equibayes.labelling.pool_labeller import PoolLabeller
from equibayes.learning.curve import curve_table, rows_of
from equibayes.learning.learn import Learner
from equibayes.learning.propose import MdProposer, bare
from equibayes.learning.settings import MdSettings, learn_config
from equibayes.learning.study import Inputs
from equibayes.posterior.file import load
from equibayes.simulate.trust import Trust
from tests.runs import SMALL, ethanol_frames
from tests.samples import salt
from tests.simulate.posteriors import ETHANOL

QUICK = merge(
    SMALL,
    {"data": {"validation": 0}, "burn_in": {"steps": 12}, "cycles": {"length": 8}, "output": {"validations": 0}},
)
POOL = 24


class Counting:
    """A pool that remembers what it was asked, and refuses some."""

    def __init__(self, pool: Dataset, refuse: tuple[int, ...] = ()) -> None:
        self.inner, self.refuse = PoolLabeller(pool), refuse
        self.asked: list[bytes] = []

    def label(self, structure: Structure) -> Label | Refusal:
        self.asked.append(structure.geometry_digest())
        assert structure.forces is None, "labels are not to be seen before they are asked for"
        if len(self.asked) - 1 in self.refuse:
            return Refusal("it would not converge", 0.0)
        return self.inner.label(structure)

    def close(self) -> None: ...


def settings(**changes: Any) -> Any:
    base = {"sample": QUICK, "start_labels": 6, "per_round": 4, "rounds": 2}
    return learn_config("quick", "tiny", merge(base, changes))


@pytest.fixture(autouse=True)
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest; one test looks at it."""
    if request.node.name != "test_a_study":
        monkeypatch.setattr("equibayes.learning.learn.write_curve", lambda *_, **__: None)
        monkeypatch.setattr("equibayes.simulate.plot.plot_log", lambda *_, **__: None)


@pytest.fixture(scope="module")
def frames() -> Dataset:
    return ethanol_frames(POOL + 6)


def study(
    frames: Dataset, folder: Path, labeller: Any = None, start: Dataset | None = None, **changes: Any
) -> tuple[str, Any, list[str]]:
    pool, words = frames[:POOL], []
    labeller = labeller or Counting(pool)
    inputs = Inputs(pool, start, frames[POOL:])
    reason = Learner(settings(**changes), inputs, labeller, folder, say=words.append).run()
    return reason, labeller, words


def test_a_study(frames: Dataset, tmp_path: Path) -> None:
    reason, labeller, words = study(frames, tmp_path)
    assert reason == "2 rounds are done"
    assert len(labeller.asked) == len(set(labeller.asked)) == 6 + 4 + 4, "never the same twice"
    rows = rows_of(tmp_path)
    assert [row["labels"] for row in rows] == [6, 10, 14]
    assert all(row["force_mae"] > 0 and row["force_sigma"] > 0 for row in rows)
    assert [row["candidates"] for row in rows] == [18, 14, None]
    assert len(str(curve_table(rows, "a study")).splitlines()) == 5
    last = read_exact(tmp_path / "round-002/data.xyz")
    assert [s.geometry_digest() for s in last] == labeller.asked, "every bit of a geometry survives the file"
    truth = {s.geometry_digest(): s for s in frames}
    for structure in last:
        assert structure.label_digest() == truth[structure.geometry_digest()].label_digest()
    choice = json.loads((tmp_path / "round-001/choice.json").read_text())
    assert choice["kind"] == "bald"
    assert [each["digest"] for each in choice["chosen"]] == [digest.hex() for digest in labeller.asked[6:10]]
    assert "nats" in choice["chosen"][0]["reason"]
    assert load(tmp_path / "round-002/round.posterior").data["frames"] == 14
    assert "<svg" in (tmp_path / "learning.svg").read_text()
    assert (tmp_path / "learning.csv").read_text().startswith("round,labels,asked,force_mae")
    assert any("from the samples of the previous round" in line for line in words)
    # the same again changes nothing and asks nothing
    before = (tmp_path / "round-002/round.posterior").read_bytes()
    again, second, _ = study(frames, tmp_path)
    assert (again, second.asked) == (reason, [])
    assert (tmp_path / "round-002/round.posterior").read_bytes() == before
    # more rounds go on; another selection does not
    assert study(frames, tmp_path, rounds=3)[0] == "3 rounds are done"
    assert rows_of(tmp_path)[3]["labels"] == 18
    with pytest.raises(InputError, match=r"contains another study \(select\.kind was bald, is random\)"):
        study(frames, tmp_path, select={"kind": "random"})
    with pytest.raises(InputError, match="the pool data differ"):
        study(ethanol_frames(POOL + 7)[1:], tmp_path)


def test_warm_chains_begin_with_the_samples_before(
    frames: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from equibayes.learning import resample

    begun: list[torch.Tensor] = []
    usual = resample.sample_prepared

    def noting(*arguments: Any, **options: Any) -> Any:
        begun.append(options["start"])
        return usual(*arguments, **options)

    monkeypatch.setattr(resample, "sample_prepared", noting)
    study(frames, tmp_path, rounds=1)
    first = load(tmp_path / "round-000/round.posterior")
    assert torch.equal(begun[0], first.samples[-2:])
    study(frames, tmp_path / "cold", rounds=1, resample={"warm": False})
    assert len(begun) == 1, "from random weights where the settings say so"


def test_rounds_between_samplings_are_learned_by_exact_inference(frames: Dataset, tmp_path: Path) -> None:
    changes = {"resample": {"every": 2, "burn_in": 1.0}, "rounds": 3}
    Learner(settings(**changes), Inputs(frames), Counting(frames), tmp_path, say=lambda line: None).run()
    found = [load(tmp_path / f"round-{number:03d}/round.posterior") for number in range(4)]
    assert [each.tangent is not None for each in found] == [False, True, False, True]
    assert torch.equal(found[1].step, found[0].step[-2:].repeat(2))
    assert [len(each.data["frame_marks"]) for each in found] == [6, 10, 14, 18]


def test_refusals_cost_one_structure_each_and_are_not_asked_again(frames: Dataset, tmp_path: Path) -> None:
    labeller = Counting(frames[:POOL], refuse=(1, 7))
    _, _, words = study(frames, tmp_path, labeller, rounds=2)
    assert [row["labels"] for row in rows_of(tmp_path)] == [5, 8, 12]
    assert [row["asked"] for row in rows_of(tmp_path)] == [6, 10, 14]
    assert len(set(labeller.asked)) == 14
    assert (tmp_path / "round-000/labels/0001.failed").read_text() == "it would not converge\n"
    assert sum("has no label: it would not converge" in line for line in words) == 2


def test_a_labeller_that_never_works(frames: Dataset, tmp_path: Path) -> None:
    broken = Counting(frames[:POOL], refuse=tuple(range(100)))
    with pytest.raises(InputError, match=r"round 0: none of 6 structures could be labelled \(it would not converge\)"):
        study(frames, tmp_path, broken)
    reason, _, _ = study(frames, tmp_path, rounds=0)
    assert reason == "0 rounds are done", "once it is fixed the same command continues"


@pytest.mark.parametrize(
    ("changes", "reason", "asked"),
    [
        ({"budget": 9, "rounds": 9}, "the budget of 9 labels is spent", 9),
        ({"target_sigma": 100.0}, "σ is below the target of 100000 meV/Å", 6),
        ({"select": {"trust_lo": 100.0}}, "nothing is left to label: no proposal is a candidate", 6),
        ({"select": {"trust_hi": 1e-6}}, "nothing is left to label: no proposal is a candidate", 6),
    ],
)
def test_when_it_ends(frames: Dataset, tmp_path: Path, changes: dict[str, Any], reason: str, asked: int) -> None:
    found, labeller, _ = study(frames, tmp_path, **changes)
    assert (found, len(labeller.asked)) == (reason, asked)


def test_start_data_and_test_frames_are_never_asked(frames: Dataset, tmp_path: Path) -> None:
    """Both stand in the pool too; held-back frames stay the same for ever."""
    start, pool = frames[:10], frames
    labeller = Counting(pool)
    watched = {"data": {"validation": 3}, "output": {"validations": 1}}
    config = settings(sample=watched, rounds=2, select={"kind": "random", "trust_hi": "1000x"})
    Learner(config, Inputs(pool, start, frames[POOL:]), labeller, tmp_path, say=lambda _: None).run()
    forbidden = {s.geometry_digest() for s in [*start, *frames[POOL:]]}
    assert len(labeller.asked) == 8
    assert not forbidden & set(labeller.asked)
    held = [load(tmp_path / f"round-00{r}/round.posterior").data["validation_fingerprint"] for r in range(3)]
    assert len(set(held)) == 1
    assert load(tmp_path / "round-002/round.posterior").data["frames"] == 10 + 8 - 3


def test_every_kind_of_selection(frames: Dataset, tmp_path: Path) -> None:
    chosen = {}
    for kind, mode in (("sigma", "structure"), ("diversity", "batch"), ("random", "batch")):
        _, labeller, _ = study(frames, tmp_path / kind, rounds=1, select={"kind": kind, "mode": mode})
        chosen[kind] = labeller.asked
    assert len({tuple(asked[:6]) for asked in chosen.values()}) == 1, "all begin with the same labels"
    assert len({tuple(asked[6:]) for asked in chosen.values()}) == 3


def test_dynamics_proposes(tmp_path: Path) -> None:
    """Frames of trajectories, without the predictions that stand in them; the same again for the same seed."""
    posterior, starts = load(ETHANOL), ethanol_frames(3)
    proposer = MdProposer(starts, MdSettings(starts=2, steps=6, every=3), "cpu")
    first = proposer(posterior, Trust(), tmp_path / "a", 7)
    assert len(first) == 2 * 3
    assert all(s.forces is None and s.energy is None for s in first)
    np.testing.assert_allclose(first[3].positions, starts[2].positions, atol=1e-8)
    again = proposer(posterior, Trust(), tmp_path / "b", 7)
    other = proposer(posterior, Trust(), tmp_path / "c", 8)
    assert [s.geometry_digest() for s in first] == [s.geometry_digest() for s in again]
    assert first[2].geometry_digest() != other[2].geometry_digest()
    # beyond the upper level nothing goes on
    assert len(proposer(posterior, Trust(None, 1e-6), tmp_path / "d", 7)) <= 2
    displaced = proposer.first(5, np.random.default_rng(0))
    assert len({s.geometry_digest() for s in displaced}) == 5
    assert np.abs(displaced[3].positions - starts[0].positions).max() < 0.5


def test_files_keep_every_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    crystal = salt()
    stress = rng.normal(size=(3, 3))
    labelled = replace(
        crystal,
        positions=crystal.positions + rng.normal(size=crystal.positions.shape) * 1e-3,
        energy=float(rng.normal()) * 1e3,
        forces=rng.normal(size=crystal.positions.shape),
        stress=stress + stress.T,
        config_type='a "hot" one',
        source="some where, frame 3",
    )
    mixed = replace(labelled, pbc=np.array([True, False, True]), stress=None)
    for number, kept in enumerate((labelled, mixed, bare(labelled), ethanol_frames(1)[0])):
        write_exact(tmp_path / f"{number}.xyz", [kept, kept])
        back = read_exact(tmp_path / f"{number}.xyz")
        assert len(back) == 2
        assert back[1].geometry_digest() == kept.geometry_digest()
        assert back[1].label_digest() == kept.label_digest()


def mistakes() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"per_round": 0}, "per_round=0: must be at least 1"
    yield {"target_sigma": -1.0}, "target_sigma=-1.0: must be positive"
    yield {"select": {"trust_lo": "3x"}}, "select.trust_lo=3x: a multiple of the error on held-back frames needs some"
    yield {"select": {"kind": "bold"}}, "did you mean 'bald'"
    yield {"propose": "md"}, "propose=md: new structures have no label in a pool"
    yield {"md": {"temperature": -3}}, "temperature"


@pytest.mark.parametrize(("changes", "words"), list(mistakes()))
def test_settings_that_make_no_sense(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        settings(**changes)
    assert words in str(error.value)
