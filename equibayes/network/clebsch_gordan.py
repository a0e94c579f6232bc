"""Clebsch-Gordan coefficients in the real basis: the one way to couple two angular momenta into a third.

The convention (component order, sign, unit norm) is that of e3nn's Wigner 3j symbols, so that weights of official
NequIP models mean the same here; a test compares all of them.
"""

from functools import cache
from math import factorial, sqrt

import numpy as np


@cache
def coupling(l1: int, l2: int, l3: int) -> np.ndarray:
    """[2·l1+1, 2·l2+1, 2·l3+1] tensor C with Σ C² = 1 for which Σ_ij C_ijk x_i y_j transforms as l3."""
    if not abs(l1 - l2) <= l3 <= l1 + l2:
        raise ValueError(f"({l1}, {l2}, {l3}) violates the triangle rule")
    # C_real = Q1ᵀ Q2ᵀ C_complex Q3*, where column a of Q_l holds the complex components of real basis function a
    complex_basis = _complex_coupling(l1, l2, l3)
    real = np.einsum(
        "mi,nj,pk,mnp->ijk", _real_functions(l1), _real_functions(l2), _real_functions(l3).conj(), complex_basis
    )
    assert np.abs(real.imag).max() < 1e-12, "the real basis must make the coupling real"
    coefficients = real.real / np.linalg.norm(real.real)
    coefficients[np.abs(coefficients) < 1e-14] = 0.0
    coefficients.setflags(write=False)
    return coefficients


def _real_functions(l: int) -> np.ndarray:
    """Unitary [2l+1 (complex m), 2l+1 (real)]: the real functions of degree l in terms of the complex ones."""
    q = np.zeros((2 * l + 1, 2 * l + 1), dtype=complex)
    q[l, l] = 1.0
    for m in range(1, l + 1):
        q[l - m, l + m] = 1 / sqrt(2)
        q[l - m, l - m] = -1j / sqrt(2)
        q[l + m, l + m] = (-1) ** m / sqrt(2)
        q[l + m, l - m] = 1j * (-1) ** m / sqrt(2)
    return (-1j) ** l * q


def _complex_coupling(l1: int, l2: int, l3: int) -> np.ndarray:
    """⟨l1 m1 l2 m2 | l3 m3⟩ for all m, by Racah's formula."""
    table = np.zeros((2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1))
    for m1 in range(-l1, l1 + 1):
        for m2 in range(-l2, l2 + 1):
            if abs(m1 + m2) <= l3:
                table[l1 + m1, l2 + m2, l3 + m1 + m2] = _clebsch_gordan(l1, m1, l2, m2, l3, m1 + m2)
    return table


def _clebsch_gordan(l1: int, m1: int, l2: int, m2: int, l3: int, m3: int) -> float:
    f = factorial
    triangle = f(l1 + l2 - l3) * f(l1 - l2 + l3) * f(-l1 + l2 + l3) / f(l1 + l2 + l3 + 1)
    norm = f(l1 + m1) * f(l1 - m1) * f(l2 + m2) * f(l2 - m2) * f(l3 + m3) * f(l3 - m3)
    total = 0.0
    for t in range(l1 + l2 - l3 + 1):
        rest = (t, l1 + l2 - l3 - t, l1 - m1 - t, l2 + m2 - t, l3 - l2 + m1 + t, l3 - l1 - m2 + t)
        if min(rest) >= 0:
            total += (-1) ** t / np.prod([float(f(n)) for n in rest])
    return sqrt((2 * l3 + 1) * triangle * norm) * total
