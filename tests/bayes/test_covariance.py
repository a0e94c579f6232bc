"""Covariances of forces: equivariant, positive definite, isotropic where they begin, and a correct density."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from equibayes.bayes import covariance as covariances
from equibayes.bayes.covariance import BOUND, COVARIANCE_HEAD, Generator, dense, terms
from equibayes.bayes.likelihood import forces_log_density
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data import Structure
from equibayes.data.resident import ResidentData
from equibayes.data.rigid import rigid_directions, rigid_directions_of, rigid_noise
from equibayes.network.config import preset
from equibayes.network.scales import fit_scales
from tests.models import graph, small_model
from tests.physics import random_rotation
from tests.samples import SPECIES_OF, ethanol, one_atom_cell, salt, silicon, slab, water

NOISE = 0.02
STRUCTURES = [ethanol(), water(), silicon(), salt(), slab(), one_atom_cell()]


def labelled(structure: Structure) -> Structure:
    return replace(structure, energy=0.0, forces=np.random.default_rng(3).normal(size=(len(structure), 3)))


def model_of(covariance, chains=2, strength=4.0, **more):
    """With weights that make S large."""
    model, weights = small_model(chains, covariance=covariance, **more)
    weights[:, model.layout.groups[COVARIANCE_HEAD]] *= strength
    return model, weights


def resident(structures, covariance):
    return ResidentData(
        [labelled(each) for each in structures],
        r_max=4.0,
        species_of=SPECIES_OF,
        reference=[0.0] * len(structures),
        rigid_noise=NOISE if covariance == "pair" else None,
        dtype=torch.float64,
    )


def covariance_at(model, weights, structure):
    output = model(weights, graph(structure))
    return dense(output.couplings, output.log_sigma_forces, graph(structure)), output


@pytest.mark.parametrize("covariance", ["atom", "pair"])
@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda each: each.source or "one atom")
def test_the_density_is_that_of_the_dense_matrix(covariance, structure):
    model, weights = model_of(covariance)
    data, labels = resident([structure], covariance).batch(torch.tensor([[0]]))
    matrix, output = covariance_at(model, weights, structure)
    assert output.couplings.abs().max() > 0.3
    if labels.rigid is not None:
        directions = labels.rigid[0].flatten(0, 1)
        matrix = torch.linalg.inv(torch.linalg.inv(matrix) + directions @ directions.T)
    error = (labels.forces - output.forces).flatten(1)
    expected = MultivariateNormal(torch.zeros_like(error), matrix).log_prob(error)
    found = forces_log_density(output, data, labels)
    torch.testing.assert_close(found[:, 0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("covariance", ["atom", "pair"])
def test_a_batch_is_the_sum_of_its_structures(covariance):
    model, weights = model_of(covariance)
    data = resident(STRUCTURES[:4], covariance)
    together = forces_log_density(model(weights, (batch := data.batch(torch.tensor([[0, 1, 2, 3]])))[0]), *batch)
    for number in range(4):
        batch = data.batch(torch.tensor([[number]]))
        alone = forces_log_density(model(weights, batch[0]), *batch)
        torch.testing.assert_close(together[:, number], alone[:, 0], rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize("covariance", ["atom", "pair"])
def test_it_turns_with_the_atoms(covariance):
    model, weights = model_of(covariance, 1)
    rng = np.random.default_rng(0)
    for structure in (ethanol(), salt()):
        before, _ = covariance_at(model, weights, structure)
        for turn in (random_rotation(rng), -np.eye(3), -random_rotation(rng)):
            turned = replace(structure, positions=structure.positions @ turn.T, cell=structure.cell @ turn.T)
            whole = torch.block_diag(*[torch.from_numpy(turn)] * len(structure))
            after, _ = covariance_at(model, weights, turned)
            torch.testing.assert_close(after[0], whole @ before[0] @ whole.T, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("covariance", ["atom", "pair"])
def test_it_permutes_with_the_atoms(covariance):
    model, weights = model_of(covariance, 1)
    structure, order = ethanol(), np.random.default_rng(1).permutation(9)
    shuffled = replace(structure, numbers=structure.numbers[order], positions=structure.positions[order])
    before, after = (covariance_at(model, weights, each)[0].reshape(9, 3, 9, 3) for each in (structure, shuffled))
    torch.testing.assert_close(after, before[order][:, :, order], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("covariance", ["atom", "pair"])
def test_it_begins_as_the_isotropic_noise(covariance):
    """Also with the same weights of everything else."""
    isotropic, _ = small_model(2)
    model, _ = small_model(2, covariance=covariance)
    start = model.layout.start(2, 0, torch.float64)
    data, labels = resident(STRUCTURES[:4], "isotropic").batch(torch.tensor([[0, 1, 2, 3]]))
    found = forces_log_density(model(start, data), data, labels)
    same = isotropic.layout.start(2, 0, torch.float64)
    assert torch.equal(same, start[:, : same.shape[1]])
    expected = forces_log_density(isotropic(same, data), data, labels)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_atoms_alone_are_not_correlated_and_pairs_are():
    for covariance, correlated in (("atom", False), ("pair", True)):
        matrix = covariance_at(*model_of(covariance, 1), ethanol())[0].reshape(9, 3, 9, 3)
        assert bool(matrix[0, :, 3].abs().max() > 1e-3) == correlated
        own = matrix[0, :, 0]
        assert (own - own.trace() / 3 * torch.eye(3)).abs().max() > 1e-3, "not isotropic"


@pytest.mark.parametrize("covariance", ["atom", "pair"])
def test_the_determinant_and_the_bound(covariance):
    """ln det C = Σ 6 ln σ and |S| < R, for weights as large as they never are."""
    model, weights = model_of(covariance, strength=100.0)
    for structure in (*STRUCTURES, ethanol()):
        matrix, output = covariance_at(model, weights, structure)
        expected = 6 * output.log_sigma_forces.sum(1)
        torch.testing.assert_close(torch.linalg.slogdet(matrix)[1], expected, rtol=1e-5, atol=1e-4)
        generator, count = Generator(output.couplings, graph(structure)), 3 * len(structure)
        unit = torch.eye(count, dtype=torch.float64).reshape(1, -1, 3, count).expand(2, -1, -1, -1)
        norm = torch.linalg.eigvalsh(generator(unit).reshape(2, count, count)).abs().max()
        assert norm < BOUND[output.couplings.shape[3]]
        assert norm > 0.5 or len(structure) == 1


def test_the_series_is_long_enough():
    for bound in (0.0, 0.5, 2.0, 4.0):
        count = terms(bound)
        partial = sum((-bound) ** k / float(np.prod(np.arange(1.0, k + 1))) for k in range(count + 1))
        assert abs(partial - np.exp(-bound)) < 2e-9


@pytest.mark.parametrize("covariance", ["atom", "pair"])
def test_gradient_by_differences(covariance):
    """By the weights of the head, also at S = 0 where all eigenvalues are equal."""
    model, weights = model_of(covariance, 1, strength=1.0)
    data, labels = resident(STRUCTURES[:3], covariance).batch(torch.tensor([[0, 1, 2]]))
    for start in (weights, model.layout.start(1, 0, torch.float64)):
        theta = start.clone().requires_grad_()
        total = forces_log_density(model(theta, data, differentiable=True), data, labels).sum()
        (gradient,) = torch.autograd.grad(total, theta)
        move = torch.randn(theta.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        move[:, : model.layout.groups[COVARIANCE_HEAD].start] = 0
        h = 1e-5
        up, down = (forces_log_density(model(start + sign * h * move, data), data, labels).sum() for sign in (1, -1))
        slope = float((gradient * move).sum())
        assert abs(slope) > 1e-2
        np.testing.assert_allclose(float(up - down) / (2 * h), slope, rtol=1e-5)


def test_float32_is_as_good():
    """With S near its bound."""
    model, weights = model_of("pair", 1, strength=10.0)
    data, labels = resident(STRUCTURES[:4], "pair").batch(torch.tensor([[0, 1, 2, 3]]))
    output = model(weights, data)
    expected = forces_log_density(output, data, labels)
    single = replace(output, couplings=output.couplings.float(), log_sigma_forces=output.log_sigma_forces.float())
    torch.testing.assert_close(forces_log_density(single, data, labels), expected, rtol=1e-4, atol=1e-2)


def test_the_cost_is_linear_in_the_number_of_atoms():
    """Products with S alone: twice the cells have twice the numbers, and no matrix of all atoms is made."""
    model, weights = model_of("pair", 1)
    densities = []
    for size in (1, 2):
        atoms = salt().to_atoms().repeat((size, 1, 1))
        structure = replace(Structure.from_atoms(atoms), forces=np.zeros((8 * size, 3)))
        data = ResidentData([structure], r_max=4.0, species_of=SPECIES_OF, reference=[0.0], dtype=torch.float64)
        batch = data.batch(torch.tensor([[0]]))
        output = model(weights, batch[0])
        zero = replace(output, forces=torch.zeros_like(output.forces))
        densities.append(forces_log_density(zero, *batch))
    torch.testing.assert_close(densities[1], 2 * densities[0])


def test_rigid_directions():
    structure = ethanol()
    found = rigid_directions_of(structure).reshape(27, 6)
    np.testing.assert_allclose(found.T @ found, np.eye(6), atol=1e-12)
    forces = small_model(1)[0](small_model(1)[1], graph(structure)).forces[0].numpy()
    np.testing.assert_allclose(found.T @ forces.ravel(), np.zeros(6), atol=1e-10)
    arms = structure.positions - structure.positions.mean(0)
    turned = found @ np.linalg.lstsq(found, np.cross([0.3, -1, 2], arms).ravel(), rcond=None)[0]
    np.testing.assert_allclose(turned, np.cross([0.3, -1, 2], arms).ravel(), atol=1e-10)
    assert np.any(rigid_directions_of(slab()) != 0, (0, 1)).tolist() == [True] * 3 + [False] * 3
    line = np.arange(3.0)[:, None] * np.ones(3)
    assert np.any(rigid_directions(line, False) != 0, (0, 1)).sum() == 5
    assert np.any(rigid_directions(line[:1], False) != 0, (0, 1)).sum() == 3


def test_noise_along_net_force_and_torque_is_taken_from_the_labels():
    pushed = replace(salt(), forces=np.full((8, 3), 0.05))
    assert rigid_noise([pushed]) == pytest.approx(0.05 * 8**0.5)
    assert rigid_noise([replace(salt(), forces=np.zeros((8, 3)))]) == 1e-3
    assert fit_scales(preset("tiny", covariance="pair"), [pushed]).rigid_noise == pytest.approx(0.05 * 8**0.5)
    assert fit_scales(preset("tiny", covariance="atom"), [pushed]).rigid_noise is None
    assert covariances.COLUMNS.keys() == set(covariances.COVARIANCES)


def test_on_a_gpu_the_reference_samples():
    """With the line that says why; the compiled engine for CPUs knows them."""
    model, _ = small_model(1, covariance="atom")
    potential = Potential(model, resident([ethanol()], "atom"), StandardNormal())
    assert potential.unfused_because("triton") == "likelihood.covariance=atom"
    assert potential.unfused_because("native") is None
    plain = Potential(small_model(1)[0], resident([ethanol()], "isotropic"), StandardNormal())
    assert plain.unfused_because("triton") is None
