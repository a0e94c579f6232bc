"""A mass with correlations leaves the sampled law alone, and is gathered as stated."""

import numpy as np
import pytest
import torch

from equibayes.errors import InputError
from equibayes.sampling import basis, sghmc
from equibayes.sampling.noise import NoiseKey, standard_normal
from tests.sampling.test_affine_map import affine_map, stationary

SHAPES = [(3, 2), (2,), (2, 2, 2)]  # a matrix, a vector, two matrices
BLOCKS = basis.matrix_blocks(SHAPES)
P = 16
MATRIX = sghmc.SGHMCConfig(mass="matrix")


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotated_state(position: torch.Tensor, momentum: torch.Tensor, mass: torch.Tensor) -> sghmc.State:
    """A state whose basis is far from the identity, the same for all rows."""
    state = sghmc.init(position, momentum, mass=mass, blocks=BLOCKS)
    for number, Q in enumerate(basis.factors_of(BLOCKS, state.mass.basis)):
        Q.copy_(torch.linalg.qr(random(*Q.shape[1:], seed=number)).Q)
    return state


def rotation() -> torch.Tensor:
    """Q [P, P] of `rotated_state`, column by column."""
    state = rotated_state(torch.zeros(P, P).double(), torch.zeros(P, P).double(), torch.ones(P).double())
    return basis.from_basis(BLOCKS, state.mass.basis, torch.eye(P, dtype=torch.float64)).T


def update(config: sghmc.SGHMCConfig, gamma: float, mass: torch.Tensor, N: float = 7.0):
    def one_step(theta, r, gradient, noise):
        state = rotated_state(theta, r, mass)
        options = {"learning_rate": gamma, "data_size": N, "config": config, "adapt_mass": False, "blocks": BLOCKS}
        new = sghmc.step(state, gradient, noise, **options)
        return new.position, new.momentum

    return one_step


def target() -> tuple[torch.Tensor, torch.Tensor]:
    """A dense precision with curvatures over five decades, and masses over two."""
    Q = torch.linalg.qr(random(P, P, seed=5)).Q
    return Q @ torch.diag(torch.logspace(0, 5, P).double()) @ Q.T, torch.logspace(-1, 1, P).double()


def test_the_basis_is_a_rotation_that_is_not_the_identity() -> None:
    Q = rotation()
    np.testing.assert_allclose(Q @ Q.T, np.eye(P), atol=1e-12)
    assert (Q - torch.diag(Q.diagonal())).abs().max() > 0.5
    assert torch.equal(Q[6:8, 6:8], torch.eye(2, dtype=torch.float64))  # the vector stays diagonal


def test_the_law_of_baoa_is_exact_with_any_rotation() -> None:
    """The affine map of the real step has the covariance Λ⁻¹, and r ~ N(0, I), to 1e-8."""
    precision, mass = target()
    theta, r = stationary(update(MATRIX, 1e-4, mass), precision)
    unit = precision.diagonal().sqrt().numpy()
    np.testing.assert_allclose(theta, np.linalg.inv(precision.numpy()) * np.outer(unit, unit), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(r, np.eye(P), atol=1e-8)


@pytest.mark.parametrize("integrator", ["baoa", "paper"])
def test_it_is_the_diagonal_step_in_rotated_coordinates(integrator: sghmc.Integrator) -> None:
    """Entry by entry the map of the diagonal step on Qᵀ Λ Q, turned back."""
    precision, mass = target()
    Q = rotation()
    config = sghmc.SGHMCConfig(integrator=integrator)

    def diagonal(theta, r, gradient, noise):
        state = sghmc.init(theta @ Q, r, mass=mass)
        options = {"learning_rate": 1e-4, "data_size": 7.0, "config": config, "adapt_mass": False}
        new = sghmc.step(state, gradient @ Q, noise, **options)
        return new.position @ Q.T, new.momentum

    for ours, theirs in zip(affine_map(update(config, 1e-4, mass), precision), affine_map(diagonal, precision)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_prior_only_gives_a_unit_normal() -> None:
    _, mass = target()
    theta, _ = stationary(update(MATRIX, 1e-2, mass), torch.eye(P, dtype=torch.float64))
    np.testing.assert_allclose(theta, np.eye(P), atol=1e-8)


def descend(state: sghmc.State, key: NoiseKey, steps: int, config: sghmc.SGHMCConfig = MATRIX) -> sghmc.State:
    """Steps on a quadratic whose gradients are correlated within each matrix."""
    precision = target()[0].to(state.position)
    for _ in range(steps):
        gradient = (state.position[:, :, None] * precision).sum(1)  # a sum whose bits do not depend on K
        options = {"learning_rate": 1e-4, "data_size": 7.0, "config": config, "blocks": BLOCKS}
        state = sghmc.step(state, gradient, key, **options)
    return state


def test_chains_together_are_chains_alone_bit_for_bit() -> None:
    start = random(3, P).float()
    together = descend(sghmc.init(start, blocks=BLOCKS), NoiseKey(1, (0, 1, 2)), 20)
    for chain in range(3):
        alone = descend(sghmc.init(start[chain : chain + 1], blocks=BLOCKS), NoiseKey(1, (chain,)), 20)
        for name, tensor in sghmc.to_tensors(alone).items():
            other = sghmc.to_tensors(together)[name]
            assert torch.equal(tensor, other[chain : chain + 1] if tensor.ndim else other), name


def test_a_resumed_run_has_the_same_bits() -> None:
    key, start = NoiseKey(1, (0, 1)), random(2, P).float()
    whole = sghmc.to_tensors(descend(sghmc.init(start, blocks=BLOCKS), key, 20))
    half = sghmc.to_tensors(descend(sghmc.init(start, blocks=BLOCKS), key, 7))
    assert {"mass.basis", "mass.factors"} <= set(half)
    resumed = sghmc.to_tensors(descend(sghmc.from_tensors(half), key, 13))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_diagonal_state_stores_no_basis() -> None:
    tensors = sghmc.to_tensors(sghmc.init(random(2, P)))
    assert not {"mass.basis", "mass.factors"} & set(tensors)
    assert sghmc.from_tensors(tensors).mass.basis.shape == (2, 0)


def physical_momentum(state: sghmc.State) -> torch.Tensor:
    return basis.from_basis(BLOCKS, state.mass.basis, state.mass.mass.sqrt() * state.momentum)


def test_a_change_of_basis_leaves_the_physical_momentum_alone() -> None:
    """w = M^(1/2) r before and after an adaptation; γ = 0 and α → 0 leave only the adaptation in a step."""
    config = sghmc.SGHMCConfig(mass="matrix", friction=1e-12)
    state = descend(sghmc.init(random(2, P), blocks=BLOCKS), NoiseKey(0, (0, 1)), 5)
    assert basis.refreshes(5)
    options = {"learning_rate": 0.0, "temperature": 0.0, "data_size": 7.0, "config": config, "blocks": BLOCKS}
    after = sghmc.step(state, 1e6 * random(2, P, seed=3), torch.zeros(2, P), **options)
    assert (after.mass.basis - state.mass.basis).abs().max() > 0.1
    assert (after.momentum - state.momentum).abs().max() > 0.1 * state.momentum.abs().max()
    np.testing.assert_allclose(physical_momentum(after), physical_momentum(state), rtol=1e-9)


def test_the_basis_makes_gradients_uncorrelated() -> None:
    """Gradients A Z B with Z ~ N(0, 1): afterwards the entries of a matrix are uncorrelated, within sampling error."""
    A, B = random(3, 3, seed=1), random(2, 2, seed=2)
    gradients = torch.zeros(4000, P, dtype=torch.float64)
    gradients[:, :6] = (A @ random(4000, 3, 2, seed=3) @ B).flatten(1)
    state = sghmc.init(torch.zeros(1, P, dtype=torch.float64), blocks=BLOCKS)
    for number, gradient in enumerate(gradients[:600]):
        basis.gather(BLOCKS, state.mass.factors, gradient[None])
        if number % 10 == 0:
            basis.refresh(BLOCKS, state.mass.factors, state.mass.basis, 1e-3)
    turned = basis.into_basis(BLOCKS, state.mass.basis.expand(4000, -1), gradients)[:, :6]

    def correlation(x: torch.Tensor) -> float:
        return float((torch.corrcoef(x.T) - torch.eye(6)).abs().max())

    assert correlation(gradients[:, :6]) > 0.7
    assert correlation(turned) < 0.5  # the running mean remembers about ten gradients


def test_at_temperature_zero_it_is_the_optimiser() -> None:
    """v ← (1−α) v + α g, θ ← θ − γ Q (Qᵀ v / M), written out with dense matrices (``paper`` integrator)."""
    config = sghmc.SGHMCConfig(integrator="paper", mass="matrix", temperature=0.0)
    start, N, gamma, alpha, steps = random(1, P), 7.0, 1e-3, 0.1, 18
    state = descend_with(sghmc.init(start, blocks=BLOCKS), config, gamma, N, steps)
    precision, theta, v = target()[0], start[0].clone(), torch.zeros(P, dtype=torch.float64)
    average, factors, Q = torch.zeros(P).double(), {}, {}
    largest = average
    for t in range(steps):
        g = precision @ theta / N
        rotation = optimiser_basis(g, factors, Q, t)
        average = 0.999 * average + 0.001 * (rotation.T @ g) ** 2
        largest = torch.maximum(largest, average)
        M = (largest / (1 - 0.999 ** (t + 1))).sqrt() + 1e-3
        v = (1 - alpha) * v + alpha * g
        theta = theta - gamma * rotation @ ((rotation.T @ v) / M)
    np.testing.assert_allclose(state.position[0], theta, rtol=1e-7)


def descend_with(state: sghmc.State, config: sghmc.SGHMCConfig, gamma: float, N: float, steps: int) -> sghmc.State:
    for _ in range(steps):
        options = {"learning_rate": gamma, "data_size": N, "config": config, "blocks": BLOCKS}
        state = sghmc.step(state, state.position @ target()[0], NoiseKey(0, (0,)), **options)
    return state


def optimiser_basis(g: torch.Tensor, factors: dict, Q: dict, t: int) -> torch.Tensor:
    """Q [P, P] as a block-diagonal Kronecker product, from the factors of three matrices; refreshed in all steps
    but three."""
    parts, places = [], {"a": (slice(0, 6), 3, 2), "v": None, "b": (slice(8, 12), 2, 2), "c": (slice(12, 16), 2, 2)}
    for name, place in places.items():
        if place is None:
            parts.append(torch.eye(2, dtype=torch.float64))
            continue
        G = g[place[0]].reshape(place[1:])
        for side, product in (("L", G @ G.T), ("R", G.T @ G)):
            key = name + side
            factors[key] = 0.8 * factors.get(key, 0) + 0.2 * product
            if t not in (10, 15, 17):
                unit = torch.eye(len(product)).double()
                shrunk = factors[key] / (factors[key].diagonal().mean() + 1e-6) + 0.1 * unit
                Q[key] = gram_schmidt(shrunk @ Q.get(key, unit))
        parts.append(torch.kron(Q[name + "L"], Q[name + "R"]))
    return torch.block_diag(*parts)


def gram_schmidt(A: torch.Tensor) -> torch.Tensor:
    found: list[torch.Tensor] = []
    for column in A.T:
        for earlier in found:
            column = column - (column @ earlier) * earlier
        found.append(column / column.norm())
    return torch.stack(found, 1)


def test_factors_of_long_sides_are_block_diagonal() -> None:
    """Every matrix of a parameter has its own; vectors have none."""
    blocks = basis.matrix_blocks([(5,), (2, 48, 70), (3, 64), (1, 7)])
    assert [(block.first, block.row_side, block.column_side) for block in blocks] == [(5, 24, 14), (6725, 3, 32)]
    assert basis.factor_size(blocks) == 2 * (48 * 24 + 70 * 14) + 9 + 64 * 32
    factors, gradient = torch.zeros(1, basis.factor_size(blocks)), random(1, 6924, seed=4).float()
    basis.gather(blocks, factors, gradient)
    G = gradient[0, 5 : 5 + 48 * 70].reshape(48, 70)
    L, R = (0.2 * product for product in (G @ G.T, G.T @ G))
    np.testing.assert_allclose(blocks[0].left_factors(factors)[0, 0, 1], L[24:, 24:], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(blocks[0].right_factors(factors)[0, 0, 4], R[56:, 56:], rtol=1e-4, atol=1e-5)


def test_a_direction_without_gradients_stays() -> None:
    """A chain with gradients far below ε keeps its basis; so does one whose gradients are not finite."""
    blocks = basis.matrix_blocks([(3, 3)])
    Q = torch.linalg.qr(random(3, 3)).Q.flatten()
    Q = Q * torch.sign(Q[0])
    for value in (0.0, 1e-12, torch.nan, torch.inf):
        factors, turned = torch.full((1, 18), value, dtype=torch.float64), torch.cat([Q, Q])[None].clone()
        basis.refresh(blocks, factors, turned, 1e-3)
        np.testing.assert_allclose(turned[0], torch.cat([Q, Q]), atol=1e-4)


def test_the_basis_is_refreshed_often_at_first() -> None:
    when = [step for step in range(100_000) if basis.refreshes(step)]
    assert when[:10] == list(range(10))
    assert all(basis.gathers(step) for step in (*range(100), *when))
    later = np.array([step for step in when if step > 1000])
    np.testing.assert_allclose(np.diff(np.log(later)), 0.1, atol=0.01)
    assert sum(basis.gathers(step) for step in range(10_000, 27_183)) == pytest.approx(100, abs=1)


def test_the_frozen_basis_stays() -> None:
    state = descend(sghmc.init(random(1, P), blocks=BLOCKS), NoiseKey(0, (0,)), 5)
    options = {"learning_rate": 1e-4, "data_size": 7.0, "config": MATRIX, "blocks": BLOCKS, "adapt_mass": False}
    after = sghmc.step(state, random(1, P), NoiseKey(0, (0,)), **options)
    assert all(torch.equal(a, b) for a, b in zip(after.mass, state.mass))


def test_unknown_masses_are_refused() -> None:
    with pytest.raises(InputError, match="mass"):
        sghmc.SGHMCConfig(mass="dense")  # type: ignore[arg-type]


def test_many_chains_have_the_exact_spread() -> None:
    """3000 chains of one matrix [2, 2] with an adapted, then frozen mass: the covariance of a correlated Gaussian."""
    blocks, chains = basis.matrix_blocks([(2, 2)]), 3000
    rows = torch.tensor([[2.0, 1.6], [1.6, 2.0]]).double()
    precision = torch.kron(rows, torch.tensor([[1.0, 0.5], [0.5, 3.0]]).double())
    key = NoiseKey(3, range(chains))
    state = sghmc.init(standard_normal(key, 0, 4, stream=9, dtype=torch.float64), blocks=blocks)
    for number in range(400):
        options = {"learning_rate": 0.1 if number < 100 else 0.02, "data_size": 1.0, "config": MATRIX, "blocks": blocks}
        adapt = {"adapt_mass": number < 100, "inplace": True}
        state = sghmc.step(state, state.position @ precision, key, **options, **adapt)
    ratio = torch.linalg.eigvals(torch.cov(state.position.T) @ precision).real
    assert (ratio - 1).abs().max() < 0.13  # 5 standard errors of a variance
