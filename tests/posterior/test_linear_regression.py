"""Both forms of the regression against the textbook formulas in weight space."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from equibayes.errors import InputError
from equibayes.posterior.linear_regression import FewLabels, ManyLabels, Solution, gram, product

R, P, S = 12, 7, 5


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module", params=["more labels than weights", "more weights than labels"])
def problem(request: pytest.FixtureRequest) -> dict[str, torch.Tensor]:
    weights = P if request.param.startswith("more labels") else 3 * R
    return {"J": random(R, weights), "r": random(R, seed=2), "noise": random(R, seed=3).square() + 0.1}


def few(problem: dict[str, torch.Tensor], normal: torch.Tensor, of_labels: torch.Tensor) -> Solution:
    return FewLabels(*problem.values()).solve([1.0], normal, of_labels)[0]


def many(problem: dict[str, torch.Tensor], normal: torch.Tensor, of_labels: torch.Tensor) -> Solution:
    found = ManyLabels(problem["J"].shape[1])
    found.add(*(each[:5] for each in problem.values()))
    found.add(*(each[5:] for each in problem.values()))
    return found.solve([1.0], normal)[0]


def in_weight_space(J: torch.Tensor, r: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance of δ for s = 1: (Jᵀ Λ⁻¹ J + I)⁻¹."""
    covariance = torch.linalg.inv(J.mT / noise @ J + torch.eye(J.shape[1], dtype=torch.float64))
    return covariance @ (J.mT / noise @ r), covariance


@pytest.mark.parametrize("solve", [few, many])
def test_exact_regression(problem: dict[str, torch.Tensor], solve: Callable[..., Solution]) -> None:
    """A draw is affine in (ε, ν): its offset is the posterior mean, its linear part squared the covariance."""
    weights = problem["J"].shape[1]
    size = weights + R
    identity = torch.eye(size, dtype=torch.float64)
    found = solve(problem, identity[:, :weights], identity[:, weights:])
    mean, covariance = in_weight_space(**problem)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        found.deviations.mT @ found.deviations, found.scale * covariance, rtol=1e-7, atol=1e-8 * found.scale
    )
    draws = found.draws()
    np.testing.assert_allclose(draws.mean(0), mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(draws[1] + draws[0], 2 * mean, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("solve", [few, many])
def test_the_scale_maximises_the_evidence(problem: dict[str, torch.Tensor], solve: Callable[..., Solution]) -> None:
    weights = problem["J"].shape[1]
    found = solve(problem, torch.zeros(1, weights).double(), torch.zeros(1, R).double())
    covariance = gram(problem["J"]) + torch.diag(problem["noise"])

    def evidence(scale: float) -> float:
        normal = torch.distributions.MultivariateNormal(torch.zeros(R).double(), scale * covariance)
        return float(normal.log_prob(problem["r"]))

    assert evidence(found.scale) > max(evidence(0.98 * found.scale), evidence(1.02 * found.scale))


def test_labels_added_later(problem: dict[str, torch.Tensor]) -> None:
    """The same as all at once, also with another noise level."""
    normal, of_labels = random(2, problem["J"].shape[1], seed=4), random(2, R, seed=5)
    grown = FewLabels(*(each[:8] for each in problem.values()))
    grown.add(*(each[8:] for each in problem.values()))
    for one, other in zip(
        grown.solve([0.3, 2.0], normal, of_labels), FewLabels(*problem.values()).solve([0.3, 2.0], normal, of_labels)
    ):
        np.testing.assert_allclose(one.draws(), other.draws(), rtol=1e-10, atol=1e-12)
        assert one.scale == pytest.approx(other.scale, rel=1e-10)


def test_labels_repeated_without_noise_are_handled_or_refused() -> None:
    J, normal = random(R, P).repeat(2, 1), torch.zeros(1, P).double()
    repeated = FewLabels(J, torch.ones(2 * R).double(), torch.full((2 * R,), 1e-14).double())
    assert repeated.solve([1.0], normal, torch.zeros(1, 2 * R).double())[0].mean.isfinite().all()
    broken = FewLabels(torch.full((3, P), torch.nan).double(), torch.ones(3).double(), torch.ones(3).double())
    with pytest.raises(InputError, match="repeated frames"):
        broken.solve([1.0], normal, torch.zeros(1, 3).double())


def test_products_in_panels() -> None:
    """Of float32 rows, in float64, with more rows than a panel has."""
    J, other = random(600, P).float(), random(S, P, seed=1).float()
    np.testing.assert_allclose(product(other, J, at_once=2), other.double() @ J.double().mT, rtol=1e-12)
    np.testing.assert_allclose(gram(J), J.double() @ J.double().mT, rtol=1e-10, atol=1e-12)


def test_labels_left_out(problem: dict[str, torch.Tensor]) -> None:
    """As if each group were predicted by a regression without it, with s² of all labels."""
    groups, factor = torch.arange(R) // 4, 0.3
    error, variance = FewLabels(*problem.values()).left_out(factor, groups)
    J, r, noise = problem["J"], problem["r"], factor * problem["noise"]
    scale = float(r @ torch.linalg.solve(J @ J.mT + torch.diag(noise), r)) / R
    for group in range(3):
        own = groups == group
        mean, covariance = in_weight_space(J[~own], r[~own], noise[~own])
        np.testing.assert_allclose(error[own], r[own] - J[own] @ mean, rtol=1e-8, atol=1e-10)
        expected = scale * ((J[own] @ covariance @ J[own].mT).diagonal() + noise[own])
        np.testing.assert_allclose(variance[own], expected, rtol=1e-8)
