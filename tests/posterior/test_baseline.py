"""A posterior that corrects a baseline: what is learned, and that it is added back everywhere."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ase.build import bulk

from equibayes.baselines.train import baseline_config
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.labelling.baseline import Baseline
from equibayes.learning.resample import resample
from equibayes.posterior.center import load_center
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.fit_novelty import with_novelty
from equibayes.posterior.sample import sample
from equibayes.posterior.tangent import refine
from equibayes.run.prepare import prepare
from equibayes.simulate.calculator import Calculator
from equibayes.solids.members import PosteriorMembers
from tests.runs import ethanol_frames, small_config
from tests.simulate.posteriors import ethanol_posterior, ethanol_start
from tests.solids.posteriors import COPPER

ZBL, EMT = Baseline("zbl"), Baseline("emt")
WITH_ZBL = {"prior": {"baseline": "zbl"}}


def close() -> Structure:
    """Ethanol with two atoms within reach of the repulsion."""
    atoms = ethanol_start()
    atoms.positions *= 0.8
    return Structure.from_atoms(atoms)


def test_the_chains_learn_the_differences(tmp_path: Path) -> None:
    """Bit for bit what they learn from labels without the baseline; held-back errors are the same."""
    data = ethanol_frames()
    corrected = sample(data, small_config(WITH_ZBL), output=tmp_path / "a.posterior", device="cpu")
    plain = sample(ZBL.taken_off(data), small_config(), device="cpu")
    assert torch.equal(corrected.samples, plain.samples)
    assert corrected.reference == plain.reference
    assert corrected.history[-1]["validation_force_mae"] == plain.history[-1]["validation_force_mae"]
    assert corrected.novelty is not None
    assert plain.novelty is not None
    assert corrected.novelty.force_scale == plain.novelty.force_scale
    again = load(tmp_path / "a.posterior")
    assert again.baseline == ZBL
    assert load_center(str(tmp_path / "a.posterior")).baseline == ZBL  # type: ignore[union-attr]
    refined = [refine(each, own) for each, own in ((corrected, data), (plain, ZBL.taken_off(data)))]
    assert refined[0].baseline == ZBL
    assert refined[0].tangent is not None
    assert refined[1].tangent is not None
    assert torch.equal(refined[0].tangent, refined[1].tangent)


def test_it_is_added_to_mean_and_members_and_leaves_sigma() -> None:
    plain, structure = ethanol_posterior(), close()
    label, corrected = ZBL.label(structure), replace(plain, baseline=ZBL)
    assert label.energy > 1, "else this shows nothing"
    before, after = (each.predict(structure, members=True) for each in (plain, corrected))
    assert after.energy == pytest.approx(before.energy + label.energy)
    np.testing.assert_allclose(after.forces, before.forces + label.forces, atol=1e-9)
    assert before.members is not None
    assert after.members is not None
    np.testing.assert_allclose(after.members["forces"], before.members["forces"] + label.forces, atol=1e-9)
    for name in ("energy_std", "forces_std", "novelty"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fused", [True, False])
def test_the_calculator_moves_in_the_sum(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fused:
        monkeypatch.setenv("EQUIBAYES_ENGINE", "reference")
    atoms, label = close().to_atoms(), ZBL.label(close())
    plain, corrected = (Calculator(each) for each in (ethanol_posterior(), replace(ethanol_posterior(), baseline=ZBL)))
    np.testing.assert_allclose(
        corrected.get_forces(atoms), plain.get_forces(atoms) + label.forces, atol=1e-6 * np.abs(label.forces).max()
    )
    assert corrected.get_potential_energies(atoms).sum() == pytest.approx(corrected.get_potential_energy(atoms))


def test_the_stress_of_crystals_has_it_in_every_member() -> None:
    plain = load(COPPER)
    corrected = replace(plain, baseline=EMT)
    atoms = bulk("Cu", a=3.5, cubic=True)
    label = EMT.label(Structure.from_atoms(atoms))
    assert label.stress is not None
    before, after = (each.predict(atoms) for each in (plain, corrected))
    np.testing.assert_allclose(after.stress, before.stress + label.stress, atol=1e-9)
    jobs = [(0, atoms), (1, atoms)]
    for old, new in zip(PosteriorMembers(plain).evaluate(jobs), PosteriorMembers(corrected).evaluate(jobs)):
        assert new.energy == pytest.approx(old.energy + label.energy)
        np.testing.assert_allclose(new.forces, old.forces + label.forces, atol=1e-9)
        np.testing.assert_allclose(new.stress[:3], old.stress[:3] + np.diag(label.stress), atol=1e-9)


def test_free_atoms_and_point_estimates_use_it_too() -> None:
    config = small_config({"prior": {"baseline": "zbl", "width": 0.5}})
    prior = baseline_config("ensemble", config, 16).prior
    assert (prior.baseline, prior.width) == ("zbl", 1.0), "no prior of weights, but the same labels"


def test_posteriors_of_other_baselines_do_not_mix(tmp_path: Path) -> None:
    data, path = ethanol_frames(), tmp_path / "zbl.posterior"
    corrected = sample(data, small_config(WITH_ZBL), output=path, device="cpu")
    with pytest.raises(InputError, match=r"prior\.baseline=None: the posterior to continue from corrects zbl"):
        resample(corrected, data, data[:0], small_config())
    centre = load_center(str(path))
    assert prepare(data, small_config({"prior": {"center": str(path)}}), center=centre).baseline == ZBL, "taken over"
    other = small_config({"prior": {"center": str(path), "baseline": "d3bj/pbe"}})
    with pytest.raises(InputError, match=r"corrects zbl; use prior\.baseline=zbl"):
        prepare(data, other, center=centre)


def test_a_file_cannot_start_programs(tmp_path: Path) -> None:
    """It can be read; its predictions are refused."""
    path, posterior = tmp_path / "evil.posterior", ethanol_posterior()
    replace(posterior, baseline=Baseline("os:system")).save(path)
    with pytest.raises(InputError, match="can make this machine run any program"):
        load(path).predict(ethanol_start())


def test_doubt_is_measured_by_what_is_learned() -> None:
    """F of the floor is that of the differences."""
    data, plain = ethanol_frames(), ethanol_posterior()
    own: Posterior = with_novelty(replace(plain, baseline=Baseline("gfn2-xtb")), data, data[:0])
    whole = with_novelty(plain, data, data[:0])
    assert own.novelty is not None
    assert whole.novelty is not None
    assert own.novelty.force_scale < 0.7 * whole.novelty.force_scale
