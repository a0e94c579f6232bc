"""Function space against the textbook formulas in weight space."""

import numpy as np
import pytest
import torch

from equibayes.errors import InputError
from equibayes.posterior.linear_regression import Regression, gram

R, P, S = 12, 7, 5


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module", params=["more labels than weights", "more weights than labels"])
def problem(request: pytest.FixtureRequest) -> dict[str, torch.Tensor]:
    weights = P if request.param.startswith("more labels") else 3 * R
    J, test = random(R, weights), random(S, weights, seed=1)
    return {"J": J, "test": test, "r": random(R, seed=2), "noise": random(R, seed=3).square() + 0.1}


def in_weight_space(J: torch.Tensor, r: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance of δ for s = 1: (Jᵀ Λ⁻¹ J + I)⁻¹."""
    covariance = torch.linalg.inv(J.mT / noise @ J + torch.eye(J.shape[1], dtype=torch.float64))
    return covariance @ (J.mT / noise @ r), covariance


def test_mean_and_variance_are_those_of_weight_space(problem: dict[str, torch.Tensor]) -> None:
    J, test = problem["J"], problem["test"]
    found = Regression.of(gram(J), problem["r"], problem["noise"])
    mean, covariance = in_weight_space(J, problem["r"], problem["noise"])
    np.testing.assert_allclose(J.mT @ found.weights, mean, rtol=1e-9, atol=1e-11)
    variance = found.variance(gram(test, J), test.square().sum(1))
    np.testing.assert_allclose(variance, found.scale * (test @ covariance @ test.mT).diagonal(), rtol=1e-8)


def test_the_scale_maximises_the_evidence(problem: dict[str, torch.Tensor]) -> None:
    found = Regression.of(gram(problem["J"]), problem["r"], problem["noise"])
    covariance = gram(problem["J"]) + torch.diag(problem["noise"])

    def evidence(scale: float) -> float:
        normal = torch.distributions.MultivariateNormal(torch.zeros(R).double(), scale * covariance)
        return float(normal.log_prob(problem["r"]))

    assert evidence(found.scale) > max(evidence(0.98 * found.scale), evidence(1.02 * found.scale))


def test_draws_have_the_posterior_mean_and_covariance(problem: dict[str, torch.Tensor]) -> None:
    """Matheron's rule is affine in (ε, ν): its offset is the mean, its linear part squared the covariance, exactly."""
    J, noise = problem["J"], problem["noise"]
    found = Regression.of(gram(J), problem["r"], noise)
    weights = J.shape[1]

    def draws(epsilon: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
        return found.scale**0.5 * epsilon + J.mT @ found.draw(J @ epsilon, normal)

    offset = draws(torch.zeros(weights, 1).double(), torch.zeros(R, 1).double())
    by_epsilon = draws(torch.eye(weights).double(), torch.zeros(R, weights).double()) - offset
    by_noise = draws(torch.zeros(weights, R).double(), torch.eye(R).double()) - offset
    mean, covariance = in_weight_space(J, problem["r"], noise)
    np.testing.assert_allclose(offset[:, 0], mean, rtol=1e-9, atol=1e-11)
    found_covariance = by_epsilon @ by_epsilon.mT + by_noise @ by_noise.mT
    np.testing.assert_allclose(found_covariance, found.scale * covariance, rtol=1e-7, atol=1e-10)


def test_labels_repeated_without_noise_are_handled_or_refused() -> None:
    J = random(R, P).repeat(2, 1)
    found = Regression.of(gram(J), torch.ones(2 * R).double(), torch.full((2 * R,), 1e-14).double())
    assert found.weights.isfinite().all()
    with pytest.raises(InputError, match="repeated frames"):
        Regression.of(torch.full((3, 3), torch.nan).double(), torch.ones(3).double(), torch.ones(3).double())


def test_gram_in_blocks_of_columns() -> None:
    J, other = random(R, P).float(), random(S, P, seed=1).float()
    np.testing.assert_allclose(gram(other, J, at_once=2), other.double() @ J.double().mT, rtol=1e-12)
