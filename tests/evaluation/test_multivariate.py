"""Covariances of forces against labels: densities and scores with known answers, and their way to the page."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from equibayes.data import Dataset
from equibayes.evaluation import metrics
from equibayes.evaluation.evaluated import evaluate_each
from equibayes.evaluation.multivariate import Vectors, energy_score, log_likelihood, without
from equibayes.evaluation.print_tables import tables
from equibayes.evaluation.report import write_report
from equibayes.evaluation.tables import measure_all
from tests.samples import ethanol, water
from tests.simulate.posteriors import random_posterior


@pytest.fixture
def covariance() -> np.ndarray:
    mixed = np.random.default_rng(0).normal(size=(6, 6))
    return mixed @ mixed.T + 0.1 * np.eye(6)


def test_log_likelihood_is_scipys(covariance: np.ndarray) -> None:
    error = np.random.default_rng(1).normal(size=6)
    expected = multivariate_normal(np.zeros(6), covariance).logpdf(error)
    assert log_likelihood(error, covariance) == pytest.approx(expected)


def test_energy_score(covariance: np.ndarray) -> None:
    """Of one component it is the CRPS, without noise the error; the right covariance has the lowest."""
    for error, sigma in ((0.3, 1.0), (2.0, 0.5)):
        scores = [energy_score(np.array([error]), np.array([[sigma**2]]), seed) for seed in range(40)]
        assert np.mean(scores) == pytest.approx(metrics.crps(np.array([error]), np.array([sigma])), rel=0.05)
    far = np.arange(6.0)
    assert energy_score(far, 1e-12 * np.eye(6)) == pytest.approx(np.linalg.norm(far), rel=1e-4)
    errors = np.random.default_rng(2).multivariate_normal(np.zeros(6), covariance, 300)
    right, wide = (np.mean([energy_score(e, c, i) for i, e in enumerate(errors)]) for c in (covariance, 9 * covariance))
    assert right < wide


def test_without_some_directions(covariance: np.ndarray) -> None:
    """The rest is a marginal density, whatever the error along them."""
    directions = np.linalg.qr(np.random.default_rng(3).normal(size=(6, 2)))[0]
    error = np.random.default_rng(4).normal(size=6)
    inner, rest = without(directions, error, covariance)
    assert rest.shape == (4, 4)
    moved, _ = without(directions, error + directions @ [5.0, -3.0], covariance)
    np.testing.assert_allclose(moved, inner, atol=1e-10)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(without(np.eye(6)[:, :2], error, covariance)[1]), np.linalg.eigvalsh(covariance[2:, 2:])
    )


def test_coverage_of_ellipsoids() -> None:
    rng = np.random.default_rng(5)
    distance = np.concatenate([np.square(rng.normal(size=(20000, 3))).sum(1), [np.nan]])
    found = Vectors(*[np.zeros(0)] * 1, distance, *[np.zeros(0)] * 3)
    for level in (0.5, 0.68, 0.95):
        assert found.coverage(level) == pytest.approx(level, abs=0.015)


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Labels that the posterior says nothing about, one frame without any."""
    rng = np.random.default_rng(0)
    frames = [replace(s, energy=0.0, forces=rng.normal(size=(len(s), 3))) for s in (ethanol(), water(), ethanol(1))]
    return Dataset([*frames, ethanol(2)], "frames")


def test_evaluation_with_covariances(data: Dataset, tmp_path: Path) -> None:
    posterior = random_posterior(3, covariance="pair", rigid_noise=1.0)
    results = evaluate_each(posterior, data, [1, 3], device="cpu", covariance=True)
    vectors = results[1].vectors
    assert vectors is not None
    assert vectors.atoms.shape == (30, 3, 3)
    assert np.isnan(vectors.log_likelihood).tolist() == [False, False, False, True]
    prediction = posterior.predict(data[1], covariance=True)
    expected = multivariate_normal(np.zeros(9), prediction.forces_covariance.total.reshape(9, 9))
    error = (prediction.forces - data[1].forces).ravel()
    assert vectors.log_likelihood[1] == pytest.approx(expected.logpdf(error) / 3, rel=1e-6)
    independent = metrics.mean_log_likelihood(error, prediction.forces_std)
    assert vectors.independent[1] == pytest.approx(3 * independent, rel=1e-6)
    found = measure_all(results, about={})
    values = found["data"]["frames"]["3"]
    assert values["vector_mll"] == pytest.approx(vectors.log_likelihood[:3].mean())
    assert 0 <= values["vector_coverage_68"] <= 1
    assert any("Covariances of forces" in table.title for table in tables(found))
    page = write_report(tmp_path / "a.html", posterior, results, found).read_text(encoding="utf-8")
    assert "ellipsoids of σ" in page
    shown = json.loads(page.split('id="viewer-data">')[1].split("</script>")[0])["sets"][0]["least"][0]
    drawn = np.array(shown["ellipsoids"])
    own = vectors.atoms[results[1].frame == shown["frame"]]
    np.testing.assert_allclose(np.trace(drawn, axis1=1, axis2=2), 1e6 * np.trace(own, axis1=1, axis2=2), rtol=1e-3)
    np.testing.assert_allclose(np.linalg.eigvalsh(drawn), 1e6 * np.linalg.eigvalsh(own), rtol=1e-3)


def test_without_being_asked(data: Dataset) -> None:
    results = evaluate_each(random_posterior(2), data, [2], device="cpu")
    assert results[0].vectors is None
    assert "vector_mll" not in measure_all(results, about={})["data"]["frames"]["2"]
