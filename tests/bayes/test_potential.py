"""The stochastic potential, and what is read off its minibatch."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from equibayes.bayes.likelihood import log_likelihood
from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential, force_summary
from equibayes.bayes.prior import Flat, StandardNormal
from equibayes.data import Structure
from equibayes.data.resident import ResidentData
from tests.models import small_model
from tests.samples import SPECIES_OF, ethanol, water


def labelled(structure: Structure, seed: int) -> Structure:
    return replace(structure, energy=-1.0, forces=np.random.default_rng(seed).normal(size=(len(structure), 3)))


STRUCTURES = [labelled(ethanol(), 0), labelled(water(), 1), labelled(water(3), 2)]
INDICES = torch.tensor([[0, 1], [2, 1]])


def resident(structures: list[Structure] = STRUCTURES) -> ResidentData:
    reference = [0.0] * len(structures)
    return ResidentData(structures, r_max=4.0, species_of=SPECIES_OF, reference=reference, dtype=torch.float64)


def alone(model: StochasticModel, weights: torch.Tensor, frame: int) -> tuple[np.ndarray, np.ndarray]:
    """|error| [n, 3] and σ [n] of one structure, which has no padding atoms by itself."""
    graph, labels = resident([STRUCTURES[frame]]).batch(torch.tensor([[0]]))
    output = model(weights, graph)
    return (output.forces - labels.forces)[0].abs().numpy(), output.sigma_forces[0].numpy()


def test_padding_atoms_do_not_count_in_the_summary_of_forces() -> None:
    """A batch of ethanol and water has 6 padding atoms, one of two water molecules has 12; no chain counts them."""
    model, weights = small_model(2)
    data = resident()
    graph, labels = data.batch(INDICES)
    assert graph.real.sum(1).tolist() == [12, 6]
    assert graph.real.shape == (2, 18)
    error, sigma = force_summary(model(weights, graph), graph, labels)
    for chain, frames in enumerate(INDICES.tolist()):
        parts = [alone(model, weights[chain : chain + 1], frame) for frame in frames]
        assert float(error[chain]) == pytest.approx(np.concatenate([part[0] for part in parts]).mean(), rel=1e-9)
        assert float(sigma[chain]) == pytest.approx(np.concatenate([part[1] for part in parts]).mean(), rel=1e-9)


def test_potential_scales_the_minibatch_and_counts_the_prior_once() -> None:
    """û = −ln p(θ) − N/|batch| Σ ln p(y|x, θ), with N = 3 and |batch| = 2; ln p is reported per configuration."""
    model, weights = small_model(2)
    data = resident()
    graph, labels = data.batch(INDICES)
    per_structure = log_likelihood(model(weights, graph), graph, labels)
    prior = StandardNormal()
    found = Potential(model, data, prior)(weights, INDICES)
    assert found.potential.dtype == torch.float64
    torch.testing.assert_close(found.potential, prior.neg_log_density(weights) - 1.5 * per_structure.sum(1))
    torch.testing.assert_close(found.log_likelihood, per_structure.mean(1))
    flat = Potential(model, data, Flat())(weights, INDICES)
    torch.testing.assert_close(found.gradient - flat.gradient, weights)
    step = 1e-5 * torch.randn(weights.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ahead, behind = (Potential(model, data, prior)(weights + sign * step, INDICES).potential for sign in (1, -1))
    torch.testing.assert_close((found.gradient * step).sum(1), (ahead - behind) / 2, rtol=1e-6, atol=1e-9)


def test_prior_weight_changes_only_the_share_of_the_prior_in_the_gradient() -> None:
    model, weights = small_model(1)
    potential = Potential(model, resident(), StandardNormal())
    whole = potential(weights, INDICES[:1])
    part = potential.with_prior_weight(whole, weights, 0.25)
    torch.testing.assert_close(part.gradient, whole.gradient - 0.75 * weights)
    assert torch.equal(part.potential, whole.potential)
    assert potential.with_prior_weight(whole, weights, 1.0) is whole
