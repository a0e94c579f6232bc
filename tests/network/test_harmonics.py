"""Spherical harmonics, cutoff and radial basis: against e3nn and nequip, and their gradients against autograd."""

import numpy as np
import pytest
import torch

from equibayes.network.harmonics import L_MAX, edge_geometry, polynomial_cutoff, radial_basis, xplor_cutoff


@pytest.fixture
def vectors():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 5, 7, 3, dtype=torch.float64, generator=generator) * 2


@pytest.mark.parametrize("l_max", range(L_MAX + 1))
def test_harmonics_equal_e3nn(vectors, l_max):
    o3 = pytest.importorskip("e3nn.o3")
    expected = o3.spherical_harmonics(list(range(l_max + 1)), vectors, normalize=True, normalization="component")
    torch.testing.assert_close(edge_geometry(vectors, l_max).harmonics, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("l_max", range(L_MAX + 1))
def test_component_normalisation(vectors, l_max):
    harmonics = edge_geometry(vectors, l_max).harmonics
    for l in range(l_max + 1):
        norm = (harmonics[..., l**2 : (l + 1) ** 2] ** 2).sum(-1)
        torch.testing.assert_close(norm, torch.full_like(norm, 2 * l + 1), atol=1e-12, rtol=0)


@pytest.mark.parametrize("l_max", range(L_MAX + 1))
def test_gradient_by_autograd(vectors, l_max):
    flat = vectors.reshape(-1, 3)[:6]
    gradient = edge_geometry(flat, l_max).gradient
    for row, vector in zip(gradient, flat):
        jacobian = torch.autograd.functional.jacobian(lambda v: edge_geometry(v, l_max).harmonics, vector)
        torch.testing.assert_close(row, jacobian, atol=1e-12, rtol=1e-12)


def test_length_and_direction(vectors):
    geometry = edge_geometry(vectors, 1)
    torch.testing.assert_close(geometry.length[..., None] * geometry.direction, vectors)
    torch.testing.assert_close(geometry.direction.norm(dim=-1), torch.ones(2, 5, 7, dtype=torch.float64))


def published_cutoff(x: np.ndarray, p: int) -> np.ndarray:
    """The formula of the NequIP paper, which cancels badly near 1."""
    return 1 - (p + 1) * (p + 2) / 2 * x**p + p * (p + 2) * x ** (p + 1) - p * (p + 1) / 2 * x ** (p + 2)


@pytest.mark.parametrize("p", [2, 3, 6, 12])
class TestCutoff:
    def test_equals_the_published_formula(self, p):
        x = np.linspace(0.01, 1, 200)
        result = polynomial_cutoff(torch.from_numpy(x)[:, None], p)[:, 0]
        np.testing.assert_allclose(result.numpy(), published_cutoff(x, p), atol=1e-13)

    def test_exactly_zero_beyond(self, p):
        x = torch.tensor([[1.0], [1.0 + 1e-12], [1.3], [250.0], [1e6]], dtype=torch.float64, requires_grad=True)
        result = polynomial_cutoff(x, p)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        assert torch.equal(result, torch.zeros_like(result))
        assert torch.equal(gradient, torch.zeros_like(gradient))

    def test_two_derivatives_vanish_at_the_cutoff(self, p):
        x = torch.tensor([[1 - 1e-6]], dtype=torch.float64, requires_grad=True)
        value = polynomial_cutoff(x, p)
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        (second,) = torch.autograd.grad(first, x)
        assert 0 < value.item() < 1e-14 * p**3
        assert abs(first.item()) < 1e-9 * p**3
        assert 0 < second.item() < 1e-4 * p**3

    def test_float32_keeps_its_digits_near_the_cutoff(self, p):
        """The slope just inside the cutoff; summed over the many atoms that stand there in a crystal, its error is
        the stress'."""
        x = torch.tensor([[0.99]], requires_grad=True)
        (slope,) = torch.autograd.grad(polynomial_cutoff(x, p), x)
        exact = torch.tensor([[x.item()]], dtype=torch.float64, requires_grad=True)
        (expected,) = torch.autograd.grad(polynomial_cutoff(exact, p), exact)
        assert slope.item() == pytest.approx(expected.item(), rel=2e-5)


def test_radial_basis_equals_nequip():
    embedding = pytest.importorskip("nequip.nn.embedding")
    r_max, p, count = 4.5, 6, 8
    length = torch.linspace(0.3, 4.4, 40, dtype=torch.float64)
    from nequip.utils import torch_default_dtype

    with torch_default_dtype(torch.float64):
        encoder = embedding.BesselEdgeLengthEncoding(
            cutoff=embedding.PolynomialCutoff(p), num_bessels=count, irreps_in={"normed_edge_lengths": "0e"}
        )
    order = torch.arange(1, count + 1, dtype=torch.float64) + 0.1
    encoder.bessel_weights.copy_(order[None])
    data = encoder(
        {"normed_edge_lengths": (length / r_max)[:, None], "edge_index": torch.zeros(2, 40, dtype=torch.long)}
    )
    theirs = data["edge_embedding"] * (2 * torch.pi) / r_max**2  # the factor that NequIP applies afterwards
    ours = radial_basis(length[None, :, None], order[None], r_max, p)[0, :, 0]
    torch.testing.assert_close(ours, theirs.detach(), atol=1e-12, rtol=1e-12)


def test_radial_basis_by_hand():
    """b_n(r) = (2/r_max) sin(π w r/r_max)/r · f(r/r_max)."""
    r, w, r_max, p = 1.7, 2.3, 4.0, 6
    expected = 2 / r_max * np.sin(np.pi * w * r / r_max) / r * published_cutoff(np.float64(r / r_max), p)
    one = torch.tensor([[[r]]], dtype=torch.float64)
    result = radial_basis(one, torch.tensor([[w]], dtype=torch.float64), r_max, p)
    assert result.item() == pytest.approx(expected, rel=1e-12)


def test_radial_basis_of_each_chain():
    """Frequencies [K, n] belong to lengths [K, …]."""
    lengths = torch.linspace(0.5, 3.5, 12, dtype=torch.float64).reshape(2, 3, 2)
    frequencies = torch.tensor([[1.0, 2.0], [1.5, 2.5]], dtype=torch.float64)
    together = radial_basis(lengths, frequencies, 4.0, 6)
    for k in range(2):
        apart = radial_basis(lengths[k : k + 1], frequencies[k : k + 1], 4.0, 6)
        torch.testing.assert_close(together[k : k + 1], apart, atol=0, rtol=0)


class TestXPLOR:
    def test_by_hand(self):
        """1 before it begins, 0 beyond the cutoff, and the published quotient in between, in lengths."""
        r, on, r_max = np.array([1.0, 4.5, 4.7, 4.99, 5.0, 6.0]), 4.5, 5.0
        quotient = (r_max**2 - r**2) ** 2 * (r_max**2 + 2 * r**2 - 3 * on**2) / (r_max**2 - on**2) ** 3
        expected = np.where(r < on, 1.0, np.where(r < r_max, quotient, 0.0))
        found = xplor_cutoff(torch.from_numpy(r / r_max), on / r_max)
        np.testing.assert_allclose(found, expected, atol=1e-13)

    def test_one_derivative_is_continuous(self):
        x = torch.tensor([0.9 - 1e-9, 0.9 + 1e-9, 1 - 1e-9, 1 + 1e-9], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(xplor_cutoff(x, 0.9).sum(), x)
        assert slope.abs().max() < 1e-6

    def test_the_radial_basis_has_it(self):
        r, on, r_max = 4.7, 4.5, 5.0
        one, w = torch.tensor([[[r]]], dtype=torch.float64), torch.tensor([[2.3]], dtype=torch.float64)
        found = radial_basis(one, w, r_max, 6, on)
        expected = 2 / r_max * np.sin(np.pi * 2.3 * r / r_max) / r * float(xplor_cutoff(one / r_max, on / r_max))
        assert found.item() == pytest.approx(expected, rel=1e-12)
