"""Coupling coefficients against e3nn's Wigner 3j symbols, and against what they must do."""

import numpy as np
import pytest

from equibayes.network.clebsch_gordan import coupling

TRIPLES = [(a, b, c) for a in range(4) for b in range(4) for c in range(abs(a - b), min(a + b, 3) + 1)]


@pytest.mark.parametrize("triple", TRIPLES, ids=str)
def test_equals_e3nn(triple):
    o3 = pytest.importorskip("e3nn.o3")
    import torch

    expected = o3.wigner_3j(*triple, dtype=torch.float64).numpy()
    np.testing.assert_allclose(coupling(*triple), expected, atol=1e-13)


def test_no_triple_is_missing():
    assert len(TRIPLES) == len(set(TRIPLES)) == 34


@pytest.mark.parametrize(("a", "b"), [(a, b) for a in range(4) for b in range(4)])
def test_orthogonality(a, b):
    """The couplings of two l to all l3 together are a complete orthogonal change of basis, up to the norm
    1/√(2·l3+1)."""
    rows = [coupling(a, b, c).reshape(-1, 2 * c + 1) * np.sqrt(2 * c + 1) for c in range(abs(a - b), a + b + 1)]
    matrix = np.concatenate(rows, 1)
    assert matrix.shape[0] == matrix.shape[1] == (2 * a + 1) * (2 * b + 1)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=1e-12)


def test_known_values():
    """1 ⊗ 1 → 0 is the scalar product over √3, 1 ⊗ 1 → 1 the cross product over √6 (order x, y, z; sign as e3nn)."""
    np.testing.assert_allclose(coupling(1, 1, 0)[:, :, 0], np.eye(3) / np.sqrt(3), atol=1e-15)
    cross = coupling(1, 1, 1)
    assert abs(cross[0, 1, 2]) == pytest.approx(1 / np.sqrt(6))
    np.testing.assert_allclose(cross, -cross.transpose(1, 0, 2), atol=1e-15)


def test_triangle_rule():
    with pytest.raises(ValueError, match="triangle"):
        coupling(1, 1, 3)


def test_read_only():
    """The table is cached and shared; nobody may change it."""
    with pytest.raises(ValueError, match="read-only"):
        coupling(1, 1, 1)[0, 0, 0] = 1.0
