"""Features of an edge: spherical harmonics of its direction, Bessel functions of its length.

Component normalisation (Σ_m Y_lm² = 2l+1 on the sphere) and component order are those of e3nn.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import pi, sqrt

import numpy as np
import torch

from equibayes.network.constants import Constant

# Each harmonic as a polynomial in the components of the unit vector: {monomial: coefficient}.
HARMONICS: tuple[tuple[dict[str, float], ...], ...] = (
    ({"": 1.0},),
    ({"x": sqrt(3)}, {"y": sqrt(3)}, {"z": sqrt(3)}),
    (
        {"xz": sqrt(15)},
        {"xy": sqrt(15)},
        {"yy": sqrt(5), "xx": -sqrt(5) / 2, "zz": -sqrt(5) / 2},
        {"yz": sqrt(15)},
        {"zz": sqrt(15) / 2, "xx": -sqrt(15) / 2},
    ),
    (
        {"xzz": sqrt(70) * 3 / 4, "xxx": -sqrt(70) / 4},
        {"xyz": sqrt(105)},
        {"xyy": sqrt(42), "xxx": -sqrt(42) / 4, "xzz": -sqrt(42) / 4},
        {"yyy": sqrt(7), "xxy": -sqrt(7) * 3 / 2, "yzz": -sqrt(7) * 3 / 2},
        {"yyz": sqrt(42), "xxz": -sqrt(42) / 4, "zzz": -sqrt(42) / 4},
        {"yzz": sqrt(105) / 2, "xxy": -sqrt(105) / 2},
        {"zzz": sqrt(70) / 4, "xxz": -sqrt(70) * 3 / 4},
    ),
)
L_MAX = len(HARMONICS) - 1


@dataclass(frozen=True)
class EdgeGeometry:
    """Everything that depends on positions alone, computed once for all chains.

    length    [G, N, D]            r, Å
    harmonics [G, N, D, M]         Y_m of the direction, M = (l_max+1)²
    direction [G, N, D, 3]         unit vector
    gradient  [G, N, D, M, 3]      ∂Y_m / ∂vector, 1/Å
    """

    length: torch.Tensor
    harmonics: torch.Tensor
    direction: torch.Tensor
    gradient: torch.Tensor


def edge_geometry(vector: torch.Tensor, l_max: int) -> EdgeGeometry:
    """Length, direction, harmonics and their gradient for edge vectors [..., 3]."""
    length = vector.norm(dim=-1)
    direction = vector / length[..., None]
    exponents, table, degree = _polynomials(l_max)
    powers = torch.stack([torch.ones_like(direction), direction, direction**2, direction**3], -1)  # [..., 3, 4]
    x, y, z = (powers[..., axis, :].index_select(-1, exponents[axis].like(vector)) for axis in range(3))
    values = (x * y * z) @ table.like(vector)  # [..., 4·M]: Y, ∂Y/∂x, ∂Y/∂y, ∂Y/∂z of the polynomial
    harmonics, *partial = values.tensor_split(4, -1)
    # Y is homogeneous of degree l in the unit vector u, so its gradient along the sphere is (∇Y - l·Y·u) / r
    gradient = torch.stack(partial, -1) - (degree.like(vector) * harmonics)[..., None] * direction[..., None, :]
    return EdgeGeometry(length, harmonics, direction, gradient / length[..., None, None])


@cache
def _polynomials(l_max: int) -> tuple[list[Constant], Constant, Constant]:
    """Exponents of x, y, z in all monomials up to degree l_max, table [n, 4·M] of Y and its partials, degree [M]."""
    exponents = [e for e in product(range(l_max + 1), repeat=3) if sum(e) <= l_max]
    row = {e: i for i, e in enumerate(exponents)}
    flat = [(l, polynomial) for l in range(l_max + 1) for polynomial in HARMONICS[l]]
    table = np.zeros((4, len(exponents), len(flat)))
    for m, (_, polynomial) in enumerate(flat):
        for monomial, coefficient in polynomial.items():
            e = tuple(monomial.count(axis) for axis in "xyz")
            table[0, row[e], m] += coefficient
            for axis in range(3):
                if e[axis]:
                    lower = tuple(n - (a == axis) for a, n in enumerate(e))
                    table[1 + axis, row[lower], m] += coefficient * e[axis]
    stacked = torch.from_numpy(np.concatenate(list(table), axis=1))
    axes = [Constant(column) for column in torch.tensor(exponents).T]
    return axes, Constant(stacked), Constant(torch.tensor([float(l) for l, _ in flat]))


def radial_basis(
    length: torch.Tensor, frequencies: torch.Tensor, r_max: float, p: int, xplor_on: float | None = None
) -> torch.Tensor:
    """Bessel functions times the cutoff: [K, N, D] Å and frequencies [K, num_bessels] -> [K, N, D, num_bessels].

    b_n(r) = (2/r_max) · sin(π w_n r/r_max)/r · f(r/r_max), with trainable frequencies w_n near n = 1, 2, …
    f is the polynomial cutoff with exponent p, or XPLOR where it begins at xplor_on (Å).
    """
    x = (length / r_max)[..., None]
    bessel = torch.sin(pi * frequencies[:, None, None, :] * x) / x
    cutoff = polynomial_cutoff(x, p) if xplor_on is None else xplor_cutoff(x, xplor_on / r_max)
    return bessel * (2 / r_max**2 * cutoff)


def polynomial_cutoff(x: torch.Tensor, p: int) -> torch.Tensor:
    """Smooth step [..., 1] from 1 at x = 0 to 0 for x ≥ 1, with p − 1 vanishing derivatives at 0 and two at 1.

    NequIP's 1 − (p+1)(p+2)/2 xᵖ + p(p+2) xᵖ⁺¹ − p(p+1)/2 xᵖ⁺² has a triple root at 1.  Divided out, only positive terms
    remain, and float32 keeps its digits where large powers would cancel:  (1 − x)³ Σ_k (k+1)(k+2)/2 xᵏ,  k < p.
    """
    k = torch.arange(p, device=x.device)
    coefficients = ((k + 1) * (k + 2) / 2).to(x)
    x = x.clamp(max=1.0)
    return (1 - x) ** 3 * (x**k * coefficients).sum(-1, keepdim=True)


def xplor_cutoff(x: torch.Tensor, on: float) -> torch.Tensor:
    """1 up to x = on, then (1 − x²)² (1 + 2x² − 3on²) / (1 − on²)³, and 0 for x ≥ 1; one derivative is continuous."""
    square = x.clamp(on, 1.0) ** 2
    return (1 - square) ** 2 * (1 + 2 * square - 3 * on**2) / (1 - on**2) ** 3
