"""Baselines: sums of engines, differences of labels, and engines that a file cannot start."""

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from ase.build import bulk

from equibayes.data import Dataset
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.labelling.baseline import ALLOW, Baseline
from equibayes.labelling.labellers import Label, Labeller
from tests.samples import ethanol


def copper() -> Structure:
    """Strained and displaced, so that nothing vanishes."""
    atoms = bulk("Cu", a=3.5, cubic=True)
    atoms.rattle(0.05, seed=1)
    return Structure.from_atoms(atoms, "copper")


def engine(name: str, structure: Structure) -> Label:
    with Labeller(name) as labeller:
        answer = labeller.label(structure)
    assert isinstance(answer, Label)
    return answer


def test_a_formula_and_a_process_give_the_labels_of_their_engine() -> None:
    for name, structure in (("emt", copper()), ("gfn2-xtb", ethanol())):
        own, known = Baseline(name).label(structure), engine(name, structure)
        assert own.energy == pytest.approx(known.energy, abs=1e-9)
        np.testing.assert_allclose(own.forces, known.forces, atol=1e-9)
        assert (own.stress is None) == (known.stress is None)
    charged = Baseline.of("gfn2-xtb", {"charge": 1})
    assert charged is not None
    assert charged.label(ethanol()).energy > own.energy + 5, "an ionisation energy"


def test_engines_are_added() -> None:
    structure = copper()
    parts, whole = [engine(name, structure) for name in ("emt", "zbl")], Baseline("emt + zbl").label(structure)
    assert whole.energy == pytest.approx(sum(part.energy for part in parts))
    np.testing.assert_allclose(whole.forces, parts[0].forces + parts[1].forces)
    assert parts[0].stress is not None
    assert parts[1].stress is not None
    assert whole.stress is not None
    np.testing.assert_allclose(whole.stress, parts[0].stress + parts[1].stress)


def test_labels_are_taken_off() -> None:
    structure, baseline = copper(), Baseline("emt")
    known = engine("emt", structure)
    labelled = dataclasses.replace(known.attach(structure), energy=known.energy + 1.0, weight=0.5)
    free = baseline.label(Structure([29], [[0.0, 0.0, 0.0]])).energy  # type: ignore[arg-type]
    bare = dataclasses.replace(structure, energy=None, forces=None)
    found = baseline.taken_off(Dataset([labelled, bare], "set", {29: 3.0}))
    assert found[0].energy == pytest.approx(1.0)
    np.testing.assert_allclose(found[0].forces, 0.0, atol=1e-12)
    np.testing.assert_allclose(found[0].stress, 0.0, atol=1e-12)
    assert (found[1].energy, found[1].forces, found[1].stress) == (None, None, None)
    assert (found.name, found[0].weight, found.isolated_atoms) == ("set", 0.5, {29: pytest.approx(3.0 - free)})


@pytest.mark.parametrize(
    ("engine", "settings", "words"),
    [
        ("gfn3", {}, "no such engine; did you mean 'gfn"),
        ("orca", {}, f"the baseline orca can make this machine run any program; if you trust it, set {ALLOW}=orca"),
        ("zbl+os:system", {}, f"set {ALLOW}=os:system"),
        ("zbl+d3bj", {}, "name the functional"),
        ("zbl+emt", {"charge": 1.0}, "settings are possible for one engine alone"),
        (None, {"charge": 1.0}, "prior.baseline_settings belong to prior.baseline"),
    ],
)
def test_wrong_baselines_are_refused(engine: str | None, settings: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("+", r"\+")):
        Baseline.of(engine, settings)


def test_other_engines_need_the_consent_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file can name them; that builds nothing."""
    name = "tests.labelling.shifted_emt:ShiftedEmt"
    found = Baseline.from_dict({"engine": name, "settings": {}})
    with pytest.raises(InputError, match="can make this machine run any program"):
        found.label(copper())
    monkeypatch.setenv(ALLOW, f"orca, {name}")
    assert found.label(copper()).energy == pytest.approx(engine(name, copper()).energy)


@pytest.mark.parametrize("content", [{"engine": 3, "settings": {}}, {"engine": "zbl", "settings": {"charge": "a"}}])
def test_values_from_a_file_are_checked(content: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="baseline"):
        Baseline.from_dict(content)


def test_an_engine_without_an_answer_names_the_structure() -> None:
    with pytest.raises(InputError, match="ethanol: the baseline emt has no answer: "):
        Baseline("emt").label(dataclasses.replace(ethanol(), numbers=np.full(9, 92), source="ethanol"))
    with pytest.raises(InputError, match=r"zbl: cannot be set up: .*'colour'"):
        Baseline("zbl", (("colour", 1.0),)).label(ethanol())


def test_a_baseline_travels_to_other_processes() -> None:
    baseline = Baseline("gfn2-xtb", (("charge", 1.0),))
    assert pickle.loads(pickle.dumps(baseline)) == baseline == Baseline.from_dict(baseline.to_dict())
    assert str(baseline) == "gfn2-xtb (charge 1)"
