"""Predictions beside labels."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from equibayes.data import Dataset, bundled_ethanol
from equibayes.data.graph import graph_of
from equibayes.data.reference import EnergyReference
from equibayes.data.stress import full_to_voigt
from equibayes.evaluation.evaluated import collect, evaluate_each, recalibrated
from equibayes.posterior.calibration import Calibrated, Calibration, Rescaling
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import ReadyPosterior, joined
from tests.models import small_model
from tests.samples import SPECIES_OF, salt, silicon, slab, water

FRAMES = bundled_ethanol("0:5")


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    model, weights = small_model(4)
    reference = EnergyReference("given", {z: -10.0 * z for z in SPECIES_OF})
    return Posterior(weights, torch.arange(4), torch.zeros(4, dtype=torch.int64), model.config, reference)


@pytest.fixture(scope="module")
def stressed() -> tuple[Posterior, Dataset]:
    """A posterior that learned stress, and cells with and without a label, a slab and a molecule."""
    model, weights = small_model(4, stress_head=True)
    reference = EnergyReference("given", {z: -10.0 * z for z in SPECIES_OF})
    posterior = Posterior(weights, torch.arange(4), torch.zeros(4, dtype=torch.int64), model.config, reference)
    label = np.array([[0.01, 0.02, 0.03], [0.02, 0.04, 0.05], [0.03, 0.05, 0.06]])
    cells = [
        replace(silicon(), stress=label),
        salt(),
        replace(slab(), stress=label),
        water(),
        replace(salt(1), stress=-label),
    ]
    return posterior, Dataset(cells, "cells")


def test_elements_of_the_stress(stressed: tuple[Posterior, Dataset]) -> None:
    posterior, cells = stressed
    result = evaluate_each(posterior, cells, [4])[0]
    assert np.isfinite(result.stress_true).all(1).tolist() == [True, False, False, False, True]
    np.testing.assert_array_equal(result.stress_true[0], [0.01, 0.04, 0.06, 0.05, 0.03, 0.02])
    prediction = posterior.predict(cells[0])
    for part, name in (("mean", "stress"), ("sigma", "stress_std"), ("aleatoric", "stress_aleatoric")):
        np.testing.assert_allclose(
            getattr(result, f"stress_{part}")[0], full_to_voigt(getattr(prediction, name)), rtol=1e-9
        )
    assert np.isfinite(result.stress_mean).all(1).tolist() == [True, True, False, False, True]
    np.testing.assert_allclose(
        result.stress_sigma**2, result.stress_epistemic**2 + result.stress_aleatoric**2, rtol=1e-9
    )


def test_recalibrated_stress_is_what_the_calibrated_posterior_says(stressed: tuple[Posterior, Dataset]) -> None:
    posterior, cells = stressed
    none = Calibrated("none", {4: Rescaling()})
    calibration = Calibration(
        none, none, {"name": "made up", "frames": 5}, Calibrated("parts", {4: Rescaling(2.0, 0.5)})
    )
    raw = recalibrated(evaluate_each(posterior, cells, [4])[0], calibration)
    told = evaluate_each(replace(posterior, calibration=calibration.to_dict()), cells, [4])[0]
    for name in ("sigma", "epistemic", "aleatoric"):
        np.testing.assert_allclose(getattr(raw, f"stress_{name}"), getattr(told, f"stress_{name}"), rtol=1e-12)


def test_recalibrated_is_what_the_calibrated_posterior_says(posterior: Posterior) -> None:
    calibration = Calibration(
        energy=Calibrated("scale", {2: Rescaling(3.0, 1.5), 4: Rescaling(2.0, 1.2)}),
        forces=Calibrated("species", {2: Rescaling(0.5, 1.5, {1: 0.7}), 4: Rescaling(1.5, 1.2, {1: 2.0, 6: 0.3})}),
        data={"name": "made up", "frames": 5, "fingerprint": ""},
    )
    raw = evaluate_each(posterior, FRAMES, [2, 4])
    expected = evaluate_each(replace(posterior, calibration=calibration.to_dict()), FRAMES, [2, 4])
    for one, other in zip((recalibrated(each, calibration) for each in raw), expected):
        for field in fields(one):
            if isinstance(getattr(one, field.name), np.ndarray):
                np.testing.assert_allclose(getattr(one, field.name), getattr(other, field.name), rtol=1e-12)
    assert not np.allclose(raw[1].force_sigma, expected[1].force_sigma)


def test_graphs_that_are_one_already(posterior: Posterior) -> None:
    (expected,) = evaluate_each(posterior, FRAMES, [3])
    ready = ReadyPosterior(posterior, "cpu")
    pairs = [(s, graph_of(s, r_max=posterior.network.r_max, species_of=posterior.species_of)) for s in FRAMES]
    predictions = [each for (each,) in ready.predict_batch(*joined(pairs), [3])]
    got = collect(FRAMES.name, 3, FRAMES.structures, predictions)
    np.testing.assert_allclose(got.force_sigma, expected.force_sigma, rtol=1e-9)
    np.testing.assert_allclose(got.energy_mean, expected.energy_mean, rtol=1e-12)
